// Messages that the daemon has not yet made safe, in the order of events, bounded by count and bytes: the oldest go
// first.
//
// Reports count their own sequence. An ack of an order follows the reports before it and is safe as soon as a later
// report is, since the daemon journals a stream in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "client/src/transport.h"

namespace gyrostat::client {

class UnackedRing {
 public:
  struct Item {
    WireKind kind = WireKind::kReport;
    uint64_t sequence = 0;     // kReport: its own. kAck: of the newest report before it.
    bool local_clips = false;  // A report that says what local mode applied: nothing else tells the daemon.
    std::string bytes;
  };

  // What a push had to throw away.
  struct Dropped {
    uint64_t reports = 0;
    bool settled_by_hello_only = false;  // An ack or local clips were among them: only a new hello can tell the daemon.
  };

  UnackedRing(size_t count_max, uint64_t bytes_max);

  // Takes `item`. One that alone is larger than the bound is kept until the next.
  Dropped Push(Item item);

  // Forgets everything up to the report `sequence`, and the acks before it. Returns how many reports that were.
  uint64_t Acknowledge(uint64_t sequence);

  // The next message that was not sent on this stream, or null.
  const Item* NextToSend() const { return sent_ < items_.size() ? &items_[sent_] : nullptr; }
  void MarkSent() { ++sent_; }
  // A new stream: nothing was sent on it yet.
  void Rewind() { sent_ = 0; }

  // Whether a report waits for its acknowledgement, or anything waits to be sent.
  bool idle() const { return reports_ == 0 && sent_ == items_.size(); }
  // Sequence of the oldest report held; `next` when there is none.
  uint64_t FirstSequence(uint64_t next) const;
  size_t size() const { return items_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  void PopFront();

  const size_t count_max_;
  const uint64_t bytes_max_;
  std::deque<Item> items_;
  size_t sent_ = 0;  // Items from the front that this stream has taken.
  size_t reports_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace gyrostat::client
