#include "client/src/unacked_ring.h"

#include <utility>

namespace gyrostat::client {

UnackedRing::UnackedRing(size_t count_max, uint64_t bytes_max) : count_max_(count_max), bytes_max_(bytes_max) {}

UnackedRing::Dropped UnackedRing::Push(Item item) {
  Dropped dropped;
  while (!items_.empty() && (items_.size() >= count_max_ || bytes_ + item.bytes.size() > bytes_max_)) {
    const Item& oldest = items_.front();
    if (oldest.kind == WireKind::kReport) ++dropped.reports;
    if (oldest.kind == WireKind::kAck || oldest.local_clips) dropped.settled_by_hello_only = true;
    PopFront();
  }
  bytes_ += item.bytes.size();
  if (item.kind == WireKind::kReport) ++reports_;
  items_.push_back(std::move(item));
  return dropped;
}

uint64_t UnackedRing::Acknowledge(uint64_t sequence) {
  uint64_t reports = 0;
  while (!items_.empty()) {
    const Item& oldest = items_.front();
    if (oldest.kind == WireKind::kReport ? oldest.sequence > sequence : oldest.sequence >= sequence) break;
    if (oldest.kind == WireKind::kReport) ++reports;
    PopFront();
  }
  return reports;
}

uint64_t UnackedRing::FirstSequence(uint64_t next) const {
  for (const Item& item : items_)
    if (item.kind == WireKind::kReport) return item.sequence;
  return next;
}

void UnackedRing::PopFront() {
  bytes_ -= items_.front().bytes.size();
  if (items_.front().kind == WireKind::kReport) --reports_;
  items_.pop_front();
  if (sent_ > 0) --sent_;
}

}  // namespace gyrostat::client
