#include "policy/mirror.h"

#include <utility>

namespace gyrostat::policy {
void Mirror::Open(uint32_t layers, uint32_t heads) {
  ledger_ = remedy::ClipLedger(layers, heads);
  doubt_.clear();
}

void Mirror::Settle(uint64_t version, const model::LedgerDelta& readings) {
  doubt_.clear();
  remedy::ClipLedger told(ledger_.layers(), ledger_.heads());
  if (!told.Restore(version, readings)) {
    doubt_ = "the job's hello tells a clip ledger that does not fit its model";
    return;
  }
  if (ledger_.version() == version && ledger_.Sparse() == told.Sparse()) return;
  ledger_ = std::move(told);
}

bool Mirror::Take(uint64_t before, uint64_t after, const model::LedgerDelta& applied) {
  const uint64_t version = ledger_.version();
  // Ranks that agree tell of a change once the round after has confirmed it, and of an order that came to nothing at
  // once: its version may be one that is yet to be told.
  if (after <= version || (before == after && applied.size() == 0)) return false;
  const bool next = before == version && applied.size() > 0;
  if (next && after == before + 1) {
    if (ledger_.Apply(applied) && ledger_.version() == after) return true;
  } else {
    // Several changes told as one, or a gap. The readings are followed all the same, and after a gap are a lower bound.
    remedy::ClipLedger merged(ledger_.layers(), ledger_.heads());
    if (merged.Apply(ledger_.Sparse()) && merged.Apply(applied) && merged.Restore(after, merged.Sparse())) {
      ledger_ = std::move(merged);
      if (!next)
        doubt_ = "the copy of the clip ledger stood at version " + std::to_string(version) +
                 " when the job told of the change from " + std::to_string(before) + " to " + std::to_string(after) +
                 ": something that it applied was not heard";
      return true;
    }
  }
  doubt_ = "the job told of a change of its clip ledger from version " + std::to_string(before) + " to " +
           std::to_string(after) + " that does not fit its model";
  return false;
}

}  // namespace gyrostat::policy
