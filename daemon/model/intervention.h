// What is done to a job, and what is said about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/archive.h"
#include "model/ids.h"
#include "model/report.h"

namespace gyrostat::model {

// Do not change the values: they reach wire and disk.
enum class InterventionKind : uint8_t {
  kQkClip = 1, kWarmupExtension = 2, kDeepnormAlpha = 3, kLrScale = 4, kGradClip = 5,
  kSkipStep = 6, kCheckpoint = 7, kRollback = 8, kHalt = 9, kCollect = 10,
};
enum class Mode : uint8_t { kObserve = 1, kAdvise = 2, kAct = 3 };
enum class ClipVariant : uint8_t { kMha = 1, kGroupMin = 2, kQOnly = 3, kMla = 4, kLayerGain = 5 };
enum class ClipWhere : uint8_t { kRemote = 1, kLocal = 2 };

// protocol.md §5. kProposed waits for approval; kSent has at least one order out; the rest are ends.
enum class InterventionState : uint8_t {
  kProposed = 1, kApproved = 2, kSent = 3, kApplied = 4, kJudged = 5, kRefused = 6, kVoid = 7, kExpired = 8,
  kSuperseded = 9, kForeign = 10, kLost = 11, kRejected = 12, kWithdrawn = 13,
};
enum class Outcome : uint8_t { kEffective = 1, kIneffective = 2, kHarmful = 3, kInconclusive = 4 };

const char* Token(InterventionKind v);
const char* Token(Mode v);
const char* Token(ClipVariant v);
const char* Token(ClipWhere v);
const char* Token(InterventionState v);
const char* Token(Outcome v);
std::optional<InterventionKind> InterventionKindOf(const std::string& token);
std::optional<Mode> ModeOf(const std::string& token);
std::optional<ClipVariant> ClipVariantOf(const std::string& token);
std::optional<ClipWhere> ClipWhereOf(const std::string& token);

// proposed, approved, sent and applied are not ends: the intent is still open.
bool IsOpen(InterventionState v);

// The intent (design.md §6): what approve and reject take, what counts, budget, cool-down and outcome are of.
struct Intervention {
  std::string id;  // "<run>/<number>", unique within a daemon's data directory.
  InterventionKind kind = InterventionKind::kQkClip;
  InterventionState state = InterventionState::kProposed;
  std::optional<Outcome> outcome;
  Mode mode = Mode::kObserve;
  std::string reason;  // Always a sentence.
  std::string author;  // "policy", or who approved or rejected.
  Step step_proposed = 0;
  std::optional<Step> step_applied;  // Of the first applied order.
  uint32_t orders = 0, orders_applied = 0, heads = 0;
  std::optional<double> median_delay_boundaries;  // From the measuring forward to the clip; 0: at that step's boundary.

  template <class Archive>
  void Fields(Archive& a) {
    a(id, kind, state, outcome, mode, reason, author, step_proposed, step_applied, orders, orders_applied,
      heads, median_delay_boundaries);
  }
};

// A question the policy answered. Journalled when the answer or its reason changes, "no" included.
struct Decision {
  Step step = 0;
  InterventionKind kind = InterventionKind::kQkClip;
  bool acted = false;
  std::string reason;
  template <class Archive>
  void Fields(Archive& a) { a(step, kind, acted, reason); }
};

// One head's absolute target on the ledger (protocol.md §1.4).
struct ClipEntry {
  uint32_t layer = 0, head = 0;
  float reported_max = 0;    // S as the client reported it, bit for bit.
  int64_t target_ticks = 0;  // Λ*.
  template <class Archive>
  void Fields(Archive& a) { a(layer, head, reported_max, target_ticks); }
};

// A value for a register (remedy/registers.h): compare-and-set, so that a second delivery is void.
struct RegisterSet {
  uint32_t id = 0;
  float value = 0;               // Finite, not negative.
  uint32_t expected_version = 0;  // Mod 2^24.
  bool operator==(const RegisterSet&) const = default;
  template <class Archive>
  void Fields(Archive& a) { a(id, value, expected_version); }
};

// What a register of the client holds.
struct RegisterReading {
  uint32_t id = 0;
  float from = 1, to = 1;
  int64_t first = 0;   // The boundary at which its ramp begins; signed, since it may have begun before a restart.
  uint32_t ramp = 0;   // Boundaries.
  uint32_t version = 0;  // Sets so far.
  bool operator==(const RegisterReading&) const = default;
  template <class Archive>
  void Fields(Archive& a) { a(id, from, to, first, ramp, version); }
};

// An order to the job. Where `where` is local only tau, variant and split count (tau 0: stop clipping).
struct Order {
  OrderId id;
  std::string run;
  AttemptId attempt;
  uint32_t epoch = 0;
  InterventionKind kind = InterventionKind::kQkClip;
  ClipWhere where = ClipWhere::kRemote;
  Boundary basis = 0;             // The boundary whose forward measured what this answers.
  Boundary expires_boundary = 0;  // Never applied after it. Ignored where local.
  std::string intent_id;
  double tau = 0;
  ClipVariant variant = ClipVariant::kMha;
  double split = 0.5;             // The share of ln(gamma) that W_q takes. [0, 1].
  std::vector<ClipEntry> entries;
  std::vector<RegisterSet> sets = {};  // Of every kind but qk_clip; ids in order.
  uint32_t ramp = 0;              // Boundaries over which the registers move to their values; 0: at once.

  template <class Archive>
  void Fields(Archive& a) {
    a(id, run, attempt, epoch, kind, where, basis, expires_boundary, intent_id, tau, variant, split, entries, sets,
      ramp);
  }
};

enum class AckOutcome : uint8_t { kApplied = 1, kRefused = 2, kVoid = 3, kExpired = 4, kForeign = 5, kFailed = 6 };
const char* Token(AckOutcome v);

// What became of an order.
struct Ack {
  OrderId order_id;
  AckOutcome outcome = AckOutcome::kRefused;
  Boundary boundary = 0;
  Step step = 0;
  uint64_t ledger_version_before = 0, ledger_version_after = 0;
  LedgerDelta applied;  // Every head that was charged, group mates too.
  uint64_t state_digest = 0;
  std::string reason;

  template <class Archive>
  void Fields(Archive& a) {
    a(order_id, outcome, boundary, step, ledger_version_before, ledger_version_after, applied, state_digest, reason);
  }
};

// The client's first word on a stream.
struct Hello {
  std::string run;
  AttemptId attempt;
  uint32_t epoch = 0;
  Boundary boundary = 0;  // The next one it will report.
  uint64_t ledger_version = 0;
  LedgerDelta ledger;     // Readings of heads that stand above 0.
  std::vector<Ack> last_outcomes;   // order_id, outcome and reason only. At most 256.
  std::vector<std::string> allow;   // Kind tokens the job permits. Empty: nothing may be changed.
  double tau_min = 0;
  ModelSpec model;
  AttnLogitInfo attn_logit;
  uint32_t world_size = 1, rank = 0;
  uint32_t agreement_lag = 0;  // d of protocol.md §3; 0: the ranks do not agree.
  std::string client_version, framework, grad_norm_convention;
  uint64_t first_sequence = 1;
  std::vector<RegisterReading> registers;  // Those that were ever set; ids in order.

  template <class Archive>
  void Fields(Archive& a) {
    a(run, attempt, epoch, boundary, ledger_version, ledger, last_outcomes, allow, tau_min, model, attn_logit,
      world_size, rank, agreement_lag, client_version, framework, grad_norm_convention, first_sequence,
      registers);
  }
};

}  // namespace gyrostat::model
