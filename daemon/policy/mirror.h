// The daemon's copy of the client's clip ledger. The client's is the truth: acks and local clips move the copy, a hello
// replaces it. When the copy cannot be right any more it says so, and nothing is ordered until the next hello.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/report.h"
#include "remedy/clip_ledger.h"

namespace gyrostat::policy {

class Mirror {
 public:
  // A ledger of zeros for another model, attempt or epoch.
  void Open(uint32_t layers, uint32_t heads);

  // The whole ledger as a hello tells it. Keeps the history where the copy was right.
  void Settle(uint64_t version, const model::LedgerDelta& readings);

  // What the client applied between two versions. What is in already, or changed nothing, is ignored. True: it moved.
  bool Take(uint64_t before, uint64_t after, const model::LedgerDelta& applied);

  // Why the copy cannot be relied on; empty: it can.
  const std::string& doubt() const { return doubt_; }
  const remedy::ClipLedger& ledger() const { return ledger_; }

  template <class Archive>
  void Fields(Archive& a) { a(ledger_, doubt_); }

 private:
  remedy::ClipLedger ledger_;
  std::string doubt_;
};

}  // namespace gyrostat::policy
