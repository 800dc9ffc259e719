// Against an HTTP server that takes, refuses, asks to wait or does not answer; the history is the test's own.
#include "telemetry/remote_write.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <snappy.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/archive.h"
#include "base/mutex.h"
#include "prometheus/remote_write.pb.h"
#include "support/manual_clock.h"
#include "support/plain_run.h"
#include "support/temp_dir.h"

namespace gyrostat::telemetry {
namespace {

using testing::ManualClock;

constexpr int64_t kStartMs = ManualClock::kUnixStartMs;
constexpr base::Milliseconds kPatience(300'000);  // Only what hangs meets it.

// Reports of one run, in pages of eight. Only what remote write asks for.
class ReportList : public engine::History {
 public:
  void Add(uint64_t n, int64_t arrived) {
    base::MutexLock lock(mutex_);
    reports_.push_back(testing::PlainReport(n));
    arrived_.push_back(arrived);
  }
  void Drop(uint64_t count) {
    base::MutexLock lock(mutex_);
    dropped_ = count;
  }
  std::vector<std::shared_ptr<const engine::RunState>> Runs() {
    base::MutexLock lock(mutex_);
    auto view = std::make_shared<engine::RunState>();
    view->run = "run";
    view->reports_total = reports_.size();
    return {view};
  }
  absl::StatusOr<engine::ReportPage> Reports(const engine::ReportQuery&, const engine::ReportCursor& from) override {
    base::MutexLock lock(mutex_);
    engine::ReportPage page;
    page.run_number = number;
    page.attempt = testing::IdOf(1);
    const uint64_t first = std::max(from.report, dropped_);
    page.reports_lost = first - from.report;
    const uint64_t end = std::min<uint64_t>(reports_.size(), first + 8);
    for (uint64_t i = first; i < end; ++i) {
      page.reports.push_back(reports_[i]);
      page.arrived_unix_ms.push_back(arrived_[i]);
    }
    page.next.report = end;
    page.end = end == reports_.size();
    return page;
  }
  absl::StatusOr<model::Hello> HelloOf(const std::string& run, const model::AttemptId& attempt) override {
    return testing::PlainHello(run, attempt);
  }
  absl::Status ForEachRun(const std::function<absl::Status(engine::StoredRun)>&) override { return absl::OkStatus(); }
  absl::StatusOr<std::optional<engine::ModeWord>> ModeLimit() override { return std::nullopt; }
  absl::StatusOr<std::vector<FindingRow>> Findings(const std::string&) override { return std::vector<FindingRow>(); }
  absl::StatusOr<std::vector<EpisodeRow>> Episodes(const std::string&) override { return std::vector<EpisodeRow>(); }
  absl::StatusOr<std::vector<InterventionRow>> Interventions(const std::string&) override {
    return std::vector<InterventionRow>();
  }
  absl::StatusOr<engine::SeriesData> Series(const engine::SeriesQuery&) override { return engine::SeriesData(); }

  std::atomic<uint64_t> number{1};

 private:
  base::Mutex mutex_;
  std::vector<model::Report> reports_ GYROSTAT_GUARDED_BY(mutex_);
  std::vector<int64_t> arrived_ GYROSTAT_GUARDED_BY(mutex_);
  uint64_t dropped_ GYROSTAT_GUARDED_BY(mutex_) = 0;
};

// Keeps what it took; answers as it is told.
class Endpoint {
 public:
  explicit Endpoint(int port = 0) {
    server_.Post("/api/v1/write", [this](const httplib::Request& request, httplib::Response& response) {
      base::MutexLock lock(mutex_);
      ++requests;
      authorization = request.get_header_value("Authorization");
      response.status = request.body.size() > body_max ? 413 : static_cast<int>(status);
      if (retry_after > 0) response.set_header("Retry-After", std::to_string(retry_after));
      if (response.status != 204) return;
      std::string raw;
      prometheus::WriteRequest message;
      ASSERT_TRUE(snappy::Uncompress(request.body.data(), request.body.size(), &raw));
      ASSERT_TRUE(message.ParseFromString(raw));
      for (const auto& series : message.timeseries())
        if (series.labels(0).value() == "gyrostat_step")
          for (const auto& sample : series.samples()) steps_.emplace_back(sample.value(), sample.timestamp());
    });
    server_.set_keep_alive_timeout(1);
    port_ = port == 0 ? server_.bind_to_any_port("127.0.0.1") : port;
    if (port != 0) {
      EXPECT_TRUE(server_.bind_to_port("127.0.0.1", port));
    }
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();  // A stop before that would be lost.
  }
  ~Endpoint() {
    server_.stop();
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/api/v1/write"; }
  std::vector<std::pair<double, int64_t>> steps() {
    base::MutexLock lock(mutex_);
    return steps_;
  }

  std::atomic<int> status{204}, retry_after{0}, requests{0};
  std::atomic<size_t> body_max{1 << 30};
  std::string authorization;  // Read after Stop.

 private:
  httplib::Server server_;
  int port_ = 0;
  base::Mutex mutex_;
  std::vector<std::pair<double, int64_t>> steps_ GYROSTAT_GUARDED_BY(mutex_);
  std::thread thread_;
};

class RemoteWriteTest : public ::testing::Test {
 protected:
  void Start(const std::string& url, RemoteWriteOptions options = {}) {
    options.endpoint.url = url;
    options.endpoint.timeout = kPatience;  // Given up and sent again, steps would come twice.
    options.poll = base::Milliseconds(5);
    options.backoff_min = base::Milliseconds(5);
    options.backoff_max = base::Milliseconds(20);
    write_ = std::make_unique<RemoteWrite>(
        options,
        RemoteSources{&history_, [this] { return history_.Runs(); },
                      [this](const std::string& run) -> absl::StatusOr<std::string> { return cursors_[run]; },
                      [this](const std::string& run, const std::string& bytes) {
                        cursors_[run] = bytes;
                        return absl::OkStatus();
                      }},
        &probe_, &clock_, kPatience);
    write_->Start();
  }
  void Stop() { write_.reset(); }
  void Add(uint64_t from, uint64_t to) {
    for (uint64_t n = from; n <= to; ++n) history_.Add(n, kStartMs + static_cast<int64_t>(n) * 100);
  }
  template <class Done>
  void WaitUntil(const Done& done) {
    for (int looks = 0; !done(); ++looks) {
      ASSERT_LT(looks, 150'000);
      Rest(std::chrono::milliseconds(2));
    }
  }
  static void Rest(std::chrono::milliseconds time) {
    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, time, [] { return false; });
  }
  // Steps 1 to `last`, each once, in order, at its own time.
  static void ExpectSteps(const std::vector<std::pair<double, int64_t>>& steps, uint64_t last, uint64_t first = 1) {
    ASSERT_EQ(steps.size(), last - first + 1);
    for (uint64_t n = first; n <= last; ++n) {
      EXPECT_EQ(steps[n - first].first, static_cast<double>(n));
      EXPECT_EQ(steps[n - first].second, kStartMs + static_cast<int64_t>(n) * 100);
    }
  }

  ReportList history_;
  std::map<std::string, std::string> cursors_;
  RemoteProbe probe_;
  ManualClock clock_;
  std::unique_ptr<RemoteWrite> write_;
};

TEST_F(RemoteWriteTest, SendsWhatIsThereAndWhatComes) {
  Endpoint endpoint;
  Add(1, 20);
  Start(endpoint.url());
  WaitUntil([&] { return endpoint.steps().size() >= 20; });
  Add(21, 25);
  WaitUntil([&] { return endpoint.steps().size() >= 25; });
  Stop();
  ExpectSteps(endpoint.steps(), 25);
  EXPECT_EQ(probe_.failing.value(), 0);
  EXPECT_EQ(probe_.samples_rejected_total.value(), 0u);
}

TEST_F(RemoteWriteTest, GoesOnWhereItWasAfterARestart) {
  Endpoint endpoint;
  Add(1, 20);
  Start(endpoint.url());
  WaitUntil([&] { return endpoint.steps().size() >= 20; });
  Stop();
  Add(21, 40);
  Start(endpoint.url());
  WaitUntil([&] { return endpoint.steps().size() >= 40; });
  Stop();
  ExpectSteps(endpoint.steps(), 40);
}

TEST_F(RemoteWriteTest, FillsTheGapOfAnEndpointThatWasAway) {
  auto endpoint = std::make_unique<Endpoint>();
  const std::string url = endpoint->url();
  const int port = std::stoi(url.substr(url.find_last_of(':') + 1));
  endpoint.reset();
  Add(1, 30);
  Start(url);
  WaitUntil([&] { return probe_.failing.value() == 1 && probe_.retries_total.value() > 2; });
  Endpoint back(port);
  WaitUntil([&] { return back.steps().size() >= 30; });
  Stop();
  ExpectSteps(back.steps(), 30);
  EXPECT_EQ(probe_.failing.value(), 0);
}

TEST_F(RemoteWriteTest, SendsAgainWhatWasNotTakenAndLosesNothing) {
  for (const int status : {429, 503, 500, 401, 404}) {
    SCOPED_TRACE(status);
    Endpoint endpoint;
    cursors_.clear();
    endpoint.status = status;
    if (history_.Runs()[0]->reports_total == 0) Add(1, 12);
    Start(endpoint.url());
    WaitUntil([&] { return endpoint.requests >= 3; });
    EXPECT_TRUE(endpoint.steps().empty());
    endpoint.status = 204;
    WaitUntil([&] { return endpoint.steps().size() >= 12; });
    Stop();
    ExpectSteps(endpoint.steps(), 12);
  }
  EXPECT_EQ(probe_.samples_rejected_total.value(), 0u);
}

TEST_F(RemoteWriteTest, WaitsAsLongAsTheServerAsks) {
  Endpoint endpoint;
  endpoint.status = 429;
  endpoint.retry_after = 3600;
  Add(1, 5);
  Start(endpoint.url());
  WaitUntil([&] { return probe_.failing.value() == 1; });
  Rest(std::chrono::milliseconds(200));  // Many times backoff_max.
  EXPECT_EQ(endpoint.requests, 1);
  Stop();  // And does not have to be waited for.
}

TEST_F(RemoteWriteTest, DropsAndCountsWhatIsNoGood) {
  Endpoint endpoint;
  endpoint.status = 400;
  Add(1, 8);
  Start(endpoint.url());
  WaitUntil([&] { return probe_.samples_rejected_total.value() > 0; });
  endpoint.status = 204;
  Add(9, 10);
  WaitUntil([&] { return endpoint.steps().size() >= 2; });
  Stop();
  ExpectSteps(endpoint.steps(), 10, 9);
  EXPECT_EQ(probe_.retries_total.value(), 0u);
}

TEST_F(RemoteWriteTest, SendsSmallerBatchesWhereTheyAreTooLarge) {
  Endpoint endpoint;
  endpoint.body_max = 2000;
  Add(1, 64);
  Start(endpoint.url());
  WaitUntil([&] { return endpoint.steps().size() >= 64; });
  Stop();
  ExpectSteps(endpoint.steps(), 64);
  EXPECT_EQ(probe_.samples_rejected_total.value(), 0u);
}

TEST_F(RemoteWriteTest, TimesOfARunRise) {
  Endpoint endpoint;
  for (uint64_t n = 1; n <= 20; ++n) history_.Add(n, kStartMs + 7);  // Sent again after an outage: all at once.
  Start(endpoint.url());
  WaitUntil([&] { return endpoint.steps().size() >= 20; });
  Stop();
  const auto steps = endpoint.steps();
  for (size_t i = 1; i < steps.size(); ++i) EXPECT_GT(steps[i].second, steps[i - 1].second);
  EXPECT_EQ(steps.back().second, kStartMs + 26);
}

TEST_F(RemoteWriteTest, CountsWhatItCannotSend) {
  Endpoint endpoint;
  history_.Add(1, 0);  // Of before times were kept.
  history_.Add(2, kStartMs - 3'600'000 * 25);
  Add(3, 12);
  RemoteWriteOptions options;
  options.max_age_hours = 24;
  Start(endpoint.url(), options);
  WaitUntil([&] { return endpoint.steps().size() >= 10; });
  Stop();
  ExpectSteps(endpoint.steps(), 12, 3);
  EXPECT_EQ(probe_.reports_untimed_total.value(), 1u);
  EXPECT_EQ(probe_.reports_too_old_total.value(), 1u);
  Add(13, 40);
  history_.Drop(30);  // Retention was faster.
  Start(endpoint.url());
  WaitUntil([&] { return endpoint.steps().size() >= 20; });
  Stop();
  EXPECT_EQ(probe_.reports_lost_total.value(), 18u);
}

TEST_F(RemoteWriteTest, AnotherRunOfTheNameIsSentFromItsBeginning) {
  Endpoint endpoint;
  Add(1, 20);
  Start(endpoint.url());
  WaitUntil([&] { return endpoint.steps().size() >= 20; });
  Stop();
  history_.number = 2;
  Start(endpoint.url());
  WaitUntil([&] { return endpoint.steps().size() >= 40; });
  Stop();
  EXPECT_EQ(endpoint.steps().size(), 40u);
  EXPECT_EQ(endpoint.steps()[20].first, 1);
}

TEST_F(RemoteWriteTest, ReadsCredentialsAnewForEachRequest) {
  Endpoint endpoint;
  const testing::TempDir temp;
  RemoteWriteOptions options;
  options.endpoint.token_file = temp.File("token");
  Add(1, 1);
  Start(endpoint.url(), options);
  WaitUntil([&] { return probe_.failing.value() == 1; });  // There is no such file yet.
  EXPECT_EQ(endpoint.requests, 0);
  std::ofstream(options.endpoint.token_file) << "first\n";
  WaitUntil([&] { return endpoint.steps().size() >= 1; });
  Stop();
  EXPECT_EQ(endpoint.authorization, "Bearer first");
  std::ofstream(temp.File("password")) << "secret";
  options.endpoint.token_file.clear();
  options.endpoint.username = "anna";
  options.endpoint.password_file = temp.File("password");
  Add(2, 2);
  Start(endpoint.url(), options);
  WaitUntil([&] { return endpoint.steps().size() >= 2; });
  Stop();
  EXPECT_EQ(endpoint.authorization, "Basic YW5uYTpzZWNyZXQ=");
}

}  // namespace
}  // namespace gyrostat::telemetry
