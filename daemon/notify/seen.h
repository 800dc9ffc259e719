// What of one run was already taken up for telling: turns states, which come again and again, into notices, each once.
//
// The idea: the ids of a run's findings, episodes and intents only rise. So what is open and the highest id tell all:
// an id above it is new; one that is not above it and not open is over and was told. The same state may be fed any
// number of times, live or from the history after a restart, and says nothing the second time.
//
// Pure; not thread-safe. Memory: what is open, at most kOpenMax of each; beyond that the oldest are taken to be over.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/archive.h"
#include "notify/change.h"
#include "notify/notice.h"

namespace gyrostat::notify {

class Seen {
 public:
  static constexpr size_t kOpenMax = 4096;

  // Appends what is new. Another run under the same name (another number) starts anew.
  void Take(const Change& change, std::vector<Notice>* out);

  // Whether this attempt's end was taken up: nothing of the run can be new until another attempt.
  bool EndedWith(const model::AttemptId& attempt) const { return ended_ && ended_attempt_ == attempt; }

  template <class Archive>
  void Fields(Archive& a) {
    a(run_number_, findings_high_, episodes_high_, intents_high_, findings_, episodes_, intents_, ended_,
      ended_attempt_);
  }

 private:
  struct Open {
    model::Severity severity = model::Severity::kInfo;  // The worst that was told.
    int64_t unix_ms = 0;
    template <class Archive>
    void Fields(Archive& a) { a(severity, unix_ms); }
  };
  struct Intent {
    bool waiting = false, applied = false, judged = false;  // Told.
    template <class Archive>
    void Fields(Archive& a) { a(waiting, applied, judged); }
  };
  using OpenOnes = std::map<uint64_t, Open>;

  // One state of a thing that begins, may get worse, and ends.
  void TakeState(uint64_t id, Notice notice, bool over, const Kind (&kinds)[3], uint64_t* high, OpenOnes* open,
                 std::vector<Notice>* out);
  void TakeFinding(const Change& change, const model::Finding& finding, std::vector<Notice>* out);
  void TakeEpisode(const Change& change, const diagnose::Diagnosis& episode, std::vector<Notice>* out);
  void TakeIntent(const Change& change, const model::Intervention& intent, std::vector<Notice>* out);
  void TakeEnd(const Change& change, std::vector<Notice>* out);

  uint64_t run_number_ = 0;
  uint64_t findings_high_ = 0, episodes_high_ = 0, intents_high_ = 0;
  OpenOnes findings_, episodes_;
  std::map<uint64_t, Intent> intents_;
  bool ended_ = false;
  model::AttemptId ended_attempt_;
};

}  // namespace gyrostat::notify
