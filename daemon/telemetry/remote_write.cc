#include "telemetry/remote_write.h"

#include <snappy.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include "base/archive.h"
#include "base/log.h"
#include "base/mutex.h"
#include "prometheus/remote_write.pb.h"
#include "telemetry/remote_batch.h"

namespace gyrostat::telemetry {
namespace {

constexpr size_t kBatchSamplesMin = 100;  // Where a smaller batch is too large too, it is dropped.
constexpr int64_t kHourMs = 3'600'000;
const std::vector<std::string> kHeaders = {"Content-Type: application/x-protobuf", "Content-Encoding: snappy",
                                           "X-Prometheus-Remote-Write-Version: 0.1.0"};

// Where the sending of a run stands.
struct Cursor {
  uint64_t run_number = 0;
  uint64_t report = 0;       // engine::ReportCursor.
  int64_t last_unix_ms = 0;  // The newest time that was sent.
  template <class Archive>
  void Fields(Archive& a) { a(run_number, report, last_unix_ms); }
};

struct RunToSend {
  std::optional<Cursor> cursor;
  uint64_t seen_reports = 0;  // The run's total when its end was last reached.
  bool at_end = false;
  model::AttemptId attempt;   // Of `spec`.
  std::optional<model::ModelSpec> spec;
};

enum class Delivery { kTaken, kRejected, kTooLarge, kStopped };

bool IsAboutTheBatch(int status) { return status == 400 || status == 409 || status == 422; }

}  // namespace

struct RemoteWrite::Impl {
  Impl(RemoteWriteOptions o, RemoteSources s, RemoteProbe* p, const base::Clock* k, base::Milliseconds g)
      : options(std::move(o)),
        sources(std::move(s)),
        probe(p),
        clock(k),
        grace(g),
        signals(options.signals.begin(), options.signals.end()),
        batch_samples(options.batch_samples),
        http(options.endpoint, &abort) {}

  void Loop() {
    Follow();
    {
      base::MutexLock lock(mutex);
      over = true;
    }
    changed.NotifyAll();
  }

  void Follow() {
    while (!stop) {
      bool worked = false;
      int64_t oldest_ms = 0;
      for (const auto& view : sources.runs()) {
        if (stop) return;
        worked |= SendSome(*view);
        const RunToSend& run = to_send[view->run];
        if (!run.at_end && run.cursor && run.cursor->last_unix_ms > 0 &&
            (oldest_ms == 0 || run.cursor->last_unix_ms < oldest_ms))
          oldest_ms = run.cursor->last_unix_ms;
      }
      probe->lag_milliseconds.Set(oldest_ms == 0 ? 0 : std::max<int64_t>(0, clock->UnixMs() - oldest_ms));
      if (!worked) Wait(options.poll);
    }
  }

  // One page of the run. False: there was nothing to do, or it cannot be done now.
  bool SendSome(const engine::RunState& view) {
    RunToSend& run = to_send[view.run];
    if (run.at_end && run.seen_reports == view.reports_total) return false;
    if (!run.cursor && !LoadCursor(view.run, &run)) return false;
    const uint64_t total = view.reports_total;  // Before the read: what comes after it is looked for again.
    absl::StatusOr<engine::ReportPage> page = ReadPage(view.run, &run);
    if (!page.ok()) return Fail("history cannot be read for remote write", view.run, page.status());
    probe->reports_lost_total.Add(page->reports_lost);
    if (!page->reports.empty() && (!run.spec || run.attempt != page->attempt)) {
      const absl::StatusOr<model::Hello> hello = sources.history->HelloOf(view.run, page->attempt);
      if (!hello.ok() && !absl::IsNotFound(hello.status()))
        return Fail("history cannot be read for remote write", view.run, hello.status());
      run.spec = hello.ok() ? hello->model : model::ModelSpec();
      run.attempt = page->attempt;
    }
    const bool moved = run.cursor->report != page->next.report;
    if (!SendPage(view.run, *page, &run)) return false;
    run.at_end = page->end;
    run.seen_reports = total;
    return moved;
  }

  absl::StatusOr<engine::ReportPage> ReadPage(const std::string& name, RunToSend* run) {
    engine::ReportQuery query;
    query.run = name;
    absl::StatusOr<engine::ReportPage> page = sources.history->Reports(query, {run->cursor->report});
    if (!page.ok() || page->run_number == run->cursor->run_number) return page;
    // Another run bears the name now. Its times go on from the old one's: the series are the same.
    *run->cursor = {page->run_number, 0, run->cursor->last_unix_ms};
    return sources.history->Reports(query, {});
  }

  bool LoadCursor(const std::string& name, RunToSend* run) {
    const absl::StatusOr<std::string> bytes = sources.load(name);
    if (!bytes.ok()) return Fail("cursor of remote write cannot be read", name, bytes.status());
    Cursor cursor;
    base::ByteReader in(*bytes);
    if (!bytes->empty() && !base::LoadFrom(&in, &cursor))
      return Fail("cursor of remote write cannot be read", name, absl::DataLossError("foreign bytes"));
    run->cursor = cursor;
    return true;
  }

  // False: stopped before the end. The cursor stands behind what was sent.
  bool SendPage(const std::string& name, const engine::ReportPage& page, RunToSend* run) {
    std::vector<model::Report> reports;
    std::vector<int64_t> times;
    const uint64_t first = page.next.report - std::min<uint64_t>(page.next.report, page.reports.size());
    const int64_t too_old = clock->UnixMs() - options.max_age_hours * kHourMs;
    size_t at = 0;
    while (at < page.reports.size()) {
      if (page.arrived_unix_ms[at] == 0 || page.arrived_unix_ms[at] < too_old) {
        (page.arrived_unix_ms[at] == 0 ? probe->reports_untimed_total : probe->reports_too_old_total).Add();
        ++at;
        continue;
      }
      size_t end = at;
      while (end < page.reports.size() && page.arrived_unix_ms[end] >= std::max<int64_t>(too_old, 1)) ++end;
      const BatchOf of{name, *run->spec, signals};
      const std::span<const model::Report> rest(page.reports.data() + at, end - at);
      const size_t count = BatchSize(of, rest, batch_samples);
      times.clear();
      int64_t last = run->cursor->last_unix_ms;
      for (size_t i = 0; i < count; ++i) times.push_back(last = std::max(last + 1, page.arrived_unix_ms[at + i]));
      if (!SendBatch(of, rest.first(count), times)) return false;
      at += count;
      if (!Move(name, run, first + at, last)) return false;
    }
    return run->cursor->report == page.next.report || Move(name, run, page.next.report, run->cursor->last_unix_ms);
  }

  bool Move(const std::string& name, RunToSend* run, uint64_t report, int64_t last_unix_ms) {
    const Cursor cursor{run->cursor->run_number, report, last_unix_ms};
    base::ByteWriter out;
    base::SaveTo(&out, cursor);
    // In memory it moves anyway: a disk that is full must not send everything again and again.
    *run->cursor = cursor;
    if (const absl::Status saved = sources.save(name, out.bytes()); !saved.ok())
      (void)Fail("cursor of remote write cannot be kept, a restart sends again what follows it", name, saved);
    return true;
  }

  // False: stopped.
  bool SendBatch(const BatchOf& of, std::span<const model::Report> reports, std::span<const int64_t> times) {
    for (;;) {
      Delivery last = Delivery::kTaken;
      ForEachRequest(of, reports, times, batch_samples, [&](const prometheus::WriteRequest& request, size_t samples) {
        last = Deliver(of.run, request, samples);
        return last == Delivery::kTaken || last == Delivery::kRejected;
      });
      if (last == Delivery::kStopped) return false;
      if (last != Delivery::kTooLarge) return true;
      batch_samples = std::max<size_t>(kBatchSamplesMin, batch_samples / 2);
      base::LogWarn("remote write: batches are too large for the endpoint", {{"batch_samples", batch_samples}});
    }
  }

  Delivery Deliver(const std::string& run, const prometheus::WriteRequest& request, size_t samples) {
    raw.clear();
    request.SerializeToString(&raw);
    snappy::Compress(raw.data(), raw.size(), &packed);
    base::Milliseconds backoff = options.backoff_min;
    for (bool again = false; !stop; again = true) {
      if (again) probe->retries_total.Add();
      const post::PostResult result = http.Post(packed, kHeaders);
      if (result.taken()) {
        probe->samples_total.Add(samples);
        probe->requests_total.Add();
        probe->bytes_total.Add(packed.size());
        TellEndpoint("");
        return Delivery::kTaken;
      }
      if (result.status == 413 && batch_samples > kBatchSamplesMin) return Delivery::kTooLarge;
      if (IsAboutTheBatch(result.status) || result.status == 413) {
        if (probe->samples_rejected_total.value() == 0 || !rejecting)
          base::LogWarn("remote write: the endpoint calls samples no good, they are dropped",
                        {{"run", run}, {"samples", samples}, {"reason", result.error}});
        rejecting = true;
        probe->samples_rejected_total.Add(samples);
        return Delivery::kRejected;
      }
      if (stop) break;
      TellEndpoint(result.error);
      Wait(result.retry_after.count() > 0 ? result.retry_after : Jittered(backoff));
      backoff = std::min(backoff * 2, options.backoff_max);
    }
    return Delivery::kStopped;
  }

  // Only when it changes: one line for an outage.
  void TellEndpoint(const std::string& error) {
    const bool was_failing = probe->failing.value() == 1;
    if (error.empty()) rejecting = false;
    if (!error.empty() && !was_failing)
      base::LogWarn("remote write: the endpoint takes nothing, the history waits for it", {{"reason", error}});
    if (error.empty() && was_failing) base::LogInfo("remote write: the endpoint takes samples again", {});
    probe->failing.Set(error.empty() ? 0 : 1);
  }

  bool Fail(const char* what, const std::string& run, const absl::Status& status) {
    if (probe->history_failures_total.value() == 0 || clock->Now() >= quiet_until) {
      base::LogWarn(what, {{"run", run}, {"reason", std::string(status.message())}});
      quiet_until = clock->Now() + base::Milliseconds(60'000);
    }
    probe->history_failures_total.Add();
    return false;
  }

  // Many daemons must not come back at the same moment.
  base::Milliseconds Jittered(base::Milliseconds wait) {
    std::uniform_real_distribution<double> share(0.75, 1.25);
    return base::Milliseconds(static_cast<int64_t>(static_cast<double>(wait.count()) * share(random)));
  }

  void Wait(base::Milliseconds wait) {
    const base::MonotonicTime until = base::SystemClock().Now() + wait;
    base::MutexLock lock(mutex);
    while (!stop && base::SystemClock().Now() < until) changed.WaitUntil(mutex, until);
  }

  const RemoteWriteOptions options;
  const RemoteSources sources;
  RemoteProbe* const probe;
  const base::Clock* const clock;
  const base::Milliseconds grace;
  const std::set<model::Signal> signals;
  std::atomic<bool> stop{false};
  std::atomic<bool> abort{false};  // Of the request under way.
  base::Mutex mutex;
  bool over GYROSTAT_GUARDED_BY(mutex) = false;  // The thread has nothing more to do.
  base::CondVar changed;
  // Of the thread.
  size_t batch_samples;
  post::HttpPost http;
  std::map<std::string, RunToSend> to_send;
  std::string raw, packed;
  bool rejecting = false;
  base::MonotonicTime quiet_until;
  std::minstd_rand random{std::random_device()()};
  std::thread thread;
};

RemoteWrite::RemoteWrite(RemoteWriteOptions options, RemoteSources sources, RemoteProbe* probe,
                         const base::Clock* clock, base::Milliseconds grace)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(sources), probe, clock, grace)) {}

RemoteWrite::~RemoteWrite() { Stop(); }

void RemoteWrite::Start() {
  if (impl_->options.endpoint.url.empty()) return;
  impl_->thread = std::thread([impl = impl_.get()] { impl->Loop(); });
}

void RemoteWrite::Stop() {
  {
    base::MutexLock lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->changed.NotifyAll();
  if (!impl_->thread.joinable()) return;
  {
    const base::MonotonicTime until = base::SystemClock().Now() + impl_->grace;
    base::MutexLock lock(impl_->mutex);
    while (!impl_->over && base::SystemClock().Now() < until) impl_->changed.WaitUntil(impl_->mutex, until);
  }
  impl_->abort = true;
  impl_->thread.join();
}

}  // namespace gyrostat::telemetry
