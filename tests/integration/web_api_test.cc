// The page's API over real sockets, with a real engine and a store in memory.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "integration/memory_store.h"
#include "support/engine_fakes.h"
#include "support/scripted_job.h"
#include "web/api.h"
#include "web/event_streams.h"
#include "web/guard.h"
#include "web/server.h"

namespace gyrostat::web {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::kScriptedRun;
using testing::PostAndWait;

// Only what hangs meets it.
constexpr base::Milliseconds kPatience = testing::kPatience;

// One request and everything that comes back until the server closes, or until `until` has come.
std::string Ask(const base::Endpoint& endpoint, const std::string& request, const std::string& until = "") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(endpoint.port);
  inet_pton(AF_INET, endpoint.host.c_str(), &to.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  send(fd, request.data(), request.size(), MSG_NOSIGNAL);
  std::string all;
  char buffer[4096];
  while (until.empty() || all.find(until) == std::string::npos) {
    pollfd p{fd, POLLIN, 0};
    if (poll(&p, 1, static_cast<int>(kPatience.count())) <= 0) {
      all += "<no end>";
      break;
    }
    const ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
    if (got <= 0) break;
    all.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return all;
}

struct Answer {
  int status = 0;
  std::string head;
  json body;
};
Answer Parse(const std::string& raw) {
  const size_t end = raw.find("\r\n\r\n");
  if (raw.size() < 12 || end == std::string::npos) return {0, raw, json()};
  return {std::stoi(raw.substr(9, 3)), raw.substr(0, end), json::parse(raw.substr(end + 4), nullptr, false)};
}

class WebApi : public ::testing::Test {
 protected:
  WebApi() : engine_(Options(), &store_, &outbox_, &base::SystemClock()),
             streams_({.streams_max = 2}, [this](const std::string& run) { return engine_.FindRun(run); }, &probe_,
                      &base::SystemClock()),
             api_({.version = "1.2.3", .settle_timeout = kPatience}, &engine_, &store_, &streams_,
                  [this] { return not_ready_; }) {
    engine_.Start();
    auto started = Server::Start({"127.0.0.1", 0}, {.request_timeout = kPatience}, {}, &probe_, &base::SystemClock(),
                                 {nullptr, Refuse, [this](const Request& request) { return api_.Answer(request); }});
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    EXPECT_TRUE(PostAndWait(&engine_, kScriptedRun, job_.Hello()).ok());
  }
  ~WebApi() override {
    store_.Hold(false);
    engine_.Stop();
    server_->Stop();
    streams_.Stop();
  }
  static engine::EngineOptions Options() {
    engine::EngineOptions options;
    options.run = testing::ScriptedOptions();
    options.run.policy.mode = model::Mode::kAdvise;
    return options;
  }
  std::string host() const { return server_->endpoint().ToString(); }
  Answer Get(const std::string& target, const std::string& more = "") {
    return Parse(Ask(server_->endpoint(), "GET " + target + " HTTP/1.1\r\nHost: " + host() + "\r\n" + more + "\r\n"));
  }
  Answer Post(const std::string& target, const std::string& body, std::string head = "") {
    if (head.empty()) head = "X-Gyrostat: 1\r\nContent-Type: application/json\r\nOrigin: http://" + host() + "\r\n";
    return Parse(Ask(server_->endpoint(), "POST " + target + " HTTP/1.1\r\nHost: " + host() + "\r\n" + head +
                                              "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body));
  }
  void Report(int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(PostAndWait(&engine_, kScriptedRun, job_.Report()).ok());
  }
  // Reports until the runaway head makes the policy propose something; its id.
  std::string Propose() {
    for (int i = 0; i < 200; ++i) {
      Report(1);
      const auto run = engine_.FindRun(kScriptedRun);
      if ((*run)->interventions_pending > 0) return (*run)->open_interventions.back().id;
    }
    ADD_FAILURE() << "nothing was proposed";
    return "";
  }

  MemoryStore store_;
  testing::FakeOutbox outbox_;
  Probe probe_;
  testing::ScriptedJob job_{1};
  std::string not_ready_;
  engine::Engine engine_;
  EventStreams streams_;
  Api api_;
  std::unique_ptr<Server> server_;
};

TEST_F(WebApi, ListsRunsAndShowsOne) {
  Report(5);
  not_ready_ = "journal: disk full";
  const Answer list = Get("/api/runs");
  EXPECT_EQ(list.status, 200);
  EXPECT_THAT(list.head, HasSubstr("Content-Type: application/json"));
  EXPECT_THAT(list.head, HasSubstr("X-Content-Type-Options: nosniff"));
  EXPECT_THAT(list.head, HasSubstr("Cache-Control: no-store"));
  EXPECT_EQ(list.body["version"], "1.2.3");
  EXPECT_EQ(list.body["not_ready"], "journal: disk full");
  ASSERT_EQ(list.body["runs"].size(), 1u);
  EXPECT_EQ(list.body["runs"][0]["run"], kScriptedRun);
  EXPECT_EQ(list.body["runs"][0]["step"], 5);
  const Answer run = Get(std::string("/api/runs/") + kScriptedRun);
  EXPECT_EQ(run.body["mode"], "advise");
  EXPECT_EQ(run.body["tau"], testing::kScriptedTau);
  EXPECT_EQ(run.body["allow"], json({"qk_clip"}));
  EXPECT_EQ(run.body["model"]["layers"], testing::kPlainLayers);
}

TEST_F(WebApi, ApprovesAndRejectsWhatWaits) {
  const std::string id = Propose();
  const Answer denied = Post("/api/interventions/" + id + "/reject", R"({"reason":"  "})");
  EXPECT_EQ(denied.status, 400);
  EXPECT_THAT(denied.body["error"], HasSubstr("reason is empty"));
  const Answer done = Post("/api/interventions/" + id + "/approve", R"({"reason":"looks right","author":"Änne"})");
  ASSERT_EQ(done.status, 200) << done.body;
  EXPECT_EQ(done.body["id"], id);
  EXPECT_EQ(done.body["author"], "Änne");
  EXPECT_NE(done.body["state"], "proposed");
  const Answer again = Post("/api/interventions/" + id + "/approve", R"({"reason":"twice"})");
  EXPECT_EQ(again.status, 409) << again.body;
  EXPECT_THAT(again.body["error"], HasSubstr(id));
  EXPECT_EQ(Get(std::string("/api/runs/") + kScriptedRun).body["interventions"].back()["id"], id);
}

TEST_F(WebApi, AnswersOnlyOnceItIsDurable) {
  const std::string id = Propose();
  store_.Fail(true);
  const Answer failed = Post("/api/interventions/" + id + "/approve", "{}");
  EXPECT_EQ(failed.status, 409) << failed.body;
  EXPECT_EQ((*engine_.FindRun(kScriptedRun))->interventions_pending, 1u) << "it never happened";
}

TEST_F(WebApi, ChangesNothingForPagesFromElsewhere) {
  const std::string target = "/api/interventions/" + Propose() + "/approve";
  const std::string json_type = "Content-Type: application/json\r\n", marker = "X-Gyrostat: 1\r\n";
  EXPECT_EQ(Post(target, "{}", json_type).status, 403) << "a plain cross-site request cannot bring the header";
  EXPECT_EQ(Post(target, "{}", marker + json_type + "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(Post(target, "{}", marker + json_type + "Origin: null\r\n").status, 403);
  EXPECT_EQ(Post(target, "{}", marker + json_type + "Sec-Fetch-Site: cross-site\r\n").status, 403);
  EXPECT_EQ(Post(target, "{}", marker + "Content-Type: text/plain\r\n").status, 415);
  EXPECT_EQ(Get(target).status, 405) << "a link or an image changes nothing";
  const std::string rebound = "POST " + target + " HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n" +
                              marker + json_type + "Content-Length: 2\r\n\r\n{}";
  EXPECT_THAT(Ask(server_->endpoint(), rebound), HasSubstr("HTTP/1.1 403 "));
  EXPECT_EQ((*engine_.FindRun(kScriptedRun))->interventions_pending, 1u);
  EXPECT_EQ(Post(target, "{}").status, 200) << "our own page may";
}

TEST_F(WebApi, SaysWhatIsWrongWithABody) {
  const std::string target = std::string("/api/interventions/") + kScriptedRun + "/1/approve";
  for (const char* body : {"", "x", "[]", "1", "{\"reason\":1}", "{\"reason\":null}", "{\"why\":\"x\"}",
                           "{\"reason\":\"x\"", "{\"reason\":\"\xff\"}"}) {
    const Answer answer = Post(target, body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_TRUE(answer.body["error"].is_string()) << body;
  }
  std::string deep(4000, '[');
  EXPECT_EQ(Post(target, deep).status, 400);
  EXPECT_EQ(Post(target, "{\"reason\":\"" + std::string(kBodyBytesMax, 'x') + "\"}").status, 413);
  const std::string head = "POST " + target + " HTTP/1.1\r\nHost: " + host() +
                           "\r\nX-Gyrostat: 1\r\nContent-Type: application/json\r\n";
  for (const char* lengths : {"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "\r\n",
                              "Content-Length: 2\r\nContent-Length: 900\r\n\r\n{}"})
    EXPECT_THAT(Ask(server_->endpoint(), head + lengths), HasSubstr("HTTP/1.1 411 ")) << lengths;
  for (const char* length : {"-1", "99999999999999999999", "2x"})
    EXPECT_THAT(Ask(server_->endpoint(), head + "Content-Length: " + length + "\r\n\r\n{}"), HasSubstr("HTTP/1.1 4"))
        << length;
  EXPECT_EQ(Post("/api/interventions/nobody/1/approve", "{}").status, 404);
  EXPECT_EQ(Post(target, "{}").status, 404) << "the run is there, the intervention is not";
}

TEST_F(WebApi, ReadsASeriesAndRefusesStrangeQuestions) {
  Report(50);
  const std::string series = std::string("/api/runs/") + kScriptedRun + "/series";
  const Answer loss = Get(series + "?signal=loss&from=11&to=30");
  EXPECT_EQ(loss.status, 200) << loss.body;
  EXPECT_EQ(loss.body["points"].size(), 20u);
  const Answer both = Get(series + "?signal=loss,learning_rate&from=11&to=30");
  ASSERT_EQ(both.body["series"].size(), 2u) << both.body;
  EXPECT_EQ(both.body["series"][0], loss.body);
  EXPECT_EQ(both.body["series"][1]["signal"], "learning_rate");
  for (const char* query : {"", "?signal=loss,", "?signal=a,b,c,d,e,f,g,h,i", "?signal=",
                            "?signal=a%2Fb", "?signal=loss&layer=x", "?signal=loss&points=3",
                            "?signal=loss&points=10001", "?signal=loss&from=1.5",
                            "?signal=loss&from=99999999999999999999", "?signal=loss&signal=log_z",
                            "?signal=loss&what=1", "?signal=loss&layer=-1", "?signal=%00"}) {
    const Answer answer = Get(series + query);
    EXPECT_EQ(answer.status, 400) << query;
    EXPECT_TRUE(answer.body["error"].is_string()) << query;
  }
  for (const char* target : {"/api/", "/api/runs/", "/api/runs/nobody", "/api/runs/nobody/series?signal=loss",
                             "/api/runs/a%2Fb", "/api/runs/../runs", "/api/what", "/api/runs/nobody/events",
                             "/api/interventions/a/1", "/api/interventions/a/1/explode"}) {
    const int status = Get(target).status;
    EXPECT_TRUE(status == 404 || status == 400) << target << " " << status;
  }
}

TEST_F(WebApi, SaysWhatIsNowWithoutAStream) {
  Report(3);
  const std::string now = std::string("/api/runs/") + kScriptedRun + "/now";
  const Answer answer = Get(now);
  EXPECT_EQ(answer.body["step"], 3) << answer.body;
  EXPECT_EQ(answer.body["arrays"]["attn_logit_max"]["heads"], testing::kPlainHeads);
  const std::string request = "GET /api/runs/" + std::string(kScriptedRun) + "/events HTTP/1.1\r\nHost: " + host();
  const std::string streamed = Ask(server_->endpoint(), request + "\r\n\r\n", "}\n\n");
  const size_t begin = streamed.find("data: ") + 6;
  EXPECT_EQ(json::parse(streamed.substr(begin, streamed.find("\n\n", begin) - begin), nullptr, false), answer.body);
  EXPECT_EQ(Get(now + "?step=1").status, 400);
  EXPECT_EQ(Get("/api/runs/nobody/now").status, 404);
  EXPECT_EQ(Get(now, "Origin: http://evil.example\r\n").status, 403);
}

TEST_F(WebApi, ShowsTheHeadsOfNow) {
  Report(3);
  const std::string heat = std::string("/api/runs/") + kScriptedRun + "/heat?signal=";
  const Answer now = Get(heat + "attn_logit_max");
  EXPECT_EQ(now.status, 200) << now.body;
  EXPECT_EQ(now.body["heads"], testing::kPlainHeads);
  EXPECT_EQ(now.body["step"], 3);
  EXPECT_EQ(Get(heat + "loss").status, 400);
}

TEST_F(WebApi, StreamsEventsAndBoundsThem) {
  Report(1);
  const std::string target = std::string("/api/runs/") + kScriptedRun + "/events?interval_ms=50";
  const std::string request = "GET " + target + " HTTP/1.1\r\nHost: " + host() + "\r\n\r\n";
  const std::string first = Ask(server_->endpoint(), request, "}\n\n");
  EXPECT_THAT(first, HasSubstr("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"));
  EXPECT_THAT(first, HasSubstr("\r\n\r\ndata: {\"run\":\"scripted\""));
  EXPECT_EQ(first.find("Content-Length"), std::string::npos);
  std::shared_ptr<void> one, two;  // Both places, once the first peer's end is noticed.
  while (one == nullptr || two == nullptr) {
    (one == nullptr ? one : two) = streams_.Reserve();
    std::this_thread::yield();
  }
  const Answer full = Get(target);
  EXPECT_EQ(full.status, 503) << full.head;
  EXPECT_EQ(Get(std::string("/api/runs/") + kScriptedRun + "/events?interval_ms=49").status, 400);
  EXPECT_EQ(Get(target, "Origin: http://evil.example\r\n").status, 403);
  const Answer head = Parse(Ask(server_->endpoint(), "HEAD /api/runs HTTP/1.1\r\nHost: " + host() + "\r\n\r\n"));
  EXPECT_EQ(head.status, 200);
}

}  // namespace
}  // namespace gyrostat::web
