// The leader's orders on their way into R, and what is told about them (protocol.md §3, §4.9).
//
// Orders that the sender let through (clip_mirror.h) wait here until one R has room: at most one proposal per R, clips
// of one tau, variant and split fold into one by max, and what does not fit follows at the next boundary. An order
// whose R could come too late for it is answered as expired; from R on, R alone decides. Orders of other kinds than
// qk_clip take an R each, whole or not at all. `applied` is said only when
// the next R has shown that all ranks stand at the same new state.
//
// Training thread only. Allocates while orders wait.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/src/agreement/agreement.h"
#include "model/intervention.h"
#include "model/report.h"

namespace gyrostat::client {

class LeaderDesk {
 public:
  static constexpr size_t kWaitingMax = 64;

  // `agreement` outlives the desk.
  explicit LeaderDesk(const Agreement* agreement) : agreement_(agreement) {}

  bool full() const { return waiting_.size() >= kWaitingMax; }
  // An order that may be applied as far as the leader knows.
  void Take(const model::Order& order);
  // The leader's own kill switch is thrown: what waits is answered; what is in R is R's.
  void RefuseAll(const std::string& why);

  // What to put into R_b; null: nothing. Lives until the next call.
  const Proposal* Propose(model::Boundary b, model::Step step);
  // R_b could not hold it.
  void NotIn(const char* why = "it does not fit the lanes of R");

  // R was read before Agreement::Decide, to report: what it confirms (Agreement::ConfirmedBy) is told before the report
  // that it completes, whose forward may have run under it. Decided then finds it told.
  void Confirmed(const std::vector<Confirmation>& confirmations);

  // After Agreement::Decide at `b`, before the action is done.
  void Decided(const Action& action, model::Boundary b, model::Step step);
  // After Agreement::Applied, or Failed with its reason.
  void Applied(const Action& action);
  void Failed(const std::string& why);
  // The collective failed: what became of the order in R nobody knows.
  void Lost(const std::string& why, model::Boundary b, model::Step step);
  // The weights got another history: all orders die.
  void NewEpoch();

  // What is to be told, in order; the caller empties them. Local clips go with the next report.
  std::vector<model::Ack> acks;
  std::vector<model::LocalClips> local_clips;

 private:
  struct Entry {
    model::Boundary basis = 0;
    remedy::Ticks excess = 0, target = 0;
  };
  struct Waiting {
    model::Order order;
    std::map<uint32_t, Entry> left;  // Of a clip, by head: not yet decided.
    bool resolved = false;           // `left` holds excesses computed here.
    bool told = false;               // Something of it was applied and will be told.
  };
  struct InFlight {
    model::Boundary boundary = 0;
    std::vector<model::OrderId> orders;
    std::map<uint32_t, remedy::Ticks> targets;
  };
  struct Unconfirmed {
    model::Boundary applied_at = 0;
    std::vector<model::Ack> acks;
    std::optional<model::LocalClips> local;
  };

  bool IsClip(const Waiting& waiting) const;
  bool IsLate(const Waiting& waiting, model::Boundary decided_at) const;
  // Fills `left` from what this client measured; false: not known yet.
  bool Resolve(Waiting* waiting) const;
  void ProposeClips();
  void ProposeSets(const Waiting& waiting);
  // Takes what was decided off the orders; those with nothing left end with `outcome`.
  void Strike(model::AckOutcome outcome, const std::string& reason, std::vector<model::Ack>* out);
  model::Ack AckOf(const model::OrderId& id, model::AckOutcome outcome, const std::string& reason) const;
  // The id by value: the order that holds it goes.
  void End(model::OrderId id, model::AckOutcome outcome, const std::string& reason);

  const Agreement* const agreement_;
  std::deque<Waiting> waiting_;
  std::optional<InFlight> in_flight_;
  std::deque<Unconfirmed> unconfirmed_;
  Proposal proposal_;
  model::OrderId local_id_;
  model::Boundary boundary_ = 0;
  model::Step step_ = 0;
};

}  // namespace gyrostat::client
