// What the engine needs from the world. store/ implements Journal and History, rpc/ implements Outbox; main.cc plugs them in.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/event.h"
#include "model/finding.h"
#include "model/intervention.h"

namespace gyrostat::engine {

// Everything one event of one run caused: written in one transaction or not at all.
struct JournalEntry {
  std::string run;
  model::AttemptId attempt;
  std::string event;                  // Encoded Event; kept until a snapshot replaces it.
  std::optional<model::Report> report;  // For the history (64-step chunks), if the event was one.
  Stamp at;
  std::vector<model::Finding> findings;
  std::vector<model::Decision> decisions;
  std::vector<model::Intervention> interventions;
  std::vector<model::Order> orders;   // Written as sent.
  std::optional<model::Ack> ack;
  std::optional<model::Hello> hello;  // Makes or updates the attempt's row.
  std::optional<std::string> snapshot;  // Run::Save() after this event: earlier events of the run are forgotten.
  model::Mode mode = model::Mode::kObserve;
  std::string ended_reason;           // Non-empty: the attempt ended.
  // Called once, on the journal's thread, when the entry is durable (true) or could not be written (false).
  std::function<void(bool durable)> done;
};

// Thread-safe; never blocks for longer than its queue needs to drain.
class Journal {
 public:
  virtual ~Journal() = default;
  virtual void Append(JournalEntry entry) = 0;
};

// What a restart reads.
struct StoredRun {
  std::string run;
  std::string snapshot;             // Empty: none.
  std::vector<std::string> events;  // Encoded, in order, since the snapshot.
};

struct SeriesPoint {
  model::Step step = 0;
  double value = 0;
};
struct SeriesQuery {
  std::string run;
  model::Signal signal = model::Signal::kNone;  // kNone: a user scalar called `user_name`.
  std::string user_name;
  std::optional<uint32_t> layer, head;
  std::optional<model::Step> from_step, to_step;  // Inclusive.
};

// Reads for people; each call may touch the disk. Thread-safe. NOT_FOUND names an unknown run.
class History {
 public:
  virtual ~History() = default;
  virtual absl::StatusOr<std::vector<StoredRun>> LoadRuns() = 0;
  struct FindingRow {
    model::Finding finding;
    model::AttemptId attempt;
  };
  virtual absl::StatusOr<std::vector<FindingRow>> Findings(const std::string& run) = 0;
  struct InterventionRow {
    model::Intervention intervention;
    model::AttemptId attempt;
  };
  virtual absl::StatusOr<std::vector<InterventionRow>> Interventions(const std::string& run) = 0;
  virtual absl::StatusOr<std::vector<SeriesPoint>> Series(const SeriesQuery& query) = 0;
  virtual uint64_t NextFindingId() = 0;  // One past the largest stored.
};

// The way to a job's leader. Thread-safe, never blocks; what cannot be delivered is dropped: the hello of the next stream
// settles it.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void SendOrder(const model::Order& order) = 0;
  virtual void Acknowledge(const std::string& run, const model::AttemptId& attempt, uint64_t sequence) = 0;
};

}  // namespace gyrostat::engine
