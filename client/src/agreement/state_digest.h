// The 64-bit digest by which ranks see whether their states are equal (protocol.md §3): protocol version, attempt,
// epoch, clip ledger with its version, registers as set and as read back, the learning rate's envelope, clip mode,
// allow-list, bounds.
//
// Pure; not thread-safe. The ledger's part is a sum with one term per head, so that a boundary that clips three heads
// of 16,384 costs three terms.
#pragma once

#include <cstdint>
#include <vector>

#include "client/src/settings.h"
#include "client/src/wire_records.h"
#include "model/ids.h"
#include "model/report.h"
#include "remedy/clip_ledger.h"
#include "remedy/registers.h"

namespace gyrostat::client {

inline constexpr uint32_t kProtocolVersion = 1;

// Follows a ledger.
class LedgerHash {
 public:
  LedgerHash() = default;
  explicit LedgerHash(const remedy::ClipLedger& ledger) { Read(ledger); }
  void Read(const remedy::ClipLedger& ledger);
  // `ledger` has just taken `delta`, heads each once.
  void Moved(const remedy::ClipLedger& ledger, const model::LedgerDelta& delta);
  uint64_t value() const { return sum_; }

 private:
  uint64_t sum_ = 0;
};

// What never changes between two joins: allow-list, bounds, how maxima are made.
uint64_t TermsHash(const Settings& settings);

struct DigestParts {
  uint64_t terms = 0;
  model::AttemptId attempt;
  uint32_t epoch = 0;
  uint64_t ledger_version = 0, ledger = 0;
  uint64_t registers = 0;
  LocalRegister local;
};
uint64_t DigestOf(const DigestParts& parts);

// Of a job with one rank, by what training thread and sender both know: registers as set. (The envelope follows from
// them and from rates that the sender is never told.)
uint64_t StateDigest(const Settings& settings, const model::AttemptId& attempt, uint32_t epoch,
                     const remedy::ClipLedger& ledger, const remedy::RegisterFile& registers,
                     const LocalRegister& local);

}  // namespace gyrostat::client
