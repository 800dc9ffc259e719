// Tells webhooks what the journal has kept: the thread that turns changes into notices, keeps each webhook's queue on
// disk, and hands messages to the couriers.
//
//   Tap (journal's thread) ─ Tell ─► Notifier's thread: Seen per run ─► HookQueue per webhook ─► Courier (own thread)
//                                        ▲ History after a restart            ▲ └── answer ──────────┘
//
// At least once: a change is written by the journal before it is told of; a queue is written before what made it is
// noted as seen; a notice leaves the disk after the webhook's 2xx. A kill between answer and note posts the message
// again, with the same ids. At a start, and where changes came faster than this thread took them, the history says what
// was missed. Lost is only what a full queue drops or a webhook refuses: both are counted.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/ports.h"
#include "engine/views.h"
#include "notify/change.h"
#include "notify/probe.h"
#include "notify/webhook.h"

namespace gyrostat::notify {

// What service/ plugs in. All pointers outlive the Notifier.
struct Sources {
  engine::History* history;
  std::function<std::vector<std::shared_ptr<const engine::RunState>>()> runs;
  // Small values by name that survive the end of the process. Called on the notifier's thread.
  std::function<absl::StatusOr<std::string>(const std::string& name)> load;  // Empty: there is none.
  std::function<absl::Status(const std::string& name, const std::string& bytes)> save;
  std::string user_agent;  // "gyrostatd/0.1.0".
};

class Notifier {
 public:
  static constexpr base::Milliseconds kGrace{1000};  // Of the daemon: a supervisor waits for its end.

  // `clock`: of the signatures' times. Waits are real. `grace`: of a stop.
  Notifier(NotifyOptions options, Sources sources, Probe* probe, const base::Clock* clock,
           base::Milliseconds grace = kGrace);
  ~Notifier();  // Stops.

  // Once stored runs are back. Before it, Tell only gathers.
  void Start();

  // Something durable. Thread-safe, never blocks on disk or network: beyond kChangesMax that wait, the run's history is
  // read instead.
  void Tell(Change change);
  static constexpr size_t kChangesMax = 4096;

  // Takes effect soon. A webhook that keeps its name keeps its queue. Thread-safe.
  void SetOptions(NotifyOptions options);

  // Begins to end: what waits is tried once, without gathering, for `grace` at most. Thread-safe.
  void BeginStop();
  // Waits for the end; what could not be told stays on disk. Idempotent.
  void Stop();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace gyrostat::notify
