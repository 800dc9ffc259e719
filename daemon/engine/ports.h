// What the engine needs from the world. store/ implements Journal and History, rpc/ implements Outbox; main.cc plugs
// them in.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/episodes.h"
#include "engine/event.h"
#include "model/finding.h"
#include "model/intervention.h"

namespace gyrostat::engine {

// Who did what to a run: one row of the audit.
struct AuditNote {
  std::string action;   // mode, propose, approve or reject.
  std::string subject;  // The intent's id, the kind proposed, or the new mode.
  std::string author, reason;
};

// What somebody said for all runs to come (engine/mode_limit.h).
struct ModeWord {
  model::Mode mode = model::Mode::kObserve;
  std::string author, reason;
};

// Everything one event of one run caused: written in one transaction or not at all.
struct JournalEntry {
  std::string run;
  uint64_t run_number = 0;            // Within the data directory, from 1. A new run's first entry has a snapshot.
  model::AttemptId attempt;
  std::string event;                  // Encoded Event, reports included. Empty: nothing to keep, the entry is there for
                                      // its snapshot or for its turn in the order of `done`.
  Stamp at;
  std::vector<model::Finding> findings;
  std::vector<EpisodeChange> episodes;
  std::vector<model::Decision> decisions;
  std::vector<model::Intervention> interventions;
  std::vector<model::Order> orders;   // Written as sent.
  std::optional<model::Ack> ack;
  std::optional<model::Hello> hello;  // Makes or updates the attempt's row.
  std::optional<std::string> snapshot;  // Run::Save() after this event: a restart replays only what comes later.
  model::Mode mode = model::Mode::kObserve;
  model::AttemptId ended_attempt;     // Meaningful where ended_reason is not empty.
  std::string ended_reason;           // Non-empty: that attempt ended.
  std::optional<AuditNote> audit;
  std::optional<ModeWord> mode_limit;  // The entry is the daemon's own: no run, and nothing else but `audit`.
  bool revocable = false;  // If it fails it never happened, the run is as before it: its rows are not kept for later.
  // Called once, on the journal's thread, when the entry is durable (true) or could not be written (false). Entries of
  // a run are settled in the order in which they were appended. Must not block.
  std::function<void(bool durable)> done;
};

// Thread-safe; never blocks for longer than its queue needs to drain.
//
// After a false, all further entries of that run fail until one with a snapshot can be written: a replay must never
// meet a hole. Their findings, decisions and interventions are written with that one, as far as they can be kept until
// then. An entry of the daemon's own fails alone, and nothing of it is kept.
class Journal {
 public:
  virtual ~Journal() = default;
  virtual void Append(JournalEntry entry) = 0;
};

// What a restart reads.
struct StoredRun {
  std::string run;
  uint64_t number = 0;
  std::string snapshot;
  std::vector<std::string> events;  // Encoded, in order, since the snapshot.
};

struct SeriesPoint {
  model::Step step = 0;
  double value = 0;
};
// One value a step. Of an array signal, the largest among the layers and heads that the query leaves open.
struct SeriesQuery {
  std::string run;
  model::Signal signal = model::Signal::kNone;  // kNone: a user scalar called `user_name`.
  std::string user_name;
  std::optional<uint32_t> layer, head;
  std::optional<model::Step> from_step, to_step;  // Inclusive.
};

// Some reports of one attempt, in order of arrival, and where to go on.
struct ReportCursor {
  int64_t chunk = 0;  // Whatever History counts its own storage by; as new: before the first report.
  uint64_t skip = 0;
};
struct ReportPage {
  model::AttemptId attempt;            // Of all of them.
  std::vector<model::Report> reports;  // At most some dozens; may be empty where more follow.
  ReportCursor next;
  bool end = false;                    // There are no more by now.
};
struct ReportQuery {
  std::string run;
  std::optional<model::Step> from_step, to_step;  // Inclusive.
};

// Reads for people; each call may touch the disk. Thread-safe. NOT_FOUND names an unknown run.
class History {
 public:
  virtual ~History() = default;
  // Hands over each stored run once, by number. Stops at the first error `take` returns, and returns it.
  virtual absl::Status ForEachRun(const std::function<absl::Status(StoredRun)>& take) = 0;
  virtual absl::StatusOr<std::optional<ModeWord>> ModeLimit() = 0;  // The newest that was written.
  struct FindingRow {
    model::Finding finding;
    model::AttemptId attempt;
  };
  virtual absl::StatusOr<std::vector<FindingRow>> Findings(const std::string& run) = 0;
  // In order of their begin, each as it was last said.
  struct EpisodeRow {
    diagnose::Diagnosis diagnosis;
    model::AttemptId attempt;  // In which it began.
  };
  virtual absl::StatusOr<std::vector<EpisodeRow>> Episodes(const std::string& run) = 0;
  struct InterventionRow {
    model::Intervention intervention;
    model::AttemptId attempt;
  };
  virtual absl::StatusOr<std::vector<InterventionRow>> Interventions(const std::string& run) = 0;
  // In order of steps; a step that was reported more than once (rollback, restart) shows its newest value. Steps
  // without the value are left out. INVALID_ARGUMENT says what is wrong with layer or head.
  virtual absl::StatusOr<std::vector<SeriesPoint>> Series(const SeriesQuery& query) = 0;
  // Every report that was acknowledged and is kept, as it came, page by page: a reader may rest between two pages for
  // as long as it likes.
  virtual absl::StatusOr<ReportPage> Reports(const ReportQuery& query, const ReportCursor& from) = 0;
  // The newest hello of an attempt. NOT_FOUND: there was none.
  virtual absl::StatusOr<model::Hello> HelloOf(const std::string& run, const model::AttemptId& attempt) = 0;
};

// The way to a job's leader. Thread-safe, never blocks; what cannot be delivered is dropped: the hello of the next
// stream settles it.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void SendOrder(const model::Order& order) = 0;
  virtual void Acknowledge(const std::string& run, const model::AttemptId& attempt, uint64_t sequence) = 0;
};

}  // namespace gyrostat::engine
