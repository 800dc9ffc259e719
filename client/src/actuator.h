// The ordering half of the training thread: takes what the sender let through, plans it on the clip ledger, hands it
// to the trainer and moves the ledger when the trainer says that it is done. The ledger here is the truth
// (protocol.md §1).
//
// No lock, no system call; no allocation but in Save and Load, in orders that set registers, and in the ledger where
// one boundary clips more heads than the 64 it foresees.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "client/src/clip_state.h"
#include "client/src/counters.h"
#include "client/src/job_registers.h"
#include "client/src/order_page.h"
#include "client/src/settings.h"
#include "client/src/spsc_queue.h"
#include "client/src/wire_records.h"
#include "gyrostat/gyrostat.h"
#include "model/intervention.h"
#include "remedy/clip_ledger.h"
#include "remedy/qk_clip.h"

namespace gyrostat::client {

inline constexpr size_t kOrdersQueued = 64;    // Orders that may wait for a poll; more are refused.
inline constexpr size_t kRecordsQueued = 256;  // Records that may wait for the sender.
inline constexpr size_t kOutcomesKept = 256;   // Of this many orders outcomes are remembered (protocol.md §2.4).

using OrderQueue = SpscQueue<model::Order>;
using RecordQueue = SpscQueue<Record>;

// Where the training thread stands, as the recorder knows it.
struct BoundaryView {
  model::Boundary boundary = 0;
  model::Step step = 0;
  uint64_t frames_committed = 0;
  bool known = true;              // False: the report was dropped, and what was measured with it.
  std::span<const float> maxima;  // attn_logit_max of the boundary's own report; empty: none.
  model::LogitKind kind = model::LogitKind::kUnknown;
};

// Training thread only. All pointers outlive the actuator.
class Actuator {
 public:
  Actuator(const Settings* settings, const model::AttemptId& attempt, OrderQueue* orders, RecordQueue* records,
           Counters* counters);

  // The next order for this boundary in `*order`, GYRO_NONE, or GYRO_STATE while
  // one waits for its ack. Orders that may not be applied are answered to the daemon and passed over. Writes at most
  // order->struct_size bytes.
  gyro_status Poll(const BoundaryView& at, gyro_order* order);
  gyro_status Ack(const BoundaryView& at, const uint8_t* id, int outcome, const char* reason);
  // A new step begins. An order that was polled and not acked has failed: nobody knows what became of the weights.
  void BeginStep(const BoundaryView& at);

  // A step has ended: what the learning rate's envelope held for it alone is over.
  void EndStep(model::Boundary boundary) { registers_.Passed(boundary); }

  // As gyro_learning_rate, gyro_observe and gyro_hold.
  double Rate(double base, model::Boundary at) { return registers_.Rate(base, at); }
  void Observe(uint32_t id, float value) { registers_.Observe(id, value); }
  void Hold(const char* reason);

  // A new epoch with a ledger at zero, or with `restored`. GYRO_DROPPED: the sender is too far behind to be told;
  // GYRO_INVALID: the state does not fit the model, as `error` says. Nothing has changed then.
  gyro_status NewEpoch(const BoundaryView& at, std::unique_ptr<RestoredState> restored);

  uint32_t epoch() const { return epoch_; }
  const remedy::ClipLedger& ledger() const { return ledger_; }
  const JobRegisters& registers() const { return registers_; }
  bool local_mode() const { return local_.on(); }
  // The outcomes decided here, oldest first.
  std::vector<std::pair<model::OrderId, model::AckOutcome>> Outcomes() const;

 private:
  struct Known {
    model::OrderId id;
    model::AckOutcome outcome = model::AckOutcome::kRefused;
  };

  // What the trainer holds between Poll and Ack.
  enum class Open : uint8_t { kNone, kRemote, kLocal };

  // True when the front of the queue is to be handed out; else it was answered and released.
  bool Consider(const BoundaryView& at, const model::Order& order);
  // Of a clip and of all other kinds: whether something is left to do.
  bool ConsiderClip(const BoundaryView& at, const model::Order& order);
  bool ConsiderSets(const BoundaryView& at, const model::Order& order);
  bool PlanLocal(const BoundaryView& at);
  void Present(const BoundaryView& at, const model::Order& order, bool local, gyro_order* out);
  void Answer(const BoundaryView& at, const model::OrderId& id, model::AckOutcome outcome, std::string_view reason);
  void Applied(const BoundaryView& at, std::string_view word);
  // Fills the next record; the caller commits it.
  Record* Push(const BoundaryView& at, RecordKind kind, const model::OrderId& id, model::AckOutcome outcome,
               uint64_t version_before, std::string_view reason);
  void Remember(const model::OrderId& id, model::AckOutcome outcome);
  void CloseOpen();

  const Settings* settings_;
  const model::AttemptId attempt_;
  OrderQueue* orders_;
  RecordQueue* records_;
  Counters* counters_;

  remedy::ClipLedger ledger_;
  JobRegisters registers_;
  uint32_t epoch_ = 0;
  LocalRegister local_;
  bool failed_ = false;  // GYRO_FAILED ended all ordering of the epoch.
  char hold_[GYRO_REASON_BYTES] = {};  // Why nothing is applied; empty: it is.

  Open open_ = Open::kNone;
  model::OrderId open_id_;
  model::Boundary planned_local_ = 0;  // The boundary at which local mode has had its turn.
  std::vector<model::ClipEntry> entries_;
  remedy::ClipPlan plan_;
  OrderPage page_;

  std::array<Known, kOutcomesKept> outcomes_;
  uint64_t outcomes_count_ = 0;
};

}  // namespace gyrostat::client
