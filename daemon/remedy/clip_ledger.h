// The clip ledger of protocol.md §1: for each head the sum of -ln of every factor ever put on its logits in this epoch.
//
// Lambda only rises. A target is absolute: applying it twice, late, or after another adds what is missing and no more.
// The ledger remembers its last kHistory versions, so that a report can be read under the ledger of its own forward.
// Used by the client (the truth), by policy/ (the mirror) and by tests. Not thread-safe. At and Apply do not allocate
// once constructed, except Apply when a version changes more heads than any before (64 are foreseen) or names them out
// of order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/archive.h"
#include "model/report.h"
#include "remedy/ticks.h"

namespace gyrostat::remedy {

class ClipLedger {
 public:
  static constexpr size_t kHistory = 64;

  // No head is ever charged more: a million nats. Keeps sums of hostile ticks from overflowing.
  static constexpr Ticks kLambdaMax = Ticks{1} << 40;

  ClipLedger() = default;
  ClipLedger(uint32_t layers, uint32_t heads);

  uint32_t layers() const { return layers_; }
  uint32_t heads() const { return heads_; }
  uint64_t version() const { return version_; }

  // Lambda now. `layer` and `head` must be in range.
  Ticks At(uint32_t layer, uint32_t head) const { return lambda_[Index(layer, head)]; }

  // Lambda under `version`, or nothing when that version is newer than now or older than the history reaches.
  std::optional<Ticks> At(uint64_t version, uint32_t layer, uint32_t head) const;

  // The same for all heads at once, layer-major. False where At would give nothing; `*lambda` is then untouched.
  bool ReadAt(uint64_t version, std::vector<Ticks>* lambda) const;

  // Adds `delta` (ticks >= 0, heads in range) and, if any of it is above 0, makes a new version. False, and nothing
  // changed, when an entry is negative, out of range or beyond kLambdaMax, or the vectors differ in length or are
  // longer than the model has heads.
  bool Apply(const model::LedgerDelta& delta);

  // Readings of all heads above 0, in order of layer and head.
  model::LedgerDelta Sparse() const;

  // Starts over with these readings at `version`; no history. A head named twice takes the sum. False, and nothing
  // changed, where Apply would say false.
  bool Restore(uint64_t version, const model::LedgerDelta& readings);

  // All zero, version 0: a new epoch without a checkpoint.
  void Reset();

  template <class Archive>
  void Fields(Archive& a) {
    a(layers_, heads_, version_, lambda_, history_);
    if constexpr (Archive::kLoading)
      if (!IsSound()) a.Fail();
  }

 private:
  struct Change {
    uint64_t version = 0;      // The version that this change made.
    model::LedgerDelta delta;  // In order of layer and head, each once, all above 0.
    template <class Archive>
    void Fields(Archive& a) {
      a(version, delta);
    }
  };
  size_t Index(uint32_t layer, uint32_t head) const { return size_t{layer} * heads_ + head; }
  bool Fits(const model::LedgerDelta& delta) const;
  bool IsSound() const;
  void Forget();  // The history.
  // True when the history reaches back to `version`.
  bool Knows(uint64_t version) const { return version <= version_ && version_ - version <= history_.size(); }

  uint32_t layers_ = 0, heads_ = 0;
  uint64_t version_ = 0;
  std::vector<Ticks> lambda_;
  std::vector<Change> history_;  // Oldest first, versions without a gap, the newest is version_. At most kHistory.
  std::vector<Change> spare_;    // Emptied changes with room, taken by Apply instead of the heap.
};

}  // namespace gyrostat::remedy
