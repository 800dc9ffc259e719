#include "policy/order_book.h"

#include <algorithm>
#include <utility>

namespace gyrostat::policy {
namespace {

// Protocol.md §1.9: A = max(16, 4 × the loop's delay), at most 64.
constexpr model::Boundary kReachMin = 16, kReachMax = 64;
constexpr uint32_t kReachDelays = 4;

// Enough for a median that follows a change of the delay within seconds.
constexpr size_t kDelaysKept = 15;

// The client remembers the outcomes of as many orders (protocol.md §2.4).
constexpr size_t kClosedKept = 256;

}  // namespace

void OrderBook::Open(uint32_t layers, uint32_t heads) {
  for (const auto& [id, entry] : out_) closed_.push_back({id, entry.intent, entry.order.basis, true, false, false});
  while (closed_.size() > kClosedKept) closed_.pop_front();
  for (Closed& closed : closed_) closed.current = false;
  out_.clear();
  heads_ = heads;
  targets_.assign(size_t{layers} * heads, 0);
  delays_.clear();
}

model::Boundary OrderBook::Reach() const {
  const std::optional<double> delay = Delay();
  const auto wanted = static_cast<model::Boundary>(kReachDelays * delay.value_or(0));
  return std::clamp(wanted, kReachMin, kReachMax);
}

void OrderBook::TakeDelay(model::Boundary delay) {
  delays_.push_back(static_cast<uint32_t>(std::min(delay, kReachMax)));
  if (delays_.size() > kDelaysKept) delays_.pop_front();
}

std::optional<double> OrderBook::Delay() const {
  if (delays_.empty()) return std::nullopt;
  std::vector<uint32_t> sorted(delays_.begin(), delays_.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0;
}

void OrderBook::Add(const model::Order& order, uint64_t intent) {
  out_.emplace(order.id, Entry{order, intent});
  Raise(order);
}

void OrderBook::Raise(const model::Order& order) {
  for (const model::ClipEntry& entry : order.entries) {
    remedy::Ticks& target = targets_[size_t{entry.layer} * heads_ + entry.head];
    target = std::max(target, entry.target_ticks);
  }
}

bool OrderBook::IsSound() const {
  if (heads_ == 0 ? !targets_.empty() : targets_.size() % heads_ != 0) return false;
  for (const auto& [id, entry] : out_)
    for (const model::ClipEntry& each : entry.order.entries)
      if (each.head >= heads_ || size_t{each.layer} * heads_ + each.head >= targets_.size()) return false;
  return true;
}

std::optional<OrderBook::Settled> OrderBook::Settle(const model::OrderId& id, Told told) {
  const bool counts = told != Told::kByNobody, detailed = told == Told::kByAck;
  if (const auto at = out_.find(id); at != out_.end()) {
    const Settled settled{at->second.intent, at->second.order.basis, true, true, true};
    closed_.push_back({id, settled.intent, settled.basis, true, counts, detailed});
    if (closed_.size() > kClosedKept) closed_.pop_front();
    out_.erase(at);
    std::fill(targets_.begin(), targets_.end(), 0);
    for (const auto& [other, entry] : out_) Raise(entry.order);
    return settled;
  }
  for (Closed& closed : closed_) {
    if (closed.id != id) continue;
    const Settled settled{closed.intent, closed.basis, closed.current, !closed.counted && counts,
                          !closed.detailed && detailed};
    closed.counted |= counts;
    closed.detailed |= detailed;
    return settled;
  }
  return std::nullopt;
}

std::vector<model::OrderId> OrderBook::Overdue(model::Boundary boundary) const {
  std::vector<model::OrderId> overdue;
  for (const auto& [id, entry] : out_)
    if (entry.order.expires_boundary + kReachMin < boundary) overdue.push_back(id);
  return overdue;
}

std::vector<model::Order> OrderBook::Out() const {
  std::vector<model::Order> orders;
  for (const auto& [id, entry] : out_) orders.push_back(entry.order);
  std::sort(orders.begin(), orders.end(), [](const model::Order& a, const model::Order& b) {
    return std::pair(a.basis, a.id) < std::pair(b.basis, b.id);
  });
  return orders;
}

}  // namespace gyrostat::policy
