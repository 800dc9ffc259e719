#include "policy/outcome.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/signal.h"
#include "policy/planner.h"
#include "policy/words.h"

namespace gyrostat::policy {
namespace {

using model::Signal;

constexpr double kHighTaus = 1.5;     // design.md §6.
constexpr uint32_t kHighInARow = 3;   // More than these are a failure, in a loop that answers within two boundaries.
constexpr double kWorseTimes = 4;     // Beyond what batches differ by: e^(4 · 0.35) at a log noise of 0.35.
constexpr uint32_t kWorseInARow = 4;  // And not for a single batch.

bool IsFinite(float max) { return !model::IsAbsent(max) && std::isfinite(max); }

double Worst(std::span<const float> maxima) {
  double worst = 0;
  for (const float max : maxima)
    if (IsFinite(max)) worst = std::max(worst, static_cast<double>(max));
  return worst;
}

}  // namespace

void OutcomeWatch::Open(const model::Report& report, uint32_t heads, double tau, uint32_t window_boundaries) {
  *this = OutcomeWatch();
  tau_ = tau;
  heads_ = std::max(heads, 1u);
  window_ = window_boundaries;
  const std::span<const float> maxima = report.Array(Signal::kAttnLogitMax);
  opening_.assign(maxima.begin(), maxima.end());
  opening_worst_ = Worst(opening_);
}

void OutcomeWatch::Applied(uint64_t ledger_version) {
  if (!applied_version_) applied_version_ = ledger_version;
}

std::optional<std::string> OutcomeWatch::Broken(const model::Report& report) const {
  const std::span<const float> maxima = report.Array(Signal::kAttnLogitMax);
  const size_t known = std::min(maxima.size(), opening_.size());
  for (size_t i = 0; i < known; ++i)
    if (IsFinite(opening_[i]) && !std::isfinite(maxima[i]))
      return "Harmful: head " + HeadName(static_cast<uint32_t>(i) / heads_, static_cast<uint32_t>(i) % heads_) +
             " was finite at opening and is " + Number(maxima[i]) + " at step " + std::to_string(report.step) + ".";
  return std::nullopt;
}

void OutcomeWatch::CountStreaks(std::span<const float> maxima) {
  streaks_.resize(maxima.size(), 0);
  for (size_t i = 0; i < maxima.size(); ++i) {
    streaks_[i] = IsFinite(maxima[i]) && maxima[i] > kHighTaus * tau_ ? streaks_[i] + 1 : 0;
    if (streaks_[i] <= longest_) continue;
    longest_ = streaks_[i];
    longest_head_ = static_cast<uint32_t>(i);
  }
}

Verdict OutcomeWatch::AtEnd(double delay) const {
  const uint32_t allowed = std::max(kHighInARow, static_cast<uint32_t>(std::ceil(delay)) + 1);
  const std::string bound = "above 1.5 tau (" + Number(kHighTaus * tau_) + ")";
  if (high_last_ >= kWorseInARow)
    return {model::Outcome::kHarmful, "Harmful: at the end of the window the worst head stood more than " +
                                          Number(kWorseTimes) + " times above its " + Number(opening_worst_) +
                                          " at opening."};
  if (longest_ > allowed)
    return {model::Outcome::kIneffective,
            "Ineffective: head " + HeadName(longest_head_ / heads_, longest_head_ % heads_) + " stayed " + bound +
                " for " + std::to_string(longest_) + " boundaries in a row, wanted at most " +
                std::to_string(allowed) + "."};
  return {model::Outcome::kEffective, "Effective: no head stayed " + bound + " for more than " +
                                          std::to_string(allowed) + " boundaries in a row within " +
                                          std::to_string(window_) + "."};
}

std::optional<Verdict> OutcomeWatch::Observe(const model::Report& report, double delay) {
  if (done_ || !applied_version_ || report.ledger_version < *applied_version_) return std::nullopt;
  if (!since_) since_ = report.boundary;
  if (std::optional<std::string> broken = Broken(report)) {
    done_ = true;
    return Verdict{model::Outcome::kHarmful, *std::move(broken)};
  }
  const std::span<const float> maxima = report.Array(Signal::kAttnLogitMax);
  if (!maxima.empty()) {
    CountStreaks(maxima);
    high_last_ = Worst(maxima) > kWorseTimes * opening_worst_ ? high_last_ + 1 : 0;
  }
  if (report.boundary < *since_ + window_) return std::nullopt;
  done_ = true;
  return AtEnd(delay);
}

}  // namespace gyrostat::policy
