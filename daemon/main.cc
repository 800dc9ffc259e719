// gyrostatd: flags, signals and the main loop. Everything else is service/.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "config/config.h"
#include "notify/trial.h"
#include "service/file_watch.h"
#include "service/flags.h"
#include "service/own_metrics.h"
#include "service/service.h"

namespace gyrostat::service {
namespace {

// How often the configuration file is looked at.
constexpr timespec kLookInterval{1, 0};

// Keeps freed memory: without this the heap of a process that receives large messages shrinks and grows with each of
// them, which costs a third to a half of gRPC's time.
void KeepHeap() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // The largest that glibc takes.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_TOP_PAD, 64 << 20);
}

// Nothing else may come to stand where this program and its libraries print: a supervisor may have closed all three.
void OpenStandardStreams() {
  for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(each, F_GETFD) < 0) (void)open("/dev/null", O_RDWR);  // Takes the lowest number that is free.
}

// The signals that end or reload the daemon, as a set for sigtimedwait. Blocked before any thread starts, so that no
// other thread gets them.
sigset_t BlockSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int each : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, each);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // A peer that has gone and a file that may not grow are errors of a call, not the end.
  for (const int each : {SIGPIPE, SIGXFSZ}) std::signal(each, SIG_IGN);
  return set;
}

// Ends the process when the drain does not: a disk that hangs must not keep a supervisor waiting. What was acknowledged
// is durable by then; the rest is sent again.
class DrainLimit {
 public:
  DrainLimit() : thread_([this] { Watch(); }) {}
  ~DrainLimit() {
    {
      base::MutexLock lock(mutex_);
      done_ = true;
    }
    changed_.NotifyAll();
    thread_.join();
  }

 private:
  void Watch() {
    const base::MonotonicTime deadline = base::SystemClock().Now() + kDrainMax;
    base::MutexLock lock(mutex_);
    while (!done_ && base::SystemClock().Now() < deadline) changed_.WaitUntil(mutex_, deadline);
    if (done_) return;
    base::LogWarn("not drained in time, leaving; what was not acknowledged is sent again");
    _exit(kExitDone);
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  bool done_ GYROSTAT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

int Serve(const Flags& flags, const config::Config& config, FileWatch watch, const sigset_t& signals) {
  absl::StatusOr<std::unique_ptr<Service>> service = Service::Start(config, GYROSTAT_VERSION, &base::SystemClock());
  if (!service.ok()) {
    std::cerr << "gyrostatd: " << service.status().message() << "\n";
    return kExitRefused;
  }
  std::cout << "gyrostatd ready grpc=" << (*service)->endpoints().grpc << " http=" << (*service)->endpoints().http
            << std::endl;
  while (true) {
    const int signal = sigtimedwait(&signals, nullptr, &kLookInterval);
    if (signal == SIGTERM || signal == SIGINT) {
      base::LogInfo("stopping", {{"signal", signal == SIGTERM ? "SIGTERM" : "SIGINT"}});
      const DrainLimit limit;
      (*service)->Drain();
      return kExitDone;
    }
    if (signal == SIGHUP) watch.SetKnown();
    if (signal == SIGHUP || watch.Changed()) (*service)->Reload(LoadConfig(flags));
  }
}

// One line for each webhook. Done only if every one took its message.
int TestNotify(const config::Config& config) {
  if (config.notify.webhooks.empty()) {
    std::cerr << "gyrostatd: the configuration has no notify.webhooks\n";
    return kExitRefused;
  }
  int code = kExitDone;
  for (const notify::Trial& each :
       notify::TryWebhooks(config.notify, "gyrostatd/" GYROSTAT_VERSION, base::SystemClock())) {
    std::cout << each.webhook << ": " << (each.result.taken() ? "taken" : "not taken: " + each.result.error) << "\n";
    if (!each.result.taken()) code = kExitRefused;
  }
  return code;
}

int Main(const std::vector<std::string>& args) {
  OpenStandardStreams();
  const ParsedFlags parsed = ParseFlags(args, GYROSTAT_VERSION);
  if (!parsed.flags) {
    std::cout << parsed.out;
    std::cerr << parsed.err;
    return parsed.exit_code;
  }
  const Flags& flags = *parsed.flags;
  if (flags.task == Task::kListMetrics) return std::cout << ListAllMetrics(), kExitDone;
  if (flags.task == Task::kPrintDefaultConfig) return std::cout << config::DefaultYaml(), kExitDone;
  FileWatch watch(flags.config_file);  // Looks before the file is read: a change in between is seen.
  const absl::StatusOr<config::Config> config = LoadConfig(flags);
  if (!config.ok()) {
    std::cerr << config.status().message() << "\n";
    return kExitRefused;
  }
  if (flags.task == Task::kCheck) {
    std::cout << (flags.config_file.empty() ? "the default configuration" : flags.config_file) << ": valid\n";
    return kExitDone;
  }
  if (flags.task == Task::kTestNotify) return TestNotify(*config);
  KeepHeap();
  const sigset_t signals = BlockSignals();
  return Serve(flags, *config, std::move(watch), signals);
}

}  // namespace
}  // namespace gyrostat::service

int main(int argc, char** argv) { return gyrostat::service::Main({argv + 1, argv + argc}); }
