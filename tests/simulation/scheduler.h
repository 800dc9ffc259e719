// Virtual time: events in order of their time, ties in order of their making. One thread, no clock.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "simulation/plan.h"

namespace gyrostat::simulation {

class Scheduler {
 public:
  Time now() const { return now_; }
  void After(Time delay, std::function<void()> what) { events_.push({now_ + delay, made_++, std::move(what)}); }
  bool empty() const { return events_.empty(); }
  void RunOne() {
    // The queue gives only const access; what is moved away is popped at once.
    Event event = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = event.at;
    event.what();
  }

 private:
  struct Event {
    Time at;
    uint64_t made;
    std::function<void()> what;
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : made > other.made; }
  };
  std::priority_queue<Event> events_;
  Time now_ = 0;
  uint64_t made_ = 0;
};

}  // namespace gyrostat::simulation
