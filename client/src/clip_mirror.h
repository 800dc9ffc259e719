// The sender's side of orders: judges what comes from the daemon against what this client measured itself
// (protocol.md §8) and keeps a copy of the clip ledger and of the registers, moved by the training thread's records.
//
// Judging here is as good as judging at the boundary: an order is compared with its basis, and neither the maxima nor
// the ledger of a past forward ever change. What can change (epoch, expiry, what is left to do) the training thread
// looks at again. Values for registers it judges alone: it knows where they stand.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/src/clip_state.h"
#include "client/src/frame.h"
#include "client/src/settings.h"
#include "client/src/wire_records.h"
#include "model/intervention.h"
#include "remedy/clip_ledger.h"
#include "remedy/registers.h"

namespace gyrostat::client {

// Sender thread only; may allocate.
class ClipMirror {
 public:
  ClipMirror(const Settings* settings, const model::AttemptId& attempt);

  // A report was handed over: its maxima may be an order's basis for 64 boundaries.
  void OnFrame(const Frame& frame);

  // What to do with an order: pass it to the training thread, answer it, or ignore it (it is on its way already).
  struct Verdict {
    enum class Do : uint8_t { kPass, kAnswer, kIgnore } what = Do::kAnswer;
    model::Ack answer;
  };
  // After kPass the order counts as open until its record comes.
  Verdict Judge(const model::Order& order);
  // The training thread's queue was full: the answer to give instead of the pass.
  model::Ack NoRoom(const model::Order& order);

  // An ack to send, for a record of kOutcome.
  model::Ack OnOutcome(const Record& record);
  // What local mode applied, for the next report.
  model::LocalClips OnLocalClip(const Record& record);
  // What the ranks agreed on (agreement/), told with the heads it charged, since several orders may have become one.
  void OnAgreed(const model::Ack& ack);
  void OnAgreedLocal(const model::LocalClips& clips);
  void OnEpoch(const Record& record);

  // Fills the parts of the hello that are state.
  void FillHello(model::Hello* hello) const;

  // A sentence when copy and truth were found apart, which ends all ordering; else empty.
  const std::string& trouble() const { return trouble_; }
  const remedy::ClipLedger& ledger() const { return ledger_; }

 private:
  struct Measured {
    model::Boundary boundary = 0;
    uint64_t ledger_version = 0;
    model::LogitKind kind = model::LogitKind::kUnknown;
    std::vector<float> maxima;
  };

  std::string Refusal(const model::Order& order) const;
  std::string ClipRefusal(const model::Order& order) const;
  std::string Foreign(const model::Order& order) const;
  const Measured* Find(model::Boundary boundary) const;
  model::Ack Answer(const model::Order& order, model::AckOutcome outcome, std::string reason);
  void Remember(const model::Ack& ack);
  void Follow(const model::LedgerDelta& applied, uint64_t version_after);
  // What the training thread says that all became, against the copy.
  void Compare(const Record& record);
  // Repeats on the copy what the training thread did; returns the ticks it charged.
  model::LedgerDelta Repeat(const Record& record, const remedy::ClipShape& shape,
                            const std::vector<model::ClipEntry>& entries);

  const Settings* settings_;
  const model::AttemptId attempt_;
  const bool keeps_maxima_;
  uint32_t epoch_ = 0;
  model::Boundary boundary_ = 0;  // Of the newest report handed over.
  model::Step step_ = 0;
  remedy::ClipLedger ledger_;
  remedy::RegisterFile registers_;
  LocalRegister local_;
  std::deque<Measured> measured_;                // Oldest first.
  std::map<model::OrderId, model::Order> open_;  // Passed on, not yet answered. Bounded by the order queue.
  std::deque<model::Ack> outcomes_;              // Oldest first, at most 256: id, outcome, reason.
  bool failed_ = false;  // An order failed in this epoch: no more are taken.
  uint32_t world_size_ = 0;  // Other than the settings say, since ranks came or went; 0: as they say.
  std::string trouble_;
};

}  // namespace gyrostat::client
