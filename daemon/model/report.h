// All signals of one optimizer step of one run: what the client sends and detectors read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "model/ids.h"
#include "model/model_spec.h"
#include "model/signal.h"

namespace gyrostat::model {

// Ticks that one boundary added to heads of the clip ledger (protocol.md §1), sparse. Parallel vectors.
struct LedgerDelta {
  std::vector<uint32_t> layer, head;
  std::vector<int64_t> ticks;
  size_t size() const { return layer.size(); }
  bool operator==(const LedgerDelta&) const = default;
  template <class Archive>
  void Fields(Archive& a) { a(layer, head, ticks); }
};

// What local mode applied by itself at one boundary.
struct LocalClips {
  Boundary boundary = 0;
  uint64_t ledger_version_before = 0, ledger_version_after = 0;
  LedgerDelta applied;
  template <class Archive>
  void Fields(Archive& a) { a(boundary, ledger_version_before, ledger_version_after, applied); }
};

// A plain value; reuse one to avoid allocation.
class Report {
 public:
  uint64_t sequence = 0;  // Counts reports of the attempt from 1.
  uint32_t epoch = 0;
  Boundary boundary = 0;
  Step step = 0;
  uint64_t ledger_version = 0;  // Of this report's forward.
  double step_time_ms = 0;      // 0: not known.
  uint64_t dropped_hot = 0, dropped_unacked = 0;  // Running totals of the attempt.
  LogitKind attn_logit_kind = LogitKind::kUnknown;
  LocalClips local_clips;  // Empty `applied`: none.
  std::vector<std::pair<std::string, double>> user;

  Report() { scalars_.fill(static_cast<double>(kAbsent)); }

  bool Has(Signal s) const {
    return IsScalar(s) ? !IsAbsent(scalars_[static_cast<size_t>(s)]) : !Array(s).empty();
  }
  // kAbsent where not reported. `s` must be a scalar.
  double Scalar(Signal s) const { return scalars_[static_cast<size_t>(s)]; }
  void SetScalar(Signal s, double value) { scalars_[static_cast<size_t>(s)] = value; }
  // Empty where not reported. `s` must be an array; layer-major.
  std::span<const float> Array(Signal s) const { return arrays_[Slot(s)]; }
  std::vector<float>& MutableArray(Signal s) { return arrays_[Slot(s)]; }

  void Clear();  // Everything absent; capacities stay.

  template <class Archive>
  void Fields(Archive& a) {
    a(sequence, epoch, boundary, step, ledger_version, step_time_ms, dropped_hot, dropped_unacked,
      attn_logit_kind, local_clips, user, scalars_, arrays_);
  }

 private:
  static size_t Slot(Signal s) { return static_cast<size_t>(static_cast<int>(s) - kArrayFirst); }
  std::array<double, kScalarSlots> scalars_;
  std::array<std::vector<float>, kArraySlots> arrays_;
};

// Values that a report may hold for a spec: arrays of the right length. Empty when right, else a sentence naming
// signal, length seen and length wanted. A spec with 0 layers or heads accepts any length that divides.
std::string CheckShapes(const Report& report, const ModelSpec& spec);

}  // namespace gyrostat::model
