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

// How much is kept of a stretch of history, which old stretches lose step by step (store/README.md). Do not change the
// values: they reach disk and wire.
enum class Resolution : uint8_t {
  kFull = 0,      // Every value that was reported.
  kHeads = 1,     // Of arrays over heads: each layer's worst head in each report, and the worst heads of the stretch.
  kExtremes = 2,  // Of each series the smallest and the largest value of every few reports, at their own steps.
};
inline const char* Token(Resolution v) {
  return v == Resolution::kFull ? "full" : v == Resolution::kHeads ? "heads" : "extremes";
}

struct ReducedRange {
  model::Step from_step = 0, to_step = 0;  // Inclusive.
  Resolution resolution = Resolution::kHeads;
};
// What a read could not show. Empty where everything that was reported is there.
struct HistoryNotes {
  std::vector<ReducedRange> reduced;  // In order of arrival; neighbours of one resolution are one range.
  uint64_t chunks_damaged = 0;        // Passed over; each holds up to 64 reports.
  uint64_t reports_dropped = 0;       // Oldest reports of the run that retention has dropped, of all steps.
};

struct SeriesPoint {
  model::Step step = 0;
  double value = 0;
};
struct SeriesData {
  std::vector<SeriesPoint> points;
  HistoryNotes notes;
};
// One value a step. Of an array signal, the largest among the layers and heads that the query leaves open.
struct SeriesQuery {
  std::string run;
  model::Signal signal = model::Signal::kNone;  // kNone: a user scalar called `user_name`.
  std::string user_name;
  std::optional<uint32_t> layer, head;
  std::optional<model::Step> from_step, to_step;  // Inclusive.
  // At most so many points, at their own steps: the ends, and of equal parts the smallest, the largest and what is not
  // finite (store/decimate.h). 0: every point; else at least 2.
  uint32_t points_max = 0;
};

// Some reports of one attempt, in order of arrival, and where to go on.
struct ReportCursor {
  uint64_t report = 0;  // How many reports of the run lie before it, those that are kept no longer included.
};
struct ReportPage {
  uint64_t run_number = 0;             // Within the data directory: a name that was given away has another one.
  model::AttemptId attempt;            // Of all of them.
  std::vector<model::Report> reports;  // At most some dozens; may be empty where more follow.
  std::vector<int64_t> arrived_unix_ms;  // When each came; 0: not known (it was stored before that was kept).
  Resolution resolution = Resolution::kFull;  // Of all of them.
  uint64_t reports_lost = 0;           // Passed over before them: dropped, or in a damaged chunk.
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
  virtual absl::StatusOr<SeriesData> Series(const SeriesQuery& query) = 0;
  // Every report that was acknowledged and is kept, as it came or as it was reduced since, page by page: a reader may
  // rest between two pages for as long as it likes.
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
