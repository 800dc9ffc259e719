// What the two threads tell each other besides frames. Records are built in place in the slots of an SpscQueue.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "gyrostat/gyrostat.h"
#include "model/ids.h"
#include "model/intervention.h"
#include "model/report.h"
#include "remedy/warmup.h"

namespace gyrostat::client {

// Ledger, registers, envelope and outcomes out of a checkpoint.
struct RestoredState {
  model::Boundary boundary = 0;  // After which it was saved.
  uint64_t ledger_version = 0;
  model::LedgerDelta ledger;
  std::vector<model::RegisterReading> registers;
  remedy::LrEnvelope envelope;  // As it stood at `boundary`.
  std::vector<std::pair<model::OrderId, model::AckOutcome>> outcomes;  // Oldest first.
};

enum class RecordKind : uint8_t {
  kOutcome,    // What became of an order.
  kLocalClip,  // Local mode applied what boundary's own maxima ask for.
  kEpoch,      // A new epoch began.
  kAgreed,     // Something that all ranks decided: `agreed` or `agreed_clips`.
};

// Training thread to sender, in the order of events. The sender keeps a copy of the clip ledger and repeats each
// change with the same arithmetic (remedy/), so that no list of heads has to cross; ledger_version and digest prove
// that it did.
struct Record {
  RecordKind kind = RecordKind::kOutcome;
  uint64_t frames_before = 0;  // Frames handed over before this happened: the sender takes those first.
  model::OrderId order_id;
  model::AckOutcome outcome = model::AckOutcome::kRefused;
  uint32_t epoch = 0;
  model::Boundary boundary = 0;
  model::Step step = 0;
  uint64_t version_before = 0, version_after = 0;
  uint64_t digest = 0;  // Of the state after it.
  char reason[GYRO_REASON_BYTES] = {};
  // Allocated by the training thread, at boundaries that applied something.
  std::unique_ptr<model::Ack> agreed;
  std::unique_ptr<model::LocalClips> agreed_clips;
  uint32_t world_size = 0;  // kEpoch: of the job from here on; 0: as before.
  std::unique_ptr<RestoredState> restored;  // kEpoch from a checkpoint. Allocated by the one, freed by the other.

  void SetReason(std::string_view text) {
    const size_t size = text.size() < sizeof(reason) ? text.size() : sizeof(reason) - 1;
    text.copy(reason, size);
    reason[size] = '\0';
  }
};

// The local clipping register (design.md §6): what the newest local order says. tau 0: off.
struct LocalRegister {
  model::OrderId order_id;
  double tau = 0;
  model::ClipVariant variant = model::ClipVariant::kMha;
  double split = 0.5;
  bool on() const { return tau > 0; }
};

}  // namespace gyrostat::client
