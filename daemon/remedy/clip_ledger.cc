#include "remedy/clip_ledger.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace gyrostat::remedy {
namespace {

// Heads that one version is expected to change: more only cost an allocation.
constexpr size_t kForeseenHeads = 64;

using Place = std::pair<uint32_t, uint32_t>;

Place PlaceOf(const model::LedgerDelta& delta, size_t i) { return {delta.layer[i], delta.head[i]}; }

bool InOrder(const model::LedgerDelta& delta) {
  for (size_t i = 1; i < delta.size(); ++i)
    if (PlaceOf(delta, i - 1) >= PlaceOf(delta, i)) return false;
  return true;
}

void Append(uint32_t layer, uint32_t head, Ticks ticks, model::LedgerDelta* delta) {
  delta->layer.push_back(layer);
  delta->head.push_back(head);
  delta->ticks.push_back(ticks);
}

void Clear(model::LedgerDelta* delta) {
  delta->layer.clear();
  delta->head.clear();
  delta->ticks.clear();
}

// `delta` in order of layer and head, each head once, without zeros.
void Canonical(const model::LedgerDelta& delta, model::LedgerDelta* out) {
  Clear(out);
  if (InOrder(delta)) {
    for (size_t i = 0; i < delta.size(); ++i)
      if (delta.ticks[i] > 0) Append(delta.layer[i], delta.head[i], delta.ticks[i], out);
    return;
  }
  std::vector<std::tuple<uint32_t, uint32_t, Ticks>> sorted;
  sorted.reserve(delta.size());
  for (size_t i = 0; i < delta.size(); ++i)
    if (delta.ticks[i] > 0) sorted.emplace_back(delta.layer[i], delta.head[i], delta.ticks[i]);
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [layer, head, ticks] : sorted) {
    if (out->size() > 0 && PlaceOf(*out, out->size() - 1) == Place{layer, head})
      out->ticks.back() += ticks;
    else
      Append(layer, head, ticks, out);
  }
}

// Ticks that `delta` gives to a head; `delta` is in order.
Ticks TicksOf(const model::LedgerDelta& delta, Place place) {
  size_t low = 0, high = delta.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (PlaceOf(delta, middle) < place)
      low = middle + 1;
    else
      high = middle;
  }
  return low < delta.size() && PlaceOf(delta, low) == place ? delta.ticks[low] : 0;
}

}  // namespace

ClipLedger::ClipLedger(uint32_t layers, uint32_t heads)
    : layers_(layers), heads_(heads), lambda_(size_t{layers} * heads, 0) {
  const size_t room = std::min(kForeseenHeads, lambda_.size());
  history_.reserve(kHistory);
  spare_.resize(kHistory + 1);
  for (Change& change : spare_) {
    change.delta.layer.reserve(room);
    change.delta.head.reserve(room);
    change.delta.ticks.reserve(room);
  }
}

std::optional<Ticks> ClipLedger::At(uint64_t version, uint32_t layer, uint32_t head) const {
  if (!Knows(version)) return std::nullopt;
  Ticks lambda = At(layer, head);
  for (size_t i = version_ - version; i > 0; --i) lambda -= TicksOf(history_[history_.size() - i].delta, {layer, head});
  return lambda;
}

bool ClipLedger::ReadAt(uint64_t version, std::vector<Ticks>* lambda) const {
  if (!Knows(version)) return false;
  *lambda = lambda_;
  for (size_t i = version_ - version; i > 0; --i) {
    const model::LedgerDelta& delta = history_[history_.size() - i].delta;
    for (size_t k = 0; k < delta.size(); ++k) (*lambda)[Index(delta.layer[k], delta.head[k])] -= delta.ticks[k];
  }
  return true;
}

bool ClipLedger::Fits(const model::LedgerDelta& delta) const {
  if (delta.head.size() != delta.size() || delta.ticks.size() != delta.size() || delta.size() > lambda_.size())
    return false;
  for (size_t i = 0; i < delta.size(); ++i)
    if (delta.layer[i] >= layers_ || delta.head[i] >= heads_ || delta.ticks[i] < 0 || delta.ticks[i] > kLambdaMax)
      return false;
  return true;
}

bool ClipLedger::Apply(const model::LedgerDelta& delta) {
  if (!Fits(delta)) return false;
  if (spare_.empty()) spare_.emplace_back();
  Change& change = spare_.back();
  Canonical(delta, &change.delta);
  const model::LedgerDelta& added = change.delta;
  for (size_t i = 0; i < added.size(); ++i)
    if (added.ticks[i] > kLambdaMax - At(added.layer[i], added.head[i])) return false;
  if (added.size() == 0) return true;
  for (size_t i = 0; i < added.size(); ++i) lambda_[Index(added.layer[i], added.head[i])] += added.ticks[i];
  change.version = ++version_;
  if (history_.size() < kHistory) {
    history_.push_back(std::move(change));
    spare_.pop_back();
  } else {  // The oldest change makes room and leaves its vectors for the next.
    std::rotate(history_.begin(), history_.begin() + 1, history_.end());
    std::swap(history_.back(), change);
  }
  return true;
}

model::LedgerDelta ClipLedger::Sparse() const {
  model::LedgerDelta readings;
  for (uint32_t layer = 0; layer < layers_; ++layer)
    for (uint32_t head = 0; head < heads_; ++head)
      if (const Ticks lambda = At(layer, head); lambda > 0) Append(layer, head, lambda, &readings);
  return readings;
}

bool ClipLedger::Restore(uint64_t version, const model::LedgerDelta& readings) {
  ClipLedger fresh(layers_, heads_);
  if (!fresh.Apply(readings)) return false;
  lambda_ = std::move(fresh.lambda_);
  version_ = version;
  Forget();
  return true;
}

void ClipLedger::Forget() {
  for (Change& change : history_)
    if (spare_.size() <= kHistory) spare_.push_back(std::move(change));
  history_.clear();
}

void ClipLedger::Reset() {
  std::fill(lambda_.begin(), lambda_.end(), 0);
  version_ = 0;
  Forget();
}

bool ClipLedger::IsSound() const {
  if (lambda_.size() != size_t{layers_} * heads_ || history_.size() > kHistory || history_.size() > version_)
    return false;
  uint64_t version = version_ - history_.size();
  for (const Change& change : history_)
    if (change.version != ++version || !Fits(change.delta) || !InOrder(change.delta)) return false;
  return std::all_of(lambda_.begin(), lambda_.end(), [](Ticks t) { return t >= 0 && t <= kLambdaMax; });
}

}  // namespace gyrostat::remedy
