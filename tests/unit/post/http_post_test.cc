// Against an HTTP server that takes, refuses, sends elsewhere or repeats what it was told.
#include "post/http_post.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <fstream>
#include <thread>

#include "support/temp_dir.h"

namespace gyrostat::post {
namespace {

class HttpPostTest : public ::testing::Test {
 protected:
  HttpPostTest() {
    server_.Post("/take", [this](const httplib::Request& request, httplib::Response& response) {
      seen_ = request;
      response.status = 204;
    });
    server_.Post("/elsewhere", [](const httplib::Request&, httplib::Response& response) {
      response.set_redirect("/take", 307);
    });
    server_.Post("/busy", [](const httplib::Request&, httplib::Response& response) {
      response.status = 503;
      response.set_header("Retry-After", "7");
      response.set_content("come\nback", "text/plain");
    });
    server_.Post("/services/T0/s3cret", [](const httplib::Request& request, httplib::Response& response) {
      response.status = 404;
      response.set_content("no " + request.path + " for " + request.get_header_value("Authorization"), "text/plain");
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();  // A stop before that would be lost.
  }
  ~HttpPostTest() override {
    server_.stop();
    thread_.join();
  }

  std::string Url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }
  PostResult Send(Target target, const std::vector<std::string>& headers = {}) {
    target.user_agent = "test";
    return HttpPost(std::move(target), &stop_).Post("body", headers);
  }
  std::string FileWith(const std::string& name, const std::string& text) {
    std::ofstream(temp_.File(name)) << text;
    return temp_.File(name);
  }

  testing::TempDir temp_;
  std::atomic<bool> stop_{false};
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  httplib::Request seen_;
};

TEST_F(HttpPostTest, SendsBodyHeadersAndToken) {
  const PostResult result =
      Send({.url = Url("/take"), .token_file = FileWith("token", "t0ken\n")}, {"Content-Type: x/y", "X-A: 1"});
  EXPECT_TRUE(result.taken()) << result.error;
  EXPECT_EQ(seen_.body, "body");
  EXPECT_EQ(seen_.get_header_value("Content-Type"), "x/y");
  EXPECT_EQ(seen_.get_header_value("X-A"), "1");
  EXPECT_EQ(seen_.get_header_value("Authorization"), "Bearer t0ken");
  EXPECT_EQ(seen_.get_header_value("User-Agent"), "test");
}

TEST_F(HttpPostTest, TakesTheUrlFromAFileThatMayBeReplaced) {
  std::atomic<bool> stop{false};
  const std::string file = FileWith("url", Url("/busy") + "\n");
  HttpPost http({.url_file = file}, &stop);
  EXPECT_EQ(http.Post("", {}).status, 503);
  FileWith("url", Url("/take"));
  EXPECT_EQ(http.Post("", {}).status, 204);
  FileWith("url", "not a url");
  EXPECT_EQ(http.Post("", {}).error, file + ": saw no URL of http or https");
  EXPECT_EQ(Send({.url_file = temp_.File("none")}).error, "no URL can be read from " + temp_.File("none"));
}

TEST_F(HttpPostTest, FollowsNoRedirect) {
  const PostResult result = Send({.url = Url("/elsewhere"), .token_file = FileWith("token", "t0ken")});
  EXPECT_EQ(result.status, 307);
  EXPECT_FALSE(result.taken());
  EXPECT_EQ(seen_.body, "") << "the other place heard nothing";
}

TEST_F(HttpPostTest, SaysWhatTheServerSaidAndWhenToComeBack) {
  const PostResult result = Send({.url = Url("/busy")});
  EXPECT_EQ(result.status, 503);
  EXPECT_EQ(result.error, "HTTP 503 come back");
  EXPECT_EQ(result.retry_after, base::Milliseconds(7000));
}

TEST_F(HttpPostTest, TellsNoSecretThatAServerRepeats) {
  const PostResult result =
      Send({.url_file = FileWith("url", Url("/services/T0/s3cret")), .token_file = FileWith("token", "t0ken")});
  EXPECT_EQ(result.error, "HTTP 404 no (...) for Bearer (...)");
}

TEST_F(HttpPostTest, AnswersWhereNobodyListens) {
  const PostResult result = Send({.url = "http://127.0.0.1:1/a-secret-path"});
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.error, "");
  EXPECT_EQ(result.error.find("a-secret-path"), std::string::npos) << result.error;
}

TEST_F(HttpPostTest, NamesTheFileOfASecretThatIsNotThere) {
  EXPECT_EQ(Send({.url = Url("/take"), .token_file = temp_.File("none")}).error,
            "no token can be read from " + temp_.File("none"));
}

TEST(PostUrl, TakesNoCredentialsAndNothingButHttp) {
  EXPECT_EQ(UrlProblem(""), "");
  EXPECT_EQ(UrlProblem("http://127.0.0.1:8428/api/v1/write"), "");
  EXPECT_EQ(UrlProblem("https://example.org/api/v1/push"), "");
  EXPECT_NE(UrlProblem("https://anna:secret@example.org/").find("file"), std::string::npos);
  EXPECT_NE(UrlProblem("file:///etc/passwd"), "");
  EXPECT_NE(UrlProblem("no url"), "");
}

}  // namespace
}  // namespace gyrostat::post
