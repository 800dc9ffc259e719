// The HTTP server over real sockets: answers, refusals, bounds and garbage.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "support/manual_clock.h"
#include "web/server.h"

namespace gyrostat::web {
namespace {

using base::Endpoint;

constexpr std::chrono::duration<int, std::milli> kPatience(300'000);

// A client socket. Whatever waits gives up after minutes, which only what hangs meets.
class Peer {
 public:
  explicit Peer(const Endpoint& endpoint) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(endpoint.port);
    inet_pton(AF_INET, endpoint.host.c_str(), &to.sin_addr);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~Peer() { close(fd_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  bool connected() const { return connected_; }
  void Send(std::string_view bytes) { send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void EndOfSending() { shutdown(fd_, SHUT_WR); }
  // Everything until the server closes.
  std::string ReadAll() {
    std::string all;
    char buffer[4096];
    while (true) {
      pollfd p{fd_, POLLIN, 0};
      if (poll(&p, 1, kPatience.count()) <= 0) return all + "<no end>";
      const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
      if (got <= 0) return all;
      all.append(buffer, static_cast<size_t>(got));
    }
  }

 private:
  int fd_;
  bool connected_ = false;
};

class WebServer : public ::testing::Test {
 protected:
  // A request has all the time of the test unless `options` say less: who gets no core is not slow on purpose.
  void Start(ServerOptions options = {}, const base::Clock* clock = &base::SystemClock()) {
    if (options.request_timeout == ServerOptions().request_timeout) options.request_timeout = kPatience;
    auto started = Server::Start({"127.0.0.1", 0}, options, Routes(), &probe_, clock);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = std::move(*started);
  }
  std::map<std::string, Route> Routes() {
    const auto hold = [this](const Query&) {
      entered_.set_value();
      release_.get_future().wait();
      return Reply{200, "text/plain", "held\n"};
    };
    const auto echo = [](const Query& query) {
      std::string all;
      for (const auto& [name, value] : query) all += name + "=" + value + ";";
      return Reply{200, "text/plain", all};
    };
    return {{"/healthz", [](const Query&) { return Reply{200, "text/plain; charset=utf-8", "ok\n"}; }},
            {"/readyz", [](const Query&) { return Reply{503, "text/plain", "journal: disk full\n"}; }},
            {"/hold", hold},
            {"/echo", echo},
            {"/big", [](const Query&) { return Reply{200, "text/plain", std::string(8 << 20, 'x')}; }}};
  }
  std::string Ask(std::string_view request) {
    Peer peer(server_->endpoint());
    EXPECT_TRUE(peer.connected());
    peer.Send(request);
    return peer.ReadAll();
  }
  std::string Get(const std::string& target, const std::string& more = "") {
    return Ask("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n");
  }
  static bool Status(const std::string& answer, int status) {
    return answer.rfind("HTTP/1.1 " + std::to_string(status) + " ", 0) == 0;
  }
  static bool EndsWith(const std::string& answer, std::string_view body) {
    return answer.size() >= body.size() && answer.compare(answer.size() - body.size(), body.size(), body) == 0;
  }

  Probe probe_;
  testing::ManualClock clock_;  // For who starts the server with it.
  std::promise<void> entered_, release_;
  std::unique_ptr<Server> server_;
};

TEST_F(WebServer, AnswersItsTargets) {
  Start();
  const std::string healthy = Get("/healthz");
  EXPECT_TRUE(Status(healthy, 200) && EndsWith(healthy, "\r\n\r\nok\n")) << healthy;
  const std::string ready = Get("/readyz");
  EXPECT_TRUE(Status(ready, 503) && EndsWith(ready, "\r\n\r\njournal: disk full\n")) << ready;
  EXPECT_TRUE(Status(Get("/healthz?verbose=1"), 200));
  EXPECT_EQ(probe_.requests_total.value(), 3u);
  EXPECT_EQ(probe_.requests_refused_total.value(), 0u);
}

TEST_F(WebServer, HandsTheQueryOverDecoded) {
  Start();
  const std::string answer = Get("/echo?run=a%26b%20c&layers=0-7&layers=&run");
  EXPECT_TRUE(EndsWith(answer, "\r\n\r\nlayers=0-7;layers=;run=a&b c;run=;")) << answer;
}

TEST_F(WebServer, AnswersHeadWithoutABody) {
  Start();
  const std::string answer = Ask("HEAD /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_TRUE(Status(answer, 200)) << answer;
  EXPECT_NE(answer.find("Content-Length: 3\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(EndsWith(answer, "\r\n\r\n")) << answer;
}

TEST_F(WebServer, NamesItsTargetsWhereOneIsUnknown) {
  Start();
  const std::string answer = Get("/metric");
  EXPECT_TRUE(Status(answer, 404)) << answer;
  EXPECT_TRUE(EndsWith(answer, "not found; there are: /big /echo /healthz /hold /readyz\n")) << answer;
  EXPECT_TRUE(Status(Get("/../../etc/passwd"), 404));
  EXPECT_TRUE(Status(Get("/%2e%2e/healthz"), 404));
}

TEST_F(WebServer, RefusesMethodsThatChangeThings) {
  Start();
  const std::string answer = Ask("POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_TRUE(Status(answer, 405)) << answer;
  EXPECT_NE(answer.find("Allow: GET, HEAD\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(Status(Ask("BREW /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400));
  const std::string asking = "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n";
  EXPECT_TRUE(Status(Ask("PUT /healthz HTTP/1.1\r\nHost: localhost\r\n" + asking), 417));
}

TEST_F(WebServer, RefusesAHostThatIsNotThisMachine) {
  Start();
  for (const char* host : {"evil.example", "evil.example:7432", "127.0.0.1.evil.example", "10.0.0.1", "[", "a@b"})
    EXPECT_TRUE(Status(Ask("GET /healthz HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n"), 403)) << host;
  for (const char* host : {"localhost:8080", "127.0.0.1", "[::1]:7432", "[::1]"})
    EXPECT_TRUE(Status(Ask("GET /healthz HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n"), 200)) << host;
  EXPECT_TRUE(Status(Ask("GET /healthz HTTP/1.1\r\n\r\n"), 400));
  EXPECT_TRUE(Status(Ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"), 400));
  EXPECT_EQ(probe_.requests_refused_total.value(), 8u);
}

TEST_F(WebServer, IgnoresRanges) {
  Start();
  std::string ranges = "Range: bytes=0-0";
  for (int i = 0; i < 1000; ++i) ranges += ",0-9";
  const std::string answer = Get("/healthz", ranges + "\r\n");
  EXPECT_TRUE(EndsWith(answer, "\r\n\r\nok\n")) << answer;
}

TEST_F(WebServer, SurvivesGarbage) {
  Start();
  const std::string long_name(9000, 'a');
  std::vector<std::string> garbage = {"\r\n\r\n", "GET\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                      std::string(100000, 'A'),
                                      "GET /" + long_name + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                      "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + long_name + "\r\n\r\n",
                                      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\xff", 13)};
  std::string every_byte;
  for (int i = 0; i < 4096; ++i) every_byte.push_back(static_cast<char>(i * 31));
  garbage.push_back(every_byte);
  for (const std::string& bytes : garbage) {
    Peer peer(server_->endpoint());
    ASSERT_TRUE(peer.connected());
    peer.Send(bytes);
    peer.EndOfSending();
    const std::string answer = peer.ReadAll();
    EXPECT_EQ(answer.find("<no end"), std::string::npos) << answer;
    EXPECT_FALSE(Status(answer, 200)) << answer;
  }
  EXPECT_TRUE(Status(Get("/healthz"), 200));
}

TEST_F(WebServer, EndsARequestThatIsTooLargeOrNeverComplete) {
  ServerOptions options;
  options.threads = 1;
  options.request_timeout = base::Milliseconds(300);
  Start(options, &clock_);  // By the real one a test that gets no core would be late as well.
  {
    Peer slow(server_->endpoint());
    slow.Send("GET /healthz HTTP/1.1\r\nHost: local");
    while (probe_.request_timeouts_total.value() == 0) {
      clock_.Advance(options.request_timeout);
      std::this_thread::yield();
    }
    EXPECT_EQ(slow.ReadAll().find("<no end"), std::string::npos);
  }
  EXPECT_EQ(probe_.request_timeouts_total.value(), 1u);
  std::string many = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 20000; ++i) many += "X-" + std::to_string(i) + ": y\r\n";
  EXPECT_FALSE(Status(Ask(many + "\r\n"), 200));
  EXPECT_EQ(probe_.request_timeouts_total.value(), 2u);
  EXPECT_TRUE(Status(Get("/healthz"), 200)) << "the one thread is free again";
}

TEST_F(WebServer, ClosesConnectionsBeyondItsQueueAtOnce) {
  ServerOptions options;
  options.threads = 1;
  options.connections_waiting_max = 1;
  Start(options);
  Peer busy(server_->endpoint());
  busy.Send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
  entered_.get_future().wait();  // The one thread is taken; the next connection waits, all others find no room.
  Peer waiting(server_->endpoint());
  waiting.Send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Get("/healthz"), "");
  EXPECT_EQ(probe_.connections_dropped_total.value(), 5u);
  release_.set_value();
  EXPECT_TRUE(Status(busy.ReadAll(), 200));
  EXPECT_TRUE(Status(waiting.ReadAll(), 200));
}

TEST_F(WebServer, StopsWithoutWaitingForThoseThatNeverAsk) {
  ServerOptions options;
  options.request_timeout = base::Milliseconds(60000);
  Start(options);
  Peer silent(server_->endpoint());
  silent.Send("GET /hea");
  EXPECT_TRUE(Status(Get("/healthz"), 200));  // Accepted after the silent one, so that one is with a worker.
  server_->Stop();
  EXPECT_EQ(silent.ReadAll().find("<no end"), std::string::npos);
}

TEST_F(WebServer, SendsALargeAnswerWhole) {
  Start();
  const std::string answer = Get("/big");
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, size_t{8 << 20});
}

TEST_F(WebServer, SaysWhichAddressIsTaken) {
  Start();
  const auto second = Server::Start(server_->endpoint(), {}, {}, &probe_, &base::SystemClock());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().message(),
            "cannot listen on http address " + server_->endpoint().ToString() + ": Address already in use");
}

TEST_F(WebServer, StopsTwice) {
  Start();
  server_->Stop();
  server_->Stop();
  EXPECT_FALSE(Peer(server_->endpoint()).connected());
}

}  // namespace
}  // namespace gyrostat::web
