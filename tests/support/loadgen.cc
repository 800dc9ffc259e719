// gyrostat-loadgen: many synthetic runs against one daemon, each on a stream of its own. For tests and benches.
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gyrostat/v1/report.grpc.pb.h"
#include "support/synthetic_run.h"

namespace gyrostat::testing {
namespace {

struct LoadOptions {
  std::string address = "127.0.0.1:7431";
  std::string prefix = "load";
  std::string scenario = "calm";
  uint32_t runs = 1, layers = 4, heads = 8, kv_heads = 0;
  uint64_t steps = 200;
  double rate_per_second = 0;
  uint32_t window_reports = 64;
  uint64_t seed = 1;
  std::vector<std::string> allow;
  bool no_bye = false;
  uint32_t limit_seconds = 900;
};

std::atomic<bool> end_early{false};  // Set by a signal.

// One run on one stream. Writes on the caller's thread, reads on its own.
class Feeder {
 public:
  Feeder(const LoadOptions& options, SyntheticOptions synthetic)
      : options_(options), run_(synthetic), name_(synthetic.run), stub_(v1::ReportService::NewStub(Connect(options))) {
    context_.set_deadline(gpr_time_from_seconds(options.limit_seconds, GPR_TIMESPAN));
    context_.set_wait_for_ready(true);
    stream_ = stub_->Stream(&context_);
  }

  // Blocks until the run is over; prints one line of JSON. True when every report was acknowledged.
  bool Drive() {
    v1::ClientMessage message;
    *message.mutable_hello() = run_.MakeHello();
    bool open = stream_->Write(message);
    std::thread reader([this] { Read(); });
    const base::MonotonicTime start = base::SystemClock().Now();
    for (uint64_t i = 0; open && i < options_.steps && !end_early; ++i)
      open = WaitForTurn(start, i) && SendOrdersAndReport();
    if (open && WaitForAcknowledged(run_.reports()) && !options_.no_bye) {
      message.mutable_bye()->set_reason("the synthetic run is over");
      stream_->Write(message);
    }
    const double seconds = std::chrono::duration<double>(base::SystemClock().Now() - start).count();
    stream_->WritesDone();
    if (options_.no_bye) context_.TryCancel();  // Otherwise the daemon's own last word is wanted.
    reader.join();
    const grpc::Status status = stream_->Finish();
    Print(seconds, status);
    return Complete();
  }

 private:
  // A connection of its own, as every job has; keepalive frees a write to a daemon that was stopped.
  static std::shared_ptr<grpc::Channel> Connect(const LoadOptions& options) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
    return grpc::CreateCustomChannel(options.address, grpc::InsecureChannelCredentials(), arguments);
  }

  void Read() {
    v1::DaemonMessage message;
    while (stream_->Read(&message)) {
      const std::lock_guard lock(mutex_);
      if (message.has_welcome()) welcome_ = true;
      if (message.has_acknowledged()) TakeAcknowledged(message.acknowledged().sequence());
      if (message.has_order()) orders_.push_back(message.order());
      if (message.has_local_clip()) local_clips_.push_back(message.local_clip());
      changed_.notify_all();
    }
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  // Under mutex_. One acknowledgement may be for several reports.
  void TakeAcknowledged(uint64_t sequence) {
    const base::MonotonicTime now = base::SystemClock().Now();
    for (uint64_t i = acknowledged_; i < sequence && i < sent_.size(); ++i)
      latencies_ms_.push_back(std::chrono::duration<double, std::milli>(now - sent_[i]).count());
    acknowledged_ = sequence;
  }

  // Of the times from sending a report to its acknowledgement, which comes once it is durable.
  double LatencyMs(double share) {
    const std::lock_guard lock(mutex_);
    if (latencies_ms_.empty()) return 0;
    const size_t at = std::min(latencies_ms_.size() - 1,
                               static_cast<size_t>(share * static_cast<double>(latencies_ms_.size())));
    std::nth_element(latencies_ms_.begin(), latencies_ms_.begin() + static_cast<ptrdiff_t>(at), latencies_ms_.end());
    return latencies_ms_[at];
  }

  // Keeps to the rate and to the window of unacknowledged reports. False: the stream is closed.
  bool WaitForTurn(base::MonotonicTime start, uint64_t report) {
    std::unique_lock lock(mutex_);
    if (options_.rate_per_second > 0) {
      const std::chrono::duration<double> offset(static_cast<double>(report) / options_.rate_per_second);
      const auto turn = start + std::chrono::duration_cast<base::MonotonicTime::duration>(offset);
      changed_.wait_until(lock, turn, [this] { return closed_; });
    }
    changed_.wait(lock, [this] { return closed_ || run_.reports() - acknowledged_ < options_.window_reports; });
    return !closed_;
  }

  bool SendOrdersAndReport() {
    std::vector<v1::Order> orders;
    std::vector<v1::LocalClip> local_clips;
    {
      const std::lock_guard lock(mutex_);
      orders.swap(orders_);
      local_clips.swap(local_clips_);
    }
    for (const v1::Order& order : orders)
      if (!SendAck(run_.Obey(order))) return false;
    for (const v1::LocalClip& order : local_clips)
      if (!SendAck(run_.Obey(order))) return false;
    run_.NextReport(report_.mutable_report());
    {
      const std::lock_guard lock(mutex_);
      sent_.push_back(base::SystemClock().Now());
    }
    return stream_->Write(report_);
  }

  bool SendAck(const v1::Ack& ack) {
    ++orders_seen_;
    if (ack.outcome() == v1::Ack::APPLIED) ++orders_applied_;
    v1::ClientMessage message;
    *message.mutable_ack() = ack;
    return stream_->Write(message);
  }

  bool WaitForAcknowledged(uint64_t sequence) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || acknowledged_ >= sequence; });
    return acknowledged_ >= sequence;
  }

  bool Complete() {
    const std::lock_guard lock(mutex_);
    return welcome_ && acknowledged_ >= run_.reports() && (run_.reports() == options_.steps || end_early);
  }

  void Print(double seconds, const grpc::Status& status) {
    std::printf("{\"run\":\"%s\",\"reports\":%llu,\"acknowledged\":%llu,\"orders\":%llu,\"orders_applied\":%llu,"
                "\"peak_logit\":%.9g,\"last_logit\":%.9g,\"seconds\":%.6f,\"acknowledged_p50_ms\":%.4f,"
                "\"acknowledged_p99_ms\":%.4f,\"status_code\":%d}\n",
                name_.c_str(), static_cast<unsigned long long>(run_.reports()),
                static_cast<unsigned long long>(acknowledged_), static_cast<unsigned long long>(orders_seen_),
                static_cast<unsigned long long>(orders_applied_), static_cast<double>(run_.peak_logit()),
                static_cast<double>(run_.last_logit()), seconds, LatencyMs(0.5), LatencyMs(0.99),
                static_cast<int>(status.error_code()));
    std::fflush(stdout);
    if (!Complete()) std::fprintf(stderr, "gyrostat-loadgen: %s: %s\n", name_.c_str(), status.error_message().c_str());
  }

  const LoadOptions& options_;
  SyntheticRun run_;
  const std::string name_;
  const std::unique_ptr<v1::ReportService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ClientMessage, v1::DaemonMessage>> stream_;
  v1::ClientMessage report_;
  uint64_t orders_seen_ = 0, orders_applied_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool welcome_ = false, closed_ = false;  // These and below: under mutex_.
  uint64_t acknowledged_ = 0;
  std::vector<base::MonotonicTime> sent_;  // By sequence, from 1.
  std::vector<double> latencies_ms_;
  std::vector<v1::Order> orders_;
  std::vector<v1::LocalClip> local_clips_;
};

std::string RandomAttempt() {
  std::random_device device;
  std::string bytes(16, '\0');
  for (char& byte : bytes) byte = static_cast<char>(device());
  return bytes;
}

int Run(const LoadOptions& options, Scenario scenario) {
  std::vector<std::unique_ptr<Feeder>> feeders;
  for (uint32_t i = 0; i < options.runs; ++i) {
    SyntheticOptions synthetic;
    synthetic.run = options.runs == 1 ? options.prefix : options.prefix + "-" + std::to_string(i);
    synthetic.attempt = RandomAttempt();
    synthetic.layers = options.layers;
    synthetic.heads = options.heads;
    synthetic.kv_heads = options.kv_heads;
    synthetic.scenario = scenario;
    synthetic.seed = options.seed + i;
    synthetic.allow = options.allow;
    feeders.push_back(std::make_unique<Feeder>(options, synthetic));
  }
  std::vector<char> complete(feeders.size(), 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < feeders.size(); ++i)
    threads.emplace_back([&, i] { complete[i] = feeders[i]->Drive() ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  for (const char each : complete)
    if (each == 0) return 1;
  return 0;
}

}  // namespace
}  // namespace gyrostat::testing

int main(int argc, char** argv) {
  gyrostat::testing::LoadOptions options;
  CLI::App app{"Feeds synthetic runs to a gyrostatd and prints one line of JSON per run.\n"
               "SIGTERM: the runs are over with the step that they are at.\n"
               "Exit code: 0 when every report was acknowledged, else 1.", "gyrostat-loadgen"};
  app.add_option("--address", options.address, "Daemon's gRPC address")->capture_default_str();
  app.add_option("--run", options.prefix, "Name; with several runs NAME-0, NAME-1, ...")->capture_default_str();
  app.add_option("--runs", options.runs, "Runs at once")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--scenario", options.scenario, "What the runs do")
      ->check(CLI::IsMember({"calm", "spike", "runaway", "nonfinite", "strained"}))->capture_default_str();
  app.add_option("--layers", options.layers, "Layers")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--heads", options.heads, "Query heads")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--kv-heads", options.kv_heads, "Key heads; 0: as many as heads")->capture_default_str();
  app.add_option("--steps", options.steps, "Reports per run")->capture_default_str();
  app.add_option("--rate", options.rate_per_second, "Reports a second and run; 0: as fast as they are acknowledged")
      ->capture_default_str();
  app.add_option("--window", options.window_reports, "Unacknowledged reports at most")
      ->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the noise; run i takes seed + i")->capture_default_str();
  app.add_option("--allow", options.allow, "Kinds the job permits, e.g. qk_clip");
  app.add_flag("--no-bye", options.no_bye, "Break the streams instead of ending the runs");
  app.add_option("--limit", options.limit_seconds, "Seconds after which a stream gives up")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGTERM, [](int) { gyrostat::testing::end_early = true; });
  return gyrostat::testing::Run(options, *gyrostat::testing::ScenarioOf(options.scenario));
}
