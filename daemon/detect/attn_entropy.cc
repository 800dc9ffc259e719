#include "detect/attn_entropy.h"

#include <algorithm>
#include <cmath>

#include "detect/scan.h"
#include "detect/text.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Signal;


}  // namespace

AttnEntropy::AttnEntropy(const AttnEntropyOptions& options, const model::ModelSpec& spec)
    : options_(options), layers_(spec.layers), heads_(spec.heads) {}

AttnEntropy::Look AttnEntropy::Follow(std::span<const float> entropies) {
  Look look;
  uint16_t longest = 0;
  const auto line = static_cast<float>(options_.entropy_min_nats);
  for (size_t i = 0; i < entropies.size(); ++i) {
    const float entropy = entropies[i];
    // A mean of p ln p is never below 0 but for rounding; -1 and absent are no measurement.
    if (!IsFinite(entropy) || entropy < -line) continue;
    ++look.measured;
    state_.highest[i] = std::max(state_.highest[i], entropy);
    const bool low = entropy < line && static_cast<double>(state_.highest[i]) >= options_.fall_ratio * line;
    if (!low) {
      state_.low[i] = 0;
      continue;
    }
    if (state_.low[i] < UINT16_MAX) ++state_.low[i];
    if (state_.low[i] < options_.hold_reports) continue;
    ++look.collapsed;
    if (state_.low[i] <= longest) continue;
    longest = state_.low[i];
    look.first = i;
  }
  return look;
}

void AttnEntropy::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const std::span<const float> entropies = report.Array(Signal::kAttnEntropy);
  if (entropies.empty()) return;
  if (entropies.size() != state_.low.size()) {
    state_.highest.assign(entropies.size(), 0);
    state_.low.assign(entropies.size(), 0);
  }
  const Look look = Follow(entropies);
  if (look.measured > 0) Tell(report, look, out);
}

void AttnEntropy::Tell(const model::Report& report, const Look& look, std::vector<model::Finding>* out) {
  if (look.collapsed > 0) state_.last_collapsed = report.step;
  if (state_.condition.open()) {
    state_.most = std::max(state_.most, look.collapsed);
    state_.quiet = look.collapsed == 0 ? Saturating(state_.quiet) : 0;
    if (state_.quiet >= options_.quiet_reports) {
      state_.condition.End(state_.last_collapsed, true,
                           Sentence("No head is collapsed any more; at most %u were at once.", state_.most), out);
      return;
    }
  } else if (look.collapsed == 0) {
    return;
  } else {
    state_.most = look.collapsed;
    state_.quiet = 0;
  }
  const double many = std::max(2.0, options_.heads_share * look.measured);
  const auto severity = look.collapsed >= many ? Severity::kWarning : Severity::kInfo;
  if (state_.condition.open() && severity <= state_.condition.finding().severity) return;
  const bool fresh = !state_.condition.open();
  if (fresh) state_.condition.Open(name(), Signal::kAttnEntropy, report.step, report.step, &state_.next_key);
  model::Finding& finding = state_.condition.finding();
  finding.severity = severity;
  const size_t size = state_.low.size();
  if (fresh && heads_ > 0 && size != layers_) {
    finding.layer = static_cast<uint32_t>(look.first / heads_);
    finding.head = static_cast<uint32_t>(look.first % heads_);
  } else if (fresh) {
    finding.layer = static_cast<uint32_t>(look.first);
  }
  finding.value = report.Array(Signal::kAttnEntropy)[look.first];
  finding.expected = state_.highest[look.first];
  finding.message = Sentence("%s of %u %s collapsed: the mean row entropy is below %.2g nats for %u reports; the first "
                             "stood at %.3g.", Counted(look.collapsed, size == layers_ ? "layer" : "head").c_str(),
                             look.measured, look.collapsed == 1 ? "has" : "have", options_.entropy_min_nats,
                             options_.hold_reports, finding.expected);
  state_.condition.Say(out);
}

void AttnEntropy::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind == Break::kIntervention) return;
  if (state_.condition.open()) state_.condition.End(state_.last_collapsed, std::nullopt, EndedBy(kind, step), out);
  std::fill(state_.low.begin(), state_.low.end(), uint16_t{0});
  // Other weights: what heads once were does not count. A resume goes on with the same heads.
  if (kind == Break::kNewEpoch) std::fill(state_.highest.begin(), state_.highest.end(), 0.f);
}

}  // namespace gyrostat::detect
