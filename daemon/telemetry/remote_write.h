// Sends every value that was reported to an engine of time series (VictoriaMetrics, Mimir, Thanos, Prometheus) by
// remote write.
//
// The history is the queue. One thread reads reports from it, run by run, in the order of their arrival, and moves a
// cursor that is kept on disk; ingestion knows nothing of it and cannot be slowed by it. An endpoint that is away, or a
// daemon that was, only means that the cursor stands further back. Memory is bounded by one page of reports and one
// request.
//
//   2xx                          Taken: the cursor moves.
//   400, 409, 422                The batch is no good, and would not be later: dropped and counted.
//   413                          Sent again in halves; dropped and counted when it cannot be smaller.
//   all else, and no answer      Sent again, after `Retry-After` or a wait that doubles up to backoff_max. Wrong
//                                credentials are among these: the history waits until they are right.
//
// Times are those of arrival, moved by single milliseconds where reports of a run came in the same one, so that times
// of a run rise. What was sent and not yet noted when the daemon was killed is sent again with the same times and
// values: engines take that for one sample (VictoriaMetrics with -dedup.minScrapeInterval=1ms).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/ports.h"
#include "engine/views.h"
#include "model/signal.h"
#include "post/http_post.h"
#include "telemetry/probe.h"

namespace gyrostat::telemetry {

struct RemoteWriteOptions {
  post::Target endpoint;                 // Empty url: nothing is sent.
  std::vector<model::Signal> signals;    // Empty: all of them, and user scalars (kNone).
  uint32_t batch_samples = 20'000;       // In one request, at most. [100, 200000].
  base::Milliseconds poll{1000};         // How soon a new report is looked for.
  base::Milliseconds backoff_min{500}, backoff_max{30'000};
  uint32_t max_age_hours = 336;          // Reports that came earlier are not sent any more: passed over and counted.
};

// What main.cc plugs in. All pointers outlive the RemoteWrite.
struct RemoteSources {
  engine::History* history;
  std::function<std::vector<std::shared_ptr<const engine::RunState>>()> runs;
  // The cursors: bytes by run. Thread-safe or not: called on one thread. Saved bytes survive the end of the process.
  std::function<absl::StatusOr<std::string>(const std::string& run)> load;  // Empty: there is none.
  std::function<absl::Status(const std::string& run, const std::string& bytes)> save;
};

class RemoteWrite {
 public:
  static constexpr base::Milliseconds kGrace{1000};  // Of the daemon: a supervisor waits for its end.

  // `grace`: of a stop.
  RemoteWrite(RemoteWriteOptions options, RemoteSources sources, RemoteProbe* probe, const base::Clock* clock,
              base::Milliseconds grace = kGrace);
  ~RemoteWrite();  // Stops.

  void Start();
  // Sends nothing new. A request under way gets `grace`, so that what the endpoint has taken is noted and not sent
  // again after a restart; then it is ended. Idempotent.
  void Stop();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace gyrostat::telemetry
