// The clip ledger of protocol.md §1: for each head the sum of -ln of every factor ever put on its logits in this epoch.
//
// Lambda only rises. A target is absolute: applying it twice, late, or after another adds what is missing and no more.
// The ledger remembers its last kHistory versions, so that a report can be read under the ledger of its own forward.
// Used by the client (the truth), by policy/ (the mirror) and by tests. Not thread-safe. Observe/At/Apply do not allocate
// once constructed, except Apply when a version changes more heads than any before.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/archive.h"
#include "model/report.h"
#include "remedy/ticks.h"

namespace gyrostat::remedy {

class ClipLedger {
 public:
  static constexpr size_t kHistory = 64;

  ClipLedger() = default;
  ClipLedger(uint32_t layers, uint32_t heads);

  uint32_t layers() const { return layers_; }
  uint32_t heads() const { return heads_; }
  uint64_t version() const { return version_; }

  // Lambda now. `layer` and `head` must be in range.
  Ticks At(uint32_t layer, uint32_t head) const { return lambda_[Index(layer, head)]; }

  // Lambda under `version`, or nothing when that version is newer than now or older than the history reaches.
  std::optional<Ticks> At(uint64_t version, uint32_t layer, uint32_t head) const;

  // Adds `delta` (ticks >= 0, heads in range) and, if any of it is above 0, makes a new version. False, and nothing
  // changed, when an entry is negative or out of range.
  bool Apply(const model::LedgerDelta& delta);

  // Readings of all heads above 0.
  model::LedgerDelta Sparse() const;

  // Starts over with these readings at `version`; no history. False when an entry is negative or out of range.
  bool Restore(uint64_t version, const model::LedgerDelta& readings);

  // All zero, version 0: a new epoch without a checkpoint.
  void Reset();

  template <class Archive>
  void Fields(Archive& a) {
    a(layers_, heads_, version_, lambda_, history_);
    if constexpr (Archive::kLoading)
      if (lambda_.size() != size_t{layers_} * heads_) a.Fail();
  }

 private:
  struct Change {
    uint64_t version = 0;  // The version that this change made.
    model::LedgerDelta delta;
    template <class Archive>
    void Fields(Archive& a) { a(version, delta); }
  };
  size_t Index(uint32_t layer, uint32_t head) const { return size_t{layer} * heads_ + head; }

  uint32_t layers_ = 0, heads_ = 0;
  uint64_t version_ = 0;
  std::vector<Ticks> lambda_;
  std::deque<Change> history_;
};

}  // namespace gyrostat::remedy
