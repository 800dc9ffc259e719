#include "store/thin.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "store/series.h"

namespace gyrostat::store {
namespace {

using model::Report;
using model::Signal;

bool LowIsBad(Signal signal) { return signal == Signal::kAttnEntropy; }

// One value of some reports.
struct Place {
  size_t report = 0, index = 0;
  bool operator==(const Place&) const = default;
};

// The smallest, the largest and the first NaN of values that are added in order. Absent ones do not count.
class Extremes {
 public:
  void Add(Place place, double value) {
    if (model::IsAbsent(value)) return;
    if (std::isnan(value)) {
      if (!nan_) nan_ = place;
      return;
    }
    if (!low_ || value < low_value_) low_ = place, low_value_ = value;
    if (!high_ || value > high_value_) high_ = place, high_value_ = value;
  }
  bool Holds(Place place) const { return low_ == place || high_ == place || nan_ == place; }
  // What a question for the largest answers: a NaN must not hide.
  std::optional<Place> worst() const { return nan_ ? nan_ : high_; }
  std::optional<Place> low() const { return low_; }

 private:
  std::optional<Place> low_, high_, nan_;
  double low_value_ = 0, high_value_ = 0;
};

// The heads that were worst among reports with arrays of `size` values.
std::vector<size_t> TopHeads(std::span<const Report> reports, Signal signal, size_t size) {
  std::vector<double> worst(size, static_cast<double>(model::kAbsent));
  const double sign = LowIsBad(signal) ? -1 : 1;
  for (const Report& report : reports) {
    const std::span<const float> array = report.Array(signal);
    for (size_t i = 0; array.size() == size && i < size; ++i)
      if (!model::IsAbsent(array[i])) worst[i] = Larger(worst[i], sign * static_cast<double>(array[i]));
  }
  std::vector<size_t> heads;
  for (size_t i = 0; i < size; ++i)
    if (!model::IsAbsent(worst[i])) heads.push_back(i);
  const auto before = [&worst](size_t a, size_t b) {
    if (std::isnan(worst[a]) != std::isnan(worst[b])) return std::isnan(worst[a]);
    return worst[a] != worst[b] && !std::isnan(worst[a]) ? worst[a] > worst[b] : a < b;
  };
  const size_t count = std::min(heads.size(), kTopHeads);
  std::partial_sort(heads.begin(), heads.begin() + static_cast<std::ptrdiff_t>(count), heads.end(), before);
  heads.resize(count);
  return heads;
}

// Of an array over heads: calls `take(layer, index, value)` for each value.
template <class Take>
void ForEachOfLayers(std::span<const float> array, size_t heads_per_layer, const Take& take) {
  for (size_t i = 0; i < array.size(); ++i) take(i / heads_per_layer, i, static_cast<double>(array[i]));
}

void KeepWorstHeads(Signal signal, uint32_t layers, uint32_t heads, std::span<Report> reports) {
  const auto first = std::ranges::find_if(reports, [signal](const Report& r) { return !r.Array(signal).empty(); });
  if (first == reports.end()) return;
  const size_t usual_size = first->Array(signal).size();
  const std::vector<size_t> top = TopHeads(reports, signal, usual_size);
  for (Report& report : reports) {
    std::vector<float>& array = report.MutableArray(signal);
    const size_t per_layer = HeadsPerLayer(signal, array.size(), layers, heads);
    if (per_layer <= 1) continue;
    std::vector<Extremes> of_layer(array.size() / per_layer + 1);
    ForEachOfLayers(array, per_layer, [&](size_t l, size_t i, double v) { of_layer[l].Add({0, i}, v); });
    std::vector<float> kept(array.size(), model::kAbsent);
    const auto keep = [&](const std::optional<Place>& place) {
      if (place) kept[place->index] = array[place->index];
    };
    for (const Extremes& extremes : of_layer) {
      keep(extremes.worst());
      if (LowIsBad(signal)) keep(extremes.low());
    }
    for (const size_t i : top)
      if (array.size() == usual_size) kept[i] = array[i];
    array = std::move(kept);
  }
}

// Whether anything is left of it; an array of nothing is no array.
void ClearIfAbsent(std::vector<float>* array) {
  if (std::ranges::all_of(*array, [](float v) { return model::IsAbsent(v); })) array->clear();
}

// `per_layer` values are one series; 1: each is its own.
void KeepExtremesOfArray(Signal signal, uint32_t layers, uint32_t heads, std::span<Report> bucket) {
  std::vector<Extremes> series;
  std::vector<size_t> per_layer;
  for (size_t r = 0; r < bucket.size(); ++r) {
    const std::span<const float> array = bucket[r].Array(signal);
    per_layer.push_back(std::max<size_t>(1, HeadsPerLayer(signal, array.size(), layers, heads)));
    ForEachOfLayers(array, per_layer[r], [&](size_t l, size_t i, double v) {
      if (series.size() <= l) series.resize(l + 1);
      series[l].Add({r, i}, v);
    });
  }
  for (size_t r = 0; r < bucket.size(); ++r) {
    std::vector<float>& array = bucket[r].MutableArray(signal);
    for (size_t i = 0; i < array.size(); ++i) {
      const Extremes& extremes = series[i / per_layer[r]];
      const Place place{r, i};
      const bool kept = per_layer[r] == 1 || LowIsBad(signal) ? extremes.Holds(place) : extremes.worst() == place;
      if (!kept) array[i] = model::kAbsent;
    }
    ClearIfAbsent(&array);
  }
}

void KeepExtremesOfUser(std::span<Report> bucket) {
  std::vector<std::pair<std::string, Extremes>> series;
  const auto of = [&series](const std::string& name) -> Extremes& {
    const auto it = std::ranges::find(series, name, &std::pair<std::string, Extremes>::first);
    return it != series.end() ? it->second : series.emplace_back(name, Extremes()).second;
  };
  for (size_t r = 0; r < bucket.size(); ++r)
    for (const auto& [name, value] : bucket[r].user) of(name).Add({r, 0}, value);
  for (size_t r = 0; r < bucket.size(); ++r)
    std::erase_if(bucket[r].user, [&](const auto& each) { return !of(each.first).Holds({r, 0}); });
}

void KeepExtremes(uint32_t layers, uint32_t heads, std::span<Report> bucket) {
  for (const model::SignalInfo& info : model::Signals()) {
    if (model::IsArray(info.signal)) {
      KeepExtremesOfArray(info.signal, layers, heads, bucket);
      continue;
    }
    Extremes extremes;
    for (size_t r = 0; r < bucket.size(); ++r) extremes.Add({r, 0}, bucket[r].Scalar(info.signal));
    for (size_t r = 0; r < bucket.size(); ++r)
      if (!extremes.Holds({r, 0})) bucket[r].SetScalar(info.signal, static_cast<double>(model::kAbsent));
  }
  for (Report& report : bucket) report.MutableArray(Signal::kRankDigest).clear();
  KeepExtremesOfUser(bucket);
}

}  // namespace

void Thin(engine::Resolution to, uint32_t layers, uint32_t heads, std::vector<Report>* reports) {
  const std::span<Report> all(*reports);
  if (to == engine::Resolution::kHeads) {
    for (const model::SignalInfo& info : model::Signals())
      if (model::IsArray(info.signal)) KeepWorstHeads(info.signal, layers, heads, all);
  } else if (to == engine::Resolution::kExtremes) {
    for (size_t at = 0; at < all.size(); at += kBucketReports)
      KeepExtremes(layers, heads, all.subspan(at, std::min(kBucketReports, all.size() - at)));
  }
}

}  // namespace gyrostat::store
