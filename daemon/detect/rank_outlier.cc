#include "detect/rank_outlier.h"

#include <algorithm>
#include <cmath>

#include "detect/scan.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using model::Signal;

constexpr uint32_t kRanksMin = 4;
// Of so many ranks the offences are kept; a job whose every rank is odd has no outlier.
constexpr size_t kRanksMax = 64;
constexpr int kOffencesMax = 200;
constexpr double kMadToSigma = 1.4826;

const char* FieldName(uint32_t field) {
  return field == 1 ? "loss" : field == 2 ? "gradient norm" : "step time";
}

// Of the first `count`, which it reorders.
double Median(std::array<double, model::kRankSlotsMax>* values, size_t count) {
  const auto begin = values->begin(), middle = begin + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(begin, middle, begin + static_cast<std::ptrdiff_t>(count));
  return count % 2 == 1 ? *middle : 0.5 * (*middle + *std::max_element(begin, middle));
}

size_t Slots(std::span<const float> digest) {
  return std::min<size_t>(digest.size() / model::kRankDigestFields, model::kRankSlotsMax);
}
float At(std::span<const float> digest, size_t slot, uint32_t field) {
  return digest[slot * model::kRankDigestFields + field];
}
bool IsRank(float v) { return IsFinite(v) && v >= 0 && v < 1e9f; }

}  // namespace

// A gradient norm is judged in its logarithm; one that is 0 or -1 was not measured.
RankOutlier::Spread RankOutlier::SpreadOf(std::span<const float> digest, Field field) const {
  std::array<double, model::kRankSlotsMax> values;
  size_t count = 0, measured = 0;
  for (size_t slot = 0; slot < Slots(digest); ++slot) {
    const float v = At(digest, slot, field);
    if (!IsRank(At(digest, slot, kRank)) || model::IsAbsent(v)) continue;
    ++measured;
    if (!IsFinite(v) || (field != kLoss && v <= 0)) continue;
    values[count++] = field == kGrad ? std::log(static_cast<double>(v)) : v;
  }
  if (count < kRanksMin || 2 * count <= measured) return {};
  Spread spread;
  spread.median = Median(&values, count);
  for (size_t i = 0; i < count; ++i) values[i] = std::fabs(values[i] - spread.median);
  const double floor = field == kLoss ? options_.loss_floor * std::fabs(spread.median) : options_.grad_floor;
  spread.deviation = std::max(kMadToSigma * Median(&values, count), floor);
  spread.known = spread.deviation > 0;
  return spread;
}

bool RankOutlier::IsFar(float value, Field field, const Spread& spread) const {
  if (field == kTime)
    return value > options_.slow_ratio * spread.median && value - spread.median > options_.slow_ms_min;
  if (!IsFinite(value)) return true;
  if (field == kGrad && value <= 0) return false;
  const double judged = field == kGrad ? std::log(static_cast<double>(value)) : value;
  return std::fabs(judged - spread.median) > options_.far_deviations * spread.deviation;
}

void RankOutlier::Count(uint32_t rank, Field field, bool far) {
  auto at = std::find_if(state_.offenders.begin(), state_.offenders.end(),
                         [rank](const Offender& offender) { return offender.rank == rank; });
  if (at == state_.offenders.end()) {
    if (!far || state_.offenders.size() == kRanksMax) return;
    state_.offenders.push_back({.rank = rank, .offences = {}});
    at = state_.offenders.end() - 1;
  }
  uint8_t& offences = at->offences[field - kLoss];
  offences = static_cast<uint8_t>(std::clamp(offences + (far ? 2 : -1), 0, kOffencesMax));
  if (std::all_of(at->offences.begin(), at->offences.end(), [](uint8_t n) { return n == 0; }))
    state_.offenders.erase(at);
}

void RankOutlier::ObserveField(std::span<const float> digest, Field field, const Sustained::Context& context) {
  const Spread spread = SpreadOf(digest, field);
  if (!spread.known) return;
  for (size_t slot = 0; slot < Slots(digest); ++slot) {
    const float rank = At(digest, slot, kRank), value = At(digest, slot, field);
    if (IsRank(rank) && !model::IsAbsent(value)) Count(static_cast<uint32_t>(rank), field, IsFar(value, field, spread));
  }
  const uint32_t limit = field == kTime ? options_.slow_offences : options_.offences;
  const Offender* worst = nullptr;
  uint32_t many = 0;
  for (const Offender& offender : state_.offenders) {
    if (offender.offences[field - kLoss] < limit) continue;
    ++many;
    if (worst == nullptr || offender.offences[field - kLoss] > worst->offences[field - kLoss]) worst = &offender;
  }
  std::optional<Severity> severity;
  if (worst != nullptr) severity = field == kTime ? Severity::kInfo : Severity::kWarning;
  Sustained& watch = field == kTime ? state_.slow : state_.values[field - kLoss];
  watch.Observe(
      severity, {.hold = 1, .quiet = options_.quiet_reports}, context,
      [&](model::Finding* finding) {
        finding->signal = Signal::kRankDigest;
        finding->rank = worst->rank;
        for (size_t slot = 0; slot < Slots(digest); ++slot)
          if (At(digest, slot, kRank) == static_cast<float>(worst->rank)) finding->value = At(digest, slot, field);
        finding->expected = field == kGrad ? std::exp(spread.median) : spread.median;
        finding->message =
            Sentence("Rank %u's %s, %.4g, has been far from the other ranks' %.4g in most of its recent reports",
                     worst->rank, FieldName(field), finding->value, finding->expected);
        if (many > 1) finding->message += Sentence("; %u more with it", many - 1);
        finding->message += field == kTime ? ": it holds the others up." : ": look at its data and its hardware.";
      },
      [&] { return Sentence("All ranks agree on the %s again.", FieldName(field)); });
}

void RankOutlier::ObserveWeights(std::span<const float> digest, const Sustained::Context& context) {
  std::array<double, model::kRankSlotsMax> sums;
  size_t count = 0;
  for (size_t slot = 0; slot < Slots(digest); ++slot) {
    const float v = At(digest, slot, kChecksum);
    if (IsRank(At(digest, slot, kRank)) && IsFinite(v) && !model::IsAbsent(v)) sums[count++] = v;
  }
  if (count < 2) return;
  const auto end = sums.begin() + static_cast<std::ptrdiff_t>(count);
  double usual = sums[0];
  auto odd = static_cast<uint32_t>(count - static_cast<size_t>(std::count(sums.begin(), end, usual)));
  if (odd > 0 && count > 2) {
    // The checksum that most ranks have, where most have one: the middle of all.
    std::array<double, model::kRankSlotsMax> sorted = sums;
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count));
    usual = sorted[count / 2];
    odd = static_cast<uint32_t>(count - static_cast<size_t>(std::count(sums.begin(), end, usual)));
  }
  std::optional<Severity> severity;
  if (odd > 0) severity = state_.weights.run() >= 1 ? Severity::kCritical : Severity::kWarning;
  state_.weights.Observe(
      severity, {.hold = 1, .quiet = options_.quiet_reports}, context,
      [&](model::Finding* finding) {
        finding->signal = Signal::kRankDigest;
        finding->expected = usual;
        for (size_t slot = 0; slot < Slots(digest) && !finding->rank; ++slot) {
          const float v = At(digest, slot, kChecksum);
          if (!IsRank(At(digest, slot, kRank)) || !IsFinite(v) || model::IsAbsent(v) || v == usual) continue;
          finding->rank = static_cast<uint32_t>(At(digest, slot, kRank));
          finding->value = v;
        }
        finding->message = Sentence("Weights differ between replicas: %s of %zu that report %s not the others' sum",
                                    Counted(odd, "rank").c_str(), count, odd == 1 ? "has" : "have");
        if (finding->rank) finding->message += Sentence(", rank %u among them", *finding->rank);
        finding->message += ". What they train on from here on is not one model.";
      },
      [&] { return Sentence("The weights of all ranks that report are equal again."); });
}

void RankOutlier::Observe(const model::Report& report, std::vector<model::Finding>* out) {
  const std::span<const float> digest = report.Array(Signal::kRankDigest);
  if (digest.size() < 2 * model::kRankDigestFields || digest.size() % model::kRankDigestFields != 0) return;
  if (state_.offenders.capacity() == 0) state_.offenders.reserve(kRanksMax);
  const Sustained::Context context{name(), report.step, &state_.next_key, out};
  ObserveWeights(digest, context);
  for (const Field field : {kLoss, kGrad, kTime}) ObserveField(digest, field, context);
}

void RankOutlier::OnBreak(Break kind, model::Step step, std::vector<model::Finding>* out) {
  if (kind == Break::kIntervention) return;
  for (Sustained* watch : {&state_.weights, &state_.slow, &state_.values[0], &state_.values[1]})
    watch->Break(EndedBy(kind, step), out);
  state_.offenders.clear();
}

}  // namespace gyrostat::detect
