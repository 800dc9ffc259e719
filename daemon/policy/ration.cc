#include "policy/ration.h"

#include <algorithm>

#include "policy/words.h"

namespace gyrostat::policy {
namespace {

constexpr RunTime kBudgetWindow = 1000;

}  // namespace

uint64_t Ration::Take(RunTime now, Weight weight) {
  if (weight == Weight::kCounted) opened_at_.push_back(now);
  while (!opened_at_.empty() && opened_at_.front() + kBudgetWindow <= now) opened_at_.pop_front();
  return ++last_;
}

void Ration::CoolDown(RunTime until, const std::string& why) {
  if (until <= cool_until_) return;
  cool_until_ = until;
  why_cool_ = why;
}

std::string Ration::OverBudget(RunTime now, const PolicyOptions& options) const {
  const auto recent =
      std::count_if(opened_at_.begin(), opened_at_.end(), [now](RunTime at) { return at + kBudgetWindow > now; });
  if (recent < options.budget_per_1000_steps) return {};
  return Count(static_cast<uint64_t>(recent), "intent") + " within the last 1000 boundaries, which is the budget";
}

std::string Ration::HeldBack(RunTime now, const PolicyOptions& options) const {
  if (now < cool_until_) return why_cool_ + "; " + std::to_string(cool_until_ - now) + " more to wait";
  return OverBudget(now, options);
}

}  // namespace gyrostat::policy
