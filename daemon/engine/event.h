// Everything that can happen to a run. A run is a deterministic state machine over events: the journal keeps each event
// before its effects leave, and a restart replays those since the last snapshot (daemon/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/archive.h"
#include "engine/run_options.h"
#include "model/intervention.h"
#include "model/report.h"
#include "policy/proposal.h"

namespace gyrostat::engine {

// When the daemon saw it. `mono_ms` counts from the daemon's first start in this data directory and never goes back.
struct Stamp {
  int64_t mono_ms = 0;
  int64_t unix_ms = 0;
  template <class Archive>
  void Fields(Archive& a) { a(mono_ms, unix_ms); }
};

struct HelloEvent { model::Hello hello; template <class A> void Fields(A& a) { a(hello); } };
struct ReportEvent {
  model::AttemptId attempt;
  model::Report report;
  template <class A> void Fields(A& a) { a(attempt, report); }
};
struct AckEvent {
  model::AttemptId attempt;
  model::Ack ack;
  template <class A> void Fields(A& a) { a(attempt, ack); }
};
struct ByeEvent {
  model::AttemptId attempt;
  std::string reason;
  template <class A> void Fields(A& a) { a(attempt, reason); }
};
struct TickEvent { template <class A> void Fields(A&) {} };  // Time passed; journalled only when it changed something.
struct ModeEvent {
  model::Mode mode = model::Mode::kObserve;
  std::string author, reason;
  template <class A> void Fields(A& a) { a(mode, author, reason); }
};
struct ApproveEvent { std::string id, author, reason; template <class A> void Fields(A& a) { a(id, author, reason); } };
struct RejectEvent { std::string id, author, reason; template <class A> void Fields(A& a) { a(id, author, reason); } };
struct ProposeEvent { policy::Proposal proposal; template <class A> void Fields(A& a) { a(proposal); } };
// Thresholds changed (config reload, or a restart with another file). The mode in use stays. Posted by the engine
// itself.
struct OptionsEvent { RunOptions options; template <class A> void Fields(A& a) { a(options); } };

// Do not change the order: the index is the kind on disk.
using EventBody = std::variant<HelloEvent, ReportEvent, AckEvent, ByeEvent, TickEvent, ModeEvent, ApproveEvent,
                               RejectEvent, OptionsEvent, ProposeEvent>;

struct Event {
  Stamp at;
  EventBody body;
};

// Bytes for the journal, and back. False on foreign bytes or another version; `*event` is then unspecified.
std::string Encode(const Event& event);
bool Decode(std::string_view bytes, Event* event);

}  // namespace gyrostat::engine
