// Ranks that break one rule of the protocol each. Rules of waiting (poll-if-ready, clock, time-out) are broken by the
// loop around the rank, in job.cc.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "client/src/agreement/agreement.h"
#include "simulation/plan.h"

namespace gyrostat::simulation {

class ClampRank : public client::Agreement {
 public:
  using Agreement::Agreement;

 protected:
  const char* CheckEntry(const client::ProposalEntry& entry, float tau, const client::MeasuredRing::Slot& basis,
                         remedy::Ticks* target) const override {
    if (entry.value <= static_cast<float>(remedy::kClipTicksMax))
      return Agreement::CheckEntry(entry, tau, basis, target);
    *target = ledger_.At(entry.what / ledger_.heads(), entry.what % ledger_.heads()) + remedy::kClipTicksMax;
    return nullptr;
  }
};

class SendTimeRank : public client::Agreement {
 public:
  using Agreement::Agreement;

 protected:
  uint64_t ForwardVersion() const override { return ledger_.version(); }
};

class NoEpochRank : public client::Agreement {
 public:
  using Agreement::Agreement;

 protected:
  bool IsThisHistory(const Issued&) const override { return true; }
  void ForgetEvidence() override {}
  // Versions of the old ledger mean nothing in the new one; a rank without epochs takes the target as it stands.
  const char* CheckEntry(const client::ProposalEntry& entry, float tau, const client::MeasuredRing::Slot& basis,
                         remedy::Ticks* target) const override {
    const char* why = Agreement::CheckEntry(entry, tau, basis, target);
    const auto layer = entry.what / ledger_.heads(), head = entry.what % ledger_.heads();
    if (why == nullptr || ledger_.At(basis.version, layer, head)) return why;
    *target = ledger_.At(layer, head) + static_cast<remedy::Ticks>(entry.value);
    return nullptr;
  }
};

class AlphaOutsideRank : public client::Agreement {
 public:
  using Agreement::Agreement;

 protected:
  uint64_t RegistersHash() const override { return 0; }
};

class AckEarlyRank : public client::Agreement {
 public:
  using Agreement::Agreement;

 protected:
  bool MayConfirm(const Pending& pending, model::Boundary of) const override { return of >= pending.applied_at; }
};

class NewestSRank : public client::Agreement {
 public:
  using Agreement::Agreement;

 protected:
  const client::MeasuredRing::Slot* Basis(model::Boundary, model::Boundary) const override {
    return measured_.Newest();
  }
};

class RejoinEmptyRank : public client::Agreement {
 public:
  using Agreement::Agreement;

 protected:
  const client::RestoredState* StateOf(const client::Passage&) const override { return nullptr; }
};

class RejoinOldEpochRank : public client::Agreement {
 public:
  using Agreement::Agreement;

 protected:
  uint32_t EpochAfter(const client::Passage& brought, uint32_t joined) const override {
    return brought.epoch > 0 ? brought.epoch - 1 : joined;
  }
};

class RejoinHeedlessRank : public client::Agreement {
 public:
  using Agreement::Agreement;

 protected:
  std::string MustLoad(const client::Passage&, model::Boundary) const override { return {}; }
};

inline std::unique_ptr<client::Agreement> MakeRank(Mutant mutant, const client::Settings* settings,
                                                   const client::AgreementTerms& terms,
                                                   const model::AttemptId& attempt) {
  switch (mutant) {
    case Mutant::kClamp:
      return std::make_unique<ClampRank>(settings, terms, attempt);
    case Mutant::kTagBySendTime:
      return std::make_unique<SendTimeRank>(settings, terms, attempt);
    case Mutant::kNoEpoch:
      return std::make_unique<NoEpochRank>(settings, terms, attempt);
    case Mutant::kAlphaOutside:
      return std::make_unique<AlphaOutsideRank>(settings, terms, attempt);
    case Mutant::kAckEarly:
      return std::make_unique<AckEarlyRank>(settings, terms, attempt);
    case Mutant::kNewestS:
      return std::make_unique<NewestSRank>(settings, terms, attempt);
    case Mutant::kRejoinEmpty:
      return std::make_unique<RejoinEmptyRank>(settings, terms, attempt);
    case Mutant::kRejoinOldEpoch:
      return std::make_unique<RejoinOldEpochRank>(settings, terms, attempt);
    case Mutant::kRejoinHeedless:
      return std::make_unique<RejoinHeedlessRank>(settings, terms, attempt);
    default:
      return std::make_unique<client::Agreement>(settings, terms, attempt);
  }
}

}  // namespace gyrostat::simulation
