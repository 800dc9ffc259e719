// The orders that are out: which targets are on their way, how long the loop takes, what an ack or a hello settles.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "model/intervention.h"
#include "remedy/ticks.h"

namespace gyrostat::policy {

class OrderBook {
 public:
  // Orders that may be out at once: one a boundary for as long as one lives at the most.
  static constexpr size_t kOutMax = 64;

  // Another attempt or epoch: what is out is dead, and delays are measured anew.
  void Open(uint32_t layers, uint32_t heads);

  // A, protocol.md §1.9: how many boundaries after its basis an order may still be applied.
  model::Boundary Reach() const;
  // An order came to the weights, or came too late, so many boundaries after its basis.
  void TakeDelay(model::Boundary delay);
  // The median of the latest delays, or nothing while none is known.
  std::optional<double> Delay() const;

  bool Full() const { return out_.size() >= kOutMax; }
  // Entries must be within the heads of Open. One order per basis.
  void Add(const model::Order& order, uint64_t intent);

  // What is known of an order when its ack comes.
  struct Settled {
    uint64_t intent = 0;
    model::Boundary basis = 0;
    bool current = true;   // Sent in this attempt and epoch: what it did is part of this ledger.
    bool first = true;     // This is the first word about it that counts.
    bool detailed = true;  // Nothing told boundary and step of its application before.
  };
  // Who said that an order has come to an end: an ack with all details, a hello with the bare outcome, or nobody, when
  // its time is long over.
  enum class Told : uint8_t { kByAck, kByHello, kByNobody };
  // The order `id` has come to an end. Nothing for a stranger.
  std::optional<Settled> Settle(const model::OrderId& id, Told told);

  // Ids of orders that expired so long before `boundary` that no word of them will come any more.
  std::vector<model::OrderId> Overdue(model::Boundary boundary) const;
  // Orders that are out, oldest basis first.
  std::vector<model::Order> Out() const;

  // The largest target per head among orders that are out, layer-major.
  const std::vector<remedy::Ticks>& Targets() const { return targets_; }

  template <class Archive>
  void Fields(Archive& a) {
    a(out_, closed_, targets_, heads_, delays_);
    if constexpr (Archive::kLoading)
      if (!IsSound()) a.Fail();
  }

 private:
  struct Entry {
    model::Order order;
    uint64_t intent = 0;
    template <class Archive>
    void Fields(Archive& a) { a(order, intent); }
  };
  struct Closed {
    model::OrderId id;
    uint64_t intent = 0;
    model::Boundary basis = 0;
    bool current = true;   // As in Settled.
    bool counted = true;   // Somebody told how it ended.
    bool detailed = true;  // With boundary and step.
    template <class Archive>
    void Fields(Archive& a) { a(id, intent, basis, current, counted, detailed); }
  };
  void Raise(const model::Order& order);
  bool IsSound() const;

  std::map<model::OrderId, Entry> out_;
  std::deque<Closed> closed_;  // Latest last, for acks that come late or twice.
  std::vector<remedy::Ticks> targets_;
  uint32_t heads_ = 0;
  std::deque<uint32_t> delays_;
};

}  // namespace gyrostat::policy
