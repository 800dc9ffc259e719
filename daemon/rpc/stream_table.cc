#include "rpc/stream_table.h"

namespace gyrostat::rpc {

bool StreamTable::Open(const std::shared_ptr<Stream>& stream, size_t streams_max) {
  base::MutexLock lock(mutex_);
  if (draining_ || open_.size() >= streams_max) return false;
  if (open_.emplace(stream.get(), Entry{stream, std::nullopt}).second) probe_.streams_open.Add(1);
  return true;
}

std::shared_ptr<Stream> StreamTable::Bind(const std::shared_ptr<Stream>& stream, const std::string& run,
                                          const model::AttemptId& attempt) {
  base::MutexLock lock(mutex_);
  const auto entry = open_.find(stream.get());
  if (entry == open_.end()) return nullptr;  // It ended meanwhile.
  entry->second.key = Key(run, attempt);
  return std::exchange(bound_[*entry->second.key], stream);
}

void StreamTable::Close(const Stream* stream) {
  base::MutexLock lock(mutex_);
  const auto entry = open_.find(stream);
  if (entry == open_.end()) return;
  if (entry->second.key) {
    const auto bound = bound_.find(*entry->second.key);
    if (bound != bound_.end() && bound->second.get() == stream) bound_.erase(bound);
  }
  open_.erase(entry);
  probe_.streams_open.Add(-1);
}

void StreamTable::DrainAll() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    base::MutexLock lock(mutex_);
    draining_ = true;
    for (const auto& [key, entry] : open_) streams.push_back(entry.stream);
  }
  for (const auto& stream : streams) stream->Drain();
}

size_t StreamTable::size() const {
  base::MutexLock lock(mutex_);
  return open_.size();
}

bool StreamTable::IsFirstRefusal(const std::string& run) {
  constexpr size_t kRefusedMax = 4096;  // Names are 128 bytes at most: half a megabyte.
  base::MutexLock lock(mutex_);
  return refused_.size() < kRefusedMax && refused_.insert(run).second;
}

void StreamTable::SendOrder(const model::Order& order) {
  if (const auto stream = Find(order.run, order.attempt))
    stream->Deliver(order);
  else
    probe_.orders_undelivered_total.Add();
}

void StreamTable::Acknowledge(const std::string& run, const model::AttemptId& attempt, uint64_t sequence) {
  if (const auto stream = Find(run, attempt)) stream->Acknowledge(sequence);
}

std::shared_ptr<Stream> StreamTable::Find(const std::string& run, const model::AttemptId& attempt) const {
  base::MutexLock lock(mutex_);
  const auto it = bound_.find({run, attempt});
  return it == bound_.end() ? nullptr : it->second;
}

}  // namespace gyrostat::rpc
