#include "client/src/agreement/state_digest.h"

#include <bit>
#include <string>

#include "base/mix.h"

namespace gyrostat::client {
namespace {

// One head's term. A head at zero adds nothing, so that an empty ledger hashes to zero whatever its size.
uint64_t Term(uint32_t layer, uint32_t head, remedy::Ticks lambda) {
  return lambda == 0 ? 0 : base::Mix(base::Mix(uint64_t{layer} << 32 | head, 0), static_cast<uint64_t>(lambda));
}

}  // namespace

void LedgerHash::Read(const remedy::ClipLedger& ledger) {
  sum_ = 0;
  for (uint32_t layer = 0; layer < ledger.layers(); ++layer)
    for (uint32_t head = 0; head < ledger.heads(); ++head) sum_ += Term(layer, head, ledger.At(layer, head));
}

void LedgerHash::Moved(const remedy::ClipLedger& ledger, const model::LedgerDelta& delta) {
  for (size_t i = 0; i < delta.size(); ++i) {
    const remedy::Ticks now = ledger.At(delta.layer[i], delta.head[i]);
    sum_ += Term(delta.layer[i], delta.head[i], now) - Term(delta.layer[i], delta.head[i], now - delta.ticks[i]);
  }
}

uint64_t TermsHash(const Settings& settings) {
  uint64_t h = base::Mix(settings.model.layers, uint64_t{settings.model.heads} << 32 | settings.model.KvHeads());
  for (const std::string& kind : settings.allow) h = base::MixBytes(h, kind);
  h = base::Mix(h, std::bit_cast<uint64_t>(settings.tau_min));
  h = base::Mix(h, static_cast<uint64_t>(settings.model.norm_gain) << 16 |
                       static_cast<uint64_t>(settings.model.attention) << 8 |
                       static_cast<uint64_t>(settings.model.qk_norm));
  h = base::Mix(h, settings.model.master_fp32 ? uint64_t{*settings.model.master_fp32} + 1 : 0);
  h = base::Mix(h, settings.model.logit_softcap ? std::bit_cast<uint64_t>(*settings.model.logit_softcap) : 0);
  const model::AttnLogitInfo& made = settings.attn_logit;
  return base::Mix(h, static_cast<uint64_t>(made.kind) << 4 | static_cast<uint64_t>(made.scaled) << 3 |
                    static_cast<uint64_t>(made.masked) << 2 | static_cast<uint64_t>(made.with_bias) << 1 |
                    static_cast<uint64_t>(made.pre_cap));
}

uint64_t DigestOf(const DigestParts& parts) {
  uint64_t h = base::MixBytes(kProtocolVersion, parts.attempt.AsBytes());
  for (const uint64_t word : {parts.terms, uint64_t{parts.epoch}, parts.ledger_version, parts.ledger, parts.registers})
    h = base::Mix(h, word);
  h = base::Mix(h, std::bit_cast<uint64_t>(parts.local.tau));
  h = base::Mix(h, static_cast<uint64_t>(parts.local.variant));
  return base::Mix(h, std::bit_cast<uint64_t>(parts.local.split));
}

uint64_t StateDigest(const Settings& settings, const model::AttemptId& attempt, uint32_t epoch,
                     const remedy::ClipLedger& ledger, const remedy::RegisterFile& registers,
                     const LocalRegister& local) {
  return DigestOf({.terms = TermsHash(settings),
                   .attempt = attempt,
                   .epoch = epoch,
                   .ledger_version = ledger.version(),
                   .ledger = LedgerHash(ledger).value(),
                   .registers = registers.hash(),
                   .local = local});
}

}  // namespace gyrostat::client
