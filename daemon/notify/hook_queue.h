// What waits for one webhook, and when the next message is due: bounded, gathering, retrying. No thread, no I/O.
//
//   2xx                      Taken.
//   408, 429, 5xx, none      Again, after Retry-After, or a wait that doubles up to backoff_max, with jitter.
//   all else                 Given up: the same would be refused again. So is a redirect.
//
// A message is about one run: of the notices that wait, all of the run whose oldest is the oldest (for Grafana, where a
// message is one annotation: all of one kind). It is made up anew for each try, so what came meanwhile rides along and
// an outage ends in one message for each run. A notice leaves the queue only with an answer. Memory: queue_max notices
// that wait, and as many under way.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "base/clock.h"
#include "notify/notice.h"
#include "notify/webhook.h"
#include "post/http_post.h"

namespace gyrostat::notify {

class HookQueue {
 public:
  struct Timing {
    base::Milliseconds gather, backoff_min, backoff_max;
  };
  enum class Verdict { kTaken, kAgain, kGivenUp };

  // `seed` of the jitter.
  HookQueue(const Webhook& hook, Timing timing, uint32_t seed) : hook_(hook), timing_(timing), random_(seed) {}

  // New ways, the same queue. What is under way is put back: its answer must not be handed in any more.
  void Configure(const Webhook& hook, Timing timing);
  void SetTiming(Timing timing) { timing_ = timing; }  // Alone: what is under way goes on.

  // Takes the notice if the webhook wants it; returns whether it did. The oldest goes, and counts as dropped, where the
  // queue is full.
  bool Push(Notice notice, base::MonotonicTime now);

  // When Next can have something; nothing while a message is under way or none waits. `hurry`: gathering is over.
  std::optional<base::MonotonicTime> DueAt(bool hurry) const;
  // The notices of the next message, if it is due by now; empty: not. They are under way until Answered.
  std::vector<Notice> Next(base::MonotonicTime now, bool hurry);
  Verdict Answered(const post::PostResult& result, base::MonotonicTime now);

  const Webhook& hook() const { return hook_; }
  bool under_way() const { return !under_way_.empty(); }
  size_t size() const { return waiting_.size() + under_way_.size(); }
  uint32_t failures() const { return failures_; }  // In a row.
  uint64_t dropped() const { return dropped_; }    // Since a message was last taken: the next one tells it.
  uint64_t TakeDropped() { return std::exchange(dropped_uncounted_, 0); }  // Since the last call.

  // What waits, what is under way and what was dropped, for the next life. `now`: gathering begins anew.
  std::string Save() const;
  bool Load(const std::string& bytes, base::MonotonicTime now);  // False: foreign bytes; the queue is then empty.

 private:
  struct Waiting {
    Notice notice;
    base::MonotonicTime since;
  };
  void PutBack();
  void Trim();

  Webhook hook_;
  Timing timing_;
  std::minstd_rand random_;
  std::deque<Waiting> waiting_;
  std::vector<Waiting> under_way_;
  base::MonotonicTime not_before_{};
  uint32_t failures_ = 0;
  uint64_t dropped_ = 0, dropped_uncounted_ = 0, dropped_told_ = 0;
};

}  // namespace gyrostat::notify
