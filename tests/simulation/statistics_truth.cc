#include "simulation/statistics_truth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "client/src/agreement/statistics.h"

namespace gyrostat::simulation {
namespace {

using model::Signal;

constexpr double kNone = RankSaid::kNone;
constexpr double kNear = 1e-5;  // Lanes are float32, and ranks are few.

void Tell(std::string_view name, double value, client::Frame* frame) {
  if (model::IsAbsent(value)) return;
  client::UserScalar& scalar = frame->user[frame->user_count++];
  name.copy(scalar.name, name.size());
  scalar.name_size = static_cast<uint32_t>(name.size());
  scalar.value = value;
}

void Tell(Signal signal, const std::vector<float>& values, client::Frame* frame) {
  frame->Resize(signal, values.size());
  std::copy(values.begin(), values.end(), frame->Array(signal));
}

bool AnyOdd(const std::vector<float>& values) {
  return std::any_of(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
}

// A value of many ranks. Absent counts for nothing, NaN or infinity for everything.
class Reduced {
 public:
  void Add(double value, double weight = 1) {
    if (model::IsAbsent(value)) return;
    any_ = true;
    odd_ |= !std::isfinite(value);
    value_ += value * weight;
    weight_ += weight;
    most_ = std::max(most_, value);
    least_ = std::min(least_, value);
  }
  double Mean() const { return Or(value_ / weight_); }
  double Sum() const { return Or(value_); }
  double Most() const { return Or(most_); }
  double Least() const { return Or(least_); }

 private:
  double Or(double value) const { return !any_ ? kNone : odd_ ? std::nan("") : value; }

  bool any_ = false, odd_ = false;
  double value_ = 0, weight_ = 0;
  double most_ = -std::numeric_limits<double>::infinity(), least_ = std::numeric_limits<double>::infinity();
};

// Norms of shares: squares add up, over all copies that say them.
double Norm(const std::vector<RankSaid>& said, double share, double (*of)(const RankSaid&, size_t), size_t i) {
  Reduced squares;
  double weight = 0;
  for (const RankSaid& each : said) {
    const double value = of(each, i);
    if (model::IsAbsent(value)) continue;
    squares.Add(value * value);
    weight += share;
  }
  const double sum = squares.Sum();
  return model::IsAbsent(sum) ? kNone : std::sqrt(sum / weight);
}

double At(const std::vector<float>& values, size_t i) {
  return values.empty() ? kNone : static_cast<double>(values[i]);
}

std::string Name(Signal signal) {
  for (const model::SignalInfo& info : model::Signals())
    if (info.signal == signal) return std::string(info.name);
  return "a signal";
}

class Report {
 public:
  explicit Report(const model::Report& report) : report_(report) {}

  void Scalar(Signal signal, double wanted) {
    Compare(Name(signal), report_.Scalar(signal), wanted);
  }
  template <class Wanted>
  void Array(Signal signal, size_t count, const Wanted& wanted) {
    bool any = false;
    for (size_t i = 0; i < count; ++i) any |= !model::IsAbsent(wanted(i));
    const std::span<const float> seen = report_.Array(signal);
    if (!any && seen.empty()) return;
    for (size_t i = 0; i < count; ++i)
      Compare(Name(signal) + " " + std::to_string(i),
              i < seen.size() ? static_cast<double>(seen[i]) : kNone, wanted(i));
  }
  void Compare(const std::string& name, double seen, double wanted) {
    const bool same = seen == wanted          ? true
                      : std::isnan(wanted)    ? std::isnan(seen)
                      : model::IsAbsent(seen) ? model::IsAbsent(wanted)
                                              : std::abs(seen - wanted) <= kNear * std::abs(wanted);
    if (!same && wrong_.empty())
      wrong_ = "the report says " + Shown(seen) + " for " + name + ", the ranks' values give " + Shown(wanted);
  }
  const std::string& wrong() const { return wrong_; }

 private:
  static std::string Shown(double value) { return model::IsAbsent(value) ? "nothing" : std::to_string(value); }

  const model::Report& report_;
  std::string wrong_;
};

void CheckDigest(const std::vector<RankSaid>& said, const model::Report& report, Report* check) {
  const std::span<const float> digest = report.Array(Signal::kRankDigest);
  constexpr size_t kFields = model::kRankDigestFields;
  check->Compare("the number of digests", static_cast<double>(digest.size()),
                 static_cast<double>(said.size() * kFields));
  const auto as_lane = [](double v) { return model::IsAbsent(v) || std::isfinite(v) ? v : std::nan(""); };
  for (size_t r = 0; r < said.size() && digest.size() == said.size() * kFields; ++r) {
    const std::string name = "the digest of rank " + std::to_string(r) + ", field ";
    const RankSaid& each = said[r];
    const double wanted[] = {static_cast<double>(r), as_lane(each.loss), as_lane(each.rank_norm), each.step_ms,
                             each.checksum};
    for (size_t field = 0; field < kFields; ++field)
      check->Compare(name + std::to_string(field), static_cast<double>(digest[r * kFields + field]), wanted[field]);
  }
}

// What is in the SUM, or follows from it.
void CheckSums(const Plan& plan, const std::vector<RankSaid>& said, const model::Report& report, Report* check) {
  Reduced loss;
  double odd = 0;
  for (const RankSaid& each : said) {
    loss.Add(each.loss, model::IsAbsent(each.tokens) ? 1 : each.tokens);
    odd += each.IsOdd() ? 1 : 0;
  }
  const double share = 1.0 / plan.shards;
  check->Scalar(Signal::kLoss, loss.Mean());
  check->Scalar(Signal::kGradNorm,
                Norm(said, share, [](const RankSaid& each, size_t) { return each.norm_share; }, 0));
  check->Array(Signal::kLayerGradNorm, plan.layers, [&](size_t i) {
    return Norm(said, share, [](const RankSaid& each, size_t layer) { return At(each.layer_norm, layer); }, i);
  });
  // Means over rows: every rank's share is as large as another's.
  check->Array(Signal::kUpdateRms, plan.layers, [&](size_t i) {
    return Norm(said, 1, [](const RankSaid& each, size_t layer) { return At(each.update_rms, layer); }, i);
  });
  double seen = 0;
  for (const auto& [name, value] : report.user)
    if (name == client::kNonfiniteRanks) seen = value;
  check->Compare("the ranks with something not finite", seen, odd);
}

// What the leader knows without a SUM: its own means, and no norms of mere shares.
void CheckAlone(const Plan& plan, const RankSaid& own, Report* check) {
  const bool whole = plan.shards == 1 || !plan.sums;  // A job that has no SUM at all keeps the leader's norms.
  check->Scalar(Signal::kLoss, own.loss);
  check->Scalar(Signal::kGradNorm, kNone);
  check->Array(Signal::kLayerGradNorm, plan.layers, [&](size_t i) { return whole ? At(own.layer_norm, i) : kNone; });
  check->Array(Signal::kUpdateRms, plan.layers, [&](size_t i) { return whole ? At(own.update_rms, i) : kNone; });
}

}  // namespace

void RankSaid::WriteTo(model::Step step, client::Frame* frame) const {
  frame->Begin(step);
  frame->scalars[static_cast<size_t>(Signal::kLoss)] = loss;
  frame->scalars[static_cast<size_t>(Signal::kLossScale)] = loss_scale;
  Tell(client::kTokensScalar, tokens, frame);
  Tell(client::kNormShareScalar, norm_share, frame);
  Tell(client::kRankNormScalar, rank_norm, frame);
  Tell(client::kRankTimeScalar, step_ms, frame);
  Tell(client::kChecksumScalar, checksum, frame);
  Tell(Signal::kAttnLogitMax, maxima, frame);
  Tell(Signal::kLayerGradNorm, layer_norm, frame);
  Tell(Signal::kUpdateRms, update_rms, frame);
  Tell(Signal::kNonfinite, nonfinite, frame);
  Tell(Signal::kHiddenAbsmax, hidden_absmax, frame);
  frame->logit_kind = model::LogitKind::kExact;
}

bool RankSaid::IsOdd() const {
  return reported && (!std::isfinite(loss) || !std::isfinite(norm_share) || AnyOdd(maxima) || AnyOdd(layer_norm) ||
                      AnyOdd(hidden_absmax));
}

RankSaid Measure(const Plan& plan, double weights, std::vector<float> maxima, Dice* dice) {
  RankSaid said{.reported = true, .maxima = std::move(maxima)};
  const auto absent = [&] { return plan.absent > 0 && dice->Chance(plan.absent); };
  // Now and then as large as no square in float32 can be.
  const auto norm = [&] { return (0.5 + dice->Real()) * (dice->Chance(0.01) ? 1e20 : 1); };
  const auto odd = [&](auto* value) {
    using Value = std::remove_pointer_t<decltype(value)>;
    if (plan.odd > 0 && dice->Chance(plan.odd))
      *value = dice->Chance(0.5) ? std::numeric_limits<Value>::quiet_NaN() : std::numeric_limits<Value>::infinity();
  };
  if (!absent()) odd(&(said.loss = 2 + dice->Real()));
  if (!absent()) said.tokens = static_cast<double>(dice->Between(1, 1 << 20));
  if (!absent()) odd(&(said.norm_share = norm()));
  if (!absent()) said.rank_norm = norm();
  if (!absent()) said.step_ms = 10 + dice->Real();
  if (!absent()) said.checksum = weights;
  if (!absent()) said.loss_scale = static_cast<double>(1 << dice->Between(0, 16));
  const auto fill = [&](size_t count, std::vector<float>* values, const auto& value) {
    if (absent()) return;
    for (size_t i = 0; i < count; ++i) values->push_back(static_cast<float>(value()));
  };
  fill(plan.layers, &said.layer_norm, norm);
  fill(plan.layers, &said.update_rms, [&] { return 1e-3 * dice->Real(); });
  fill(plan.layers, &said.nonfinite, [&] { return dice->Chance(0.05) ? dice->Between(1, 1000) : 0; });
  fill(plan.layers + 1, &said.hidden_absmax, [&] { return 10 * dice->Real(); });
  if (!said.layer_norm.empty()) odd(&said.layer_norm[0]);
  if (!said.hidden_absmax.empty()) odd(&said.hidden_absmax.back());
  return said;
}

std::string CheckReport(const Plan& plan, const std::vector<RankSaid>& said, bool sums, const model::Report& report) {
  Report check(report);
  Reduced scale;
  for (const RankSaid& each : said) scale.Add(each.loss_scale);
  check.Scalar(Signal::kLossScale, scale.Least());
  check.Array(Signal::kHiddenAbsmax, plan.layers + 1, [&](size_t i) {
    Reduced most;
    for (const RankSaid& each : said) most.Add(At(each.hidden_absmax, i));
    return most.Most();
  });
  check.Array(Signal::kAttnLogitMax, plan.head_count(), [&](size_t i) {
    Reduced most;
    for (const RankSaid& each : said) most.Add(At(each.maxima, i));
    return most.Most();
  });
  check.Array(Signal::kNonfinite, plan.layers, [&](size_t i) {
    Reduced count;
    for (const RankSaid& each : said) count.Add(At(each.nonfinite, i));
    return sums ? count.Sum() : count.Most();
  });
  CheckDigest(said, report, &check);
  if (sums)
    CheckSums(plan, said, report, &check);
  else
    CheckAlone(plan, said[0], &check);
  return check.wrong();
}

}  // namespace gyrostat::simulation
