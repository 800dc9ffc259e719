#include "policy/measure_rules.h"

#include <algorithm>
#include <cmath>

#include "model/architecture.h"
#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::InterventionKind;
using model::InterventionState;

constexpr RunTime kAfterChange = 16;    // protocol.md §9: boundaries after any change but a clip.
constexpr uint64_t kReportsMin = 32;    // And reports before anything relative.

bool IsPostNorm(const ClipState& s) { return model::ArchitectureOf(s.job->model).post_norm_family; }

// Of the post-norm family these are absolute, valid from step 1 (design.md §5).
bool IsAbsolute(const Recommendation& because, const ClipState& s) {
  return because.detector == "grad_profile" || because.detector == "ln_input" ? IsPostNorm(s) : false;
}

bool IsWarmingUp(const ClipState& s, const Measures& m) {
  const uint64_t warmup = s.job->model.warmup_steps.value_or(0);
  if (m.step < 0 || static_cast<uint64_t>(m.step) < warmup) return true;
  return m.envelope.WarmingUntil().value_or(0) > m.boundary;
}

std::optional<Hold> AfterChange(const ClipState& s, const Measures& m) {
  if (m.changed_at == 0 || s.now >= m.changed_at + kAfterChange) return std::nullopt;
  return Hold{"change", "something was changed " + Count(s.now - m.changed_at, "step") + " ago: the first " +
                            std::to_string(kAfterChange) + " show the change, not the run"};
}

}  // namespace

std::optional<Hold> AgainstKind(InterventionKind kind, const ClipState& s, const Measures& m) {
  if (std::string why = ObstacleTo(kind, *s.job); !why.empty()) return Hold{why, why};
  if (!s.failed.empty()) return Hold{s.failed, s.failed};
  if (const std::string& disabled = m.of(kind).disabled; !disabled.empty()) return Hold{disabled, disabled};
  return std::nullopt;
}

std::optional<Hold> AgainstOpening(const Terms& terms, InterventionKind kind, const Recommendation* because,
                                   const ClipState& s, const Measures& m) {
  const KindBook& book = m.of(kind);
  if (because != nullptr && s.now < book.paused_until)
    return Hold{"pause", book.why_paused + "; " + std::to_string(book.paused_until - s.now) + " more to wait"};
  if (std::string held = s.intents.ration().HeldBack(s.now, terms.options); !held.empty())
    return Hold{"ration", std::move(held)};
  if (IsRequest(kind)) return std::nullopt;
  if (IsNearlyOver(*s.job, m.step))
    return Hold{"end", "the run is in its last hundredth: nothing new is begun"};
  if (because == nullptr) return std::nullopt;
  if (auto hold = AfterChange(s, m)) return hold;
  const uint64_t wanted = std::max<uint64_t>(kReportsMin, terms.options.hold_after_start_reports);
  if (!IsAbsolute(*because, s) && m.reports < wanted)
    return Hold{"young", because->detector + " compares with what was before, and only " +
                             Count(m.reports, "report") + " came since the start, wanted " + std::to_string(wanted)};
  return std::nullopt;
}

std::optional<Hold> AgainstSending(const Measure& measure, const model::Report& report, const ClipState& s,
                                   const Measures& m) {
  if (!m.registers.doubt().empty()) return Hold{"doubt", m.registers.doubt()};
  if (IsRequest(measure.view.kind)) return std::nullopt;
  for (const model::Signal signal : {model::Signal::kLoss, model::Signal::kGradNorm})
    if (report.Has(signal) && !std::isfinite(report.Scalar(signal)))
      return Hold{"overflow", "loss or gradient of this step is not finite"};
  const bool goes_on = measure.companion_done || measure.again;  // The second half, or what was there before.
  return goes_on ? std::nullopt : AfterChange(s, m);
}

bool GoesUnasked(const Terms& terms, const Recommendation& because, const ClipState& s, const Measures& m) {
  if (terms.mode != model::Mode::kAct) return false;
  const auto& kinds = terms.options.automatic;
  if (std::find(kinds.begin(), kinds.end(), because.kind) != kinds.end()) return true;
  return because.kind == InterventionKind::kWarmupExtension && IsPostNorm(s) && IsWarmingUp(s, m);
}

std::string WouldDisturb(InterventionKind kind, const Measures& m) {
  if (IsRequest(kind)) return {};
  for (const InterventionKind other : MeasureKinds()) {
    const std::optional<Measure>& open = m.of(other).open;
    if (!open || IsRequest(other) || other == kind) continue;
    if (open->view.state == InterventionState::kSent || open->view.state == InterventionState::kApplied)
      return "the outcome of intent " + open->view.id + " (" + model::Token(other) + ") is still being read";
  }
  return {};
}

}  // namespace gyrostat::policy
