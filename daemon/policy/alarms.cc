#include "policy/alarms.h"

#include <algorithm>
#include <utility>

namespace gyrostat::policy {
namespace {

constexpr RunTime kWindow = 1000;

}  // namespace

void Alarms::Begin(Key key, model::Severity severity, model::Finding finding, std::vector<model::Finding>* out) {
  if (IsOpen(key)) return;
  finding.key = static_cast<uint64_t>(key);
  finding.detector = "policy";
  finding.severity = severity;
  if (key <= Key::kFailed) finding.signal = model::Signal::kAttnLogitMax;
  finding.step_detected = finding.step_begin;
  open_[static_cast<uint8_t>(key)] = finding;
  out->push_back(std::move(finding));
}

void Alarms::End(Key key, model::Step step, std::vector<model::Finding>* out) {
  const auto it = open_.find(static_cast<uint8_t>(key));
  if (it == open_.end()) return;
  model::Finding& open = it->second;
  open.step_end = std::max(step, open.step_begin);
  out->push_back(std::move(open));
  open_.erase(it);
}

void TugOfWar::Open(const remedy::ClipLedger& ledger, RunTime now) {
  for (Window& window : windows_) ledger.ReadAt(ledger.version(), &window.base);
  windows_[0].until = now + kWindow;
  windows_[1].until = now + kWindow / 2;
}

std::optional<TugOfWar::Hit> TugOfWar::Observe(const remedy::ClipLedger& ledger, RunTime now) {
  const size_t heads_total = size_t{ledger.layers()} * ledger.heads();
  std::optional<Hit> worst;
  for (Window& window : windows_) {
    if (now >= window.until || window.base.size() != heads_total) {
      window.until = now + kWindow;
      ledger.ReadAt(ledger.version(), &window.base);
      continue;
    }
    for (size_t i = 0; i < window.base.size(); ++i) {
      const auto layer = static_cast<uint32_t>(i / ledger.heads()), head = static_cast<uint32_t>(i % ledger.heads());
      // A base that no ledger can have held is one of bytes that lie: it must not overflow the difference.
      const remedy::Ticks base = std::clamp(window.base[i], remedy::Ticks{0}, remedy::ClipLedger::kLambdaMax);
      const remedy::Ticks ticks = ledger.At(layer, head) - base;
      const double nats = static_cast<double>(ticks) / remedy::kTicksPerNat;
      if (ticks > kTicksMax && (!worst || nats > worst->nats)) worst = Hit{layer, head, nats};
    }
  }
  return worst;
}

}  // namespace gyrostat::policy
