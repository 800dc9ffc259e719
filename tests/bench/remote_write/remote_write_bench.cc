// Catching up from a real store to a server on loopback that reads and says yes: chunks are read and unpacked, samples
// built, packed and posted. The figure is samples for a second of processor time of this process, the server's share in
// it included; the gate is 100,000.
#include <httplib.h>
#include <sys/resource.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "base/clock.h"
#include "store/store.h"
#include "support/journal_entries.h"
#include "telemetry/remote_write.h"

namespace gyrostat {
namespace {

constexpr double kGate = 100'000;
constexpr uint32_t kLayers = 128, kHeads = 128;
constexpr uint64_t kReports = 128;

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void Fill(store::Store* store) {
  const int64_t now = base::SystemClock().UnixMs();
  engine::JournalEntry hello = testing::HelloEntry("run", 1, testing::IdOf(1));
  hello.hello->model.layers = kLayers;
  hello.hello->model.heads = kHeads;
  testing::AppendAndWait(store, hello);
  std::mt19937 random(1);
  std::normal_distribution<float> noise(0, 0.1f);
  for (uint64_t n = 1; n <= kReports; ++n) {
    model::Report report = testing::PlainReport(n);
    report.MutableArray(model::Signal::kAttnLogitMax).resize(size_t{kLayers} * kHeads);
    for (float& value : report.MutableArray(model::Signal::kAttnLogitMax)) value = 8 + noise(random);
    engine::JournalEntry entry = testing::PlainEntry("run", 1, testing::IdOf(1));
    entry.at.unix_ms = now + static_cast<int64_t>(n);
    entry.event = engine::Encode({entry.at, engine::ReportEvent{testing::IdOf(1), report}});
    if (n % 64 == 0) entry.snapshot = "s";
    testing::AppendAndWait(store, std::move(entry));
  }
}

int Run(const std::string& folder) {
  auto store = store::Store::Open({.data_dir = folder});
  if (!store.ok()) return std::fprintf(stderr, "%s\n", std::string(store.status().message()).c_str()), 1;
  Fill(store->get());
  httplib::Server server;
  server.Post("/write", [](const httplib::Request&, httplib::Response& response) { response.status = 204; });
  const int port = server.bind_to_any_port("127.0.0.1");
  std::thread serving([&server] { server.listen_after_bind(); });
  telemetry::RemoteWriteOptions options;
  options.endpoint.url = "http://127.0.0.1:" + std::to_string(port) + "/write";
  telemetry::RemoteProbe probe;
  std::map<std::string, std::string> cursors;
  std::mutex mutex;
  std::condition_variable moved;  // A cursor has.
  const auto runs = [] {
    auto view = std::make_shared<engine::RunState>();
    view->run = "run";
    view->reports_total = kReports;
    return std::vector<std::shared_ptr<const engine::RunState>>{view};
  };
  const double before = CpuSeconds();
  {
    telemetry::RemoteWrite write(
        options,
        {store->get(), runs, [&](const std::string& run) -> absl::StatusOr<std::string> { return cursors[run]; },
         [&](const std::string& run, const std::string& bytes) {
           const std::lock_guard lock(mutex);
           cursors[run] = bytes;
           moved.notify_one();
           return absl::OkStatus();
         }},
        &probe, &base::SystemClock());
    write.Start();
    const uint64_t wanted = kReports * kLayers * kHeads;
    std::unique_lock lock(mutex);
    moved.wait_for(lock, std::chrono::minutes(1), [&] { return probe.samples_total.value() >= wanted; });
  }
  const double seconds = CpuSeconds() - before;
  const auto samples = static_cast<double>(probe.samples_total.value());
  server.stop();
  serving.join();
  const double rate = samples / seconds;
  std::printf("remote write: %.0f samples, %.2f s of CPU, %.0f samples a CPU second (gate %.0f), %.1f bytes a sample\n",
              samples, seconds, rate, kGate, static_cast<double>(probe.bytes_total.value()) / samples);
  return rate >= kGate && samples >= static_cast<double>(kReports * kLayers * kHeads) ? 0 : 1;
}

}  // namespace
}  // namespace gyrostat

int main() {
  std::string folder = (std::filesystem::temp_directory_path() / "gyrostat-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return std::perror(folder.c_str()), 1;
  const int result = gyrostat::Run(folder);
  std::filesystem::remove_all(folder);
  return result;
}
