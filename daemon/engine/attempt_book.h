// Who speaks for a run: the current attempt, the ones it replaced, and what has come in of each.
//
// A newer attempt ends the older. An older one that still speaks is a rival: while one is heard, orders go to neither
// (protocol.md §9), since two jobs under one name cannot be told apart by the person who named them. Pure; not
// thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/archive.h"
#include "model/ids.h"
#include "model/report.h"

namespace gyrostat::engine {

// How long after its last word an older attempt still counts as alive: longer than a client waits between attempts to
// reconnect.
inline constexpr int64_t kRivalHeardMs = 60'000;

class AttemptBook {
 public:
  enum class Speaker { kStranger, kCurrent, kSuperseded };

  Speaker Who(const model::AttemptId& attempt) const;
  bool any() const { return attempts_ > 0; }

  // `attempt`, a stranger, is the current one from now on. `first_sequence`: the oldest report it can still send.
  void Open(const model::AttemptId& attempt, uint32_t epoch, uint64_t first_sequence);
  // The current attempt says hello again, also after a bye.
  void Reopen() { ended_ = false; }
  void End() { ended_ = true; }

  // A superseded attempt was heard. True when that is worth a record: at most once a second.
  bool HearRival(const model::AttemptId& attempt, int64_t now_ms);
  // It said good-bye. True when it was the rival.
  bool DismissRival(const model::AttemptId& attempt);
  bool Contested(int64_t now_ms) const { return rival_heard_ms_ && now_ms - *rival_heard_ms_ < kRivalHeardMs; }

  // Takes in a report of the current attempt whose sequence is above last_sequence().
  void TakeReport(const model::Report& report);
  // What the client can already report next is one past what it has measured.
  void RaiseNewestBoundary(model::Boundary boundary);
  void set_epoch(uint32_t epoch) { epoch_ = epoch; }

  const model::AttemptId& current() const { return current_; }
  bool ended() const { return ended_; }
  uint32_t attempts() const { return attempts_; }
  uint32_t epoch() const { return epoch_; }
  uint64_t last_sequence() const { return last_sequence_; }
  // The furthest boundary that the current attempt is known to have measured.
  model::Boundary newest_boundary() const { return newest_boundary_; }
  uint64_t reports() const { return reports_; }
  // Of all attempts: what clients said they dropped; a gap in the sequence that no client owned up to counts too.
  uint64_t dropped() const { return dropped_before_ + DroppedNow(); }

  template <class Archive>
  void Fields(Archive& a) {
    a(current_, superseded_, attempts_, ended_, epoch_, last_sequence_, newest_boundary_, reports_, dropped_before_,
      dropped_hot_, dropped_unacked_, missing_, rival_, rival_heard_ms_);
  }

 private:
  uint64_t DroppedNow() const;

  model::AttemptId current_;
  std::deque<model::AttemptId> superseded_;  // Newest last.
  uint32_t attempts_ = 0;
  bool ended_ = false;
  uint32_t epoch_ = 0;
  uint64_t last_sequence_ = 0;
  model::Boundary newest_boundary_ = 0;
  uint64_t reports_ = 0, dropped_before_ = 0, dropped_hot_ = 0, dropped_unacked_ = 0, missing_ = 0;
  model::AttemptId rival_;
  std::optional<int64_t> rival_heard_ms_;
};

}  // namespace gyrostat::engine
