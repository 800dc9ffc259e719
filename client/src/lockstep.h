// The training thread of a job whose ranks agree: leads agreement/ through the boundaries by the job's own collective,
// and hands out what was decided as orders. What actuator.h is for one rank.
//
// The leader may read R_b within step b + 1, where the collective can say that it is there: to report, and for nothing
// else (protocol.md §3). StepEnded of b + 1 then decides on the very lanes that it would have waited for.
//
// Training thread only. Blocks in StepEnded until the round of the boundary before is there. Allocates where something
// is applied or told.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "client/src/actuator.h"
#include "client/src/agreement/agreement.h"
#include "client/src/agreement/join.h"
#include "client/src/agreement/leader_desk.h"
#include "client/src/agreement/statistics.h"
#include "client/src/counters.h"
#include "client/src/order_page.h"
#include "client/src/recorder.h"
#include "client/src/settings.h"
#include "gyrostat/gyrostat.h"

namespace gyrostat::client {

// Where a rank stands that joins.
struct Standing {
  model::AttemptId attempt;  // What it would have the attempt be, were it the leader.
  uint32_t epoch = 0;
  model::Boundary boundary = 0;
  bool ready = true;
};
// The blocking collective before the first boundary, and before the first of another membership.
JoinResult JoinRanks(const Settings& settings, const Standing& standing);

class Lockstep {
 public:
  // Pointers outlive the lockstep.
  Lockstep(const Settings* settings, const JoinResult& join, FrameRing* frames, OrderQueue* orders,
           RecordQueue* records, Counters* counters);

  // Ranks that join again make a new lockstep. The old one lets go of what is under way: all orders die, and are told.
  void Leave(const BoundaryView& at);
  // The new one goes on where the join says, with what the old one took along. Before any other call. As NewEpoch
  // fails.
  gyro_status GoOn(const BoundaryView& at, const JoinResult& join, Passage brought);

  // A sender takes frames and records from now on; else they are dropped here.
  void HasSender(const BoundaryView& at);

  // As the C ABI's calls of the same names. StepEnded follows a step_end that took a report or dropped it.
  gyro_status StepEnded(const BoundaryView& at, Recorder* recorder);
  // Within a step, before StepEnded: whether this rank leads and R of the boundary before is there, unread. Asks the
  // collective, and waits for nothing.
  bool RoundIsThere() const {
    return begun_ && has_sender_ && asks_ && settings_->collective.round_done(settings_->collective.context) != 0;
  }
  // Where RoundIsThere: the report of the boundary before leaves now, behind what R confirms. Of a round that failed
  // nothing is told before StepEnded.
  void ReadEarly(const BoundaryView& at, Recorder* recorder);
  // The last report waits for no round any more.
  void Closing(Recorder* recorder);
  gyro_status Poll(const BoundaryView& at, gyro_order* order);
  gyro_status Ack(const BoundaryView& at, const uint8_t* id, int outcome, const char* reason);
  void BeginStep(const BoundaryView& at);
  // GYRO_INVALID: the state does not fit the model, as `error` says.
  gyro_status NewEpoch(const BoundaryView& at, std::unique_ptr<RestoredState> restored);
  double Rate(double base, model::Boundary at) { return agreement_.Rate(base, at); }
  void Observe(uint32_t id, float value) { agreement_.Observe(id, value); }
  void Hold(const char* reason);

  const Agreement& agreement() const { return agreement_; }
  const Settings& settings() const { return *settings_; }
  const std::string& hold() const { return hold_; }

 private:
  // What the trainer has still to be given of the action: an agreed order of another kind and a local clip may fall on
  // one boundary.
  enum class Part : uint8_t { kClip, kSets };

  // Waits for what was begun at the boundary before, unless it was read within the step; true: R came. Reads the clock
  // before and after.
  bool WaitForRound();
  // Waits for what is under way: came_, sums_came_ and lanes.
  void ReadRound();
  // Completes the report of the boundary before by what came.
  void Complete(bool came, Frame* frame) const;
  // The same, and lets it go.
  void Deliver(bool came, Recorder* recorder);
  // Puts this rank's lanes into R of the boundary, once.
  void Finish(const BoundaryView& at);
  void BeginRound();
  void Done(const BoundaryView& at);
  void Tell(const BoundaryView& at);
  gyro_status TellEpoch(const BoundaryView& at, std::unique_ptr<RestoredState> restored);
  Record* NextRecord(const BoundaryView& at, RecordKind kind);
  void SayTrouble();

  const Settings* settings_;
  const bool leader_;
  FrameRing* frames_;
  OrderQueue* orders_;
  RecordQueue* records_;
  Counters* counters_;
  Agreement agreement_;
  LeaderDesk desk_;
  OrderPage page_;
  const Statistics statistics_;
  std::vector<float> lanes_, sums_;
  const Frame* frame_ = nullptr;  // This rank's own of this boundary, until its round has begun; null: none.
  Moment moment_;
  base::MonotonicTime entered_{}, left_{};  // The last StepEnded's wait. Statistics only: no decision has a clock.
  std::string said_;
  model::OrderId open_id_;
  model::Boundary finished_ = 0;  // The last boundary whose R was begun.
  const bool issues_round_, issues_sums_;
  const bool asks_;  // It leads, and the collective can say whether a round is over.
  bool has_sender_ = false, open_ = false;
  bool begun_ = false, sums_begun_ = false;  // Under way, not waited for.
  bool came_ = false, sums_came_ = false;    // Of the round that was read last.
  std::vector<Part> to_present_;  // The last first.
  std::string hold_;              // Why this rank is not ready; empty: it is.
};

}  // namespace gyrostat::client
