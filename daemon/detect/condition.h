// What a detector says of one condition: open or not, and the finding as it was last said.
//
// `Condition` is told when it begins and ends; `Sustained` makes that from a yes or no at each report. A detector with
// several series keeps several, and one counter of keys for all of them.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "detect/text.h"
#include "model/finding.h"

namespace gyrostat::detect {

class Condition {
 public:
  Condition() {}  // Spelled out: clang 14 does not see a defaulted one inside a class.

  bool open() const { return open_; }
  model::Finding& finding() { return finding_; }  // While open.
  const model::Finding& finding() const { return finding_; }

  // A new finding, not said yet: fill it, then Say it. Takes the next key from `*next_key`.
  model::Finding& Open(std::string_view detector, model::Signal signal, model::Step begin, model::Step now,
                       uint64_t* next_key) {
    open_ = true;
    finding_ = {};
    finding_.key = (*next_key)++;
    finding_.detector = detector;
    finding_.signal = signal;
    finding_.step_begin = begin;
    finding_.step_detected = now;
    return finding_;
  }
  void Say(std::vector<model::Finding>* out) const { out->push_back(finding_); }
  // `last` is the last step that belongs to it.
  void End(model::Step last, std::optional<bool> healed, std::string message, std::vector<model::Finding>* out) {
    finding_.step_end = std::max(last, finding_.step_begin);
    finding_.healed = healed;
    finding_.message = std::move(message);
    out->push_back(std::move(finding_));
    finding_ = {};
    open_ = false;
  }

  template <class Archive>
  void Fields(Archive& a) {
    a(open_);
    if constexpr (Archive::kLoading) finding_ = {};
    if (open_) a(finding_);
  }

 private:
  bool open_ = false;
  model::Finding finding_;  // Not optional: GCC 12 then sees uninitialised strings where none are.
};

// It begins after `hold` reports in a row that say yes, and is over after `quiet` in a row that say no: one value, good
// or bad, decides nothing. A report that cannot say is not given to it. The finding carries the first and the last step
// that said yes.
class Sustained {
 public:
  struct Limits {
    uint32_t hold = 1;    // >= 1.
    uint32_t quiet = 16;  // >= 1.
  };
  // What is the same for every condition that a report is judged by.
  struct Context {
    std::string_view detector;
    model::Step step;
    uint64_t* next_key;
    std::vector<model::Finding>* out;
  };

  Sustained() {}  // As above.

  bool open() const { return condition_.open(); }
  const model::Finding& finding() const { return condition_.finding(); }  // As last said, while open.
  uint32_t run() const { return run_; }  // Reports in a row that said yes.

  // `severity`: nothing where this report says no. `fill(&finding)` sets signal, place, value, expected, message and
  // recommendation when it begins or gets worse; `over()` is the sentence at its end. Neither is called otherwise.
  template <class Fill, class Over>
  void Observe(std::optional<model::Severity> severity, const Limits& limits, const Context& context, Fill fill,
               Over over) {
    if (!severity) {
      run_ = 0;
      if (open() && ++quiet_ >= limits.quiet) End(true, over(), context.out);
      return;
    }
    if (run_ == 0) first_ = context.step;
    run_ = Saturating(run_);
    quiet_ = 0;
    last_ = context.step;
    if (open() ? *severity <= finding().severity : run_ < limits.hold) return;
    if (!open())
      condition_.Open(context.detector, model::Signal::kNone, first_, context.step, context.next_key);
    condition_.finding().severity = *severity;
    fill(&condition_.finding());
    condition_.Say(context.out);
  }

  // Whatever is open ends, not healed; counts start again.
  void Break(std::string message, std::vector<model::Finding>* out) {
    if (open()) End(std::nullopt, std::move(message), out);
    run_ = quiet_ = 0;
  }

  template <class Archive>
  void Fields(Archive& a) { a(condition_, run_, quiet_, first_, last_); }

 private:
  void End(std::optional<bool> healed, std::string message, std::vector<model::Finding>* out) {
    condition_.End(last_, healed, std::move(message), out);
    run_ = quiet_ = 0;
  }

  Condition condition_;
  uint32_t run_ = 0, quiet_ = 0;
  model::Step first_ = 0, last_ = 0;
};

}  // namespace gyrostat::detect
