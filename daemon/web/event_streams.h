// Server-sent events: browsers that follow a run, all on one thread.
//
// Ingestion never waits for them: the thread looks at the published copies (engine/views.h) when a stream's time has
// come and sends what is newest then; what came between is skipped, never queued. A stream holds at most one event that
// is not taken yet. Streams of one run share one rendered text.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/views.h"
#include "web/probe.h"

namespace gyrostat::web {

struct EventStreamsOptions {
  size_t streams_max = 32;                   // More are refused.
  base::Milliseconds take_timeout{5000};     // A reader that takes nothing of an event for so long is cut off.
  base::Milliseconds heartbeat{10000};       // A comment, where nothing changed for so long: finds peers that are gone.
};
inline constexpr base::Milliseconds kEventIntervalMin{50}, kEventIntervalMax{60000};

// Thread-safe.
class EventStreams {
 public:
  using Find = std::function<absl::StatusOr<std::shared_ptr<const engine::RunState>>(const std::string& run)>;

  // `probe` and `clock` outlive it; `find` must not block.
  EventStreams(EventStreamsOptions options, Find find, Probe* probe, const base::Clock* clock);
  ~EventStreams();  // Stops.

  // A place among the streams, kept until its last copy goes; null when all are taken.
  std::shared_ptr<void> Reserve();
  // Sends the run's newest state at once, then whenever it has changed, at most once in `interval`, until the peer goes
  // or the run is no longer known. Owns `socket`, which does not block.
  void Add(int socket, const std::string& run, base::Milliseconds interval, std::shared_ptr<void> place);

  // Closes all. Idempotent.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gyrostat::web
