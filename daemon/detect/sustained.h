// A yes or no at each report, made into a finding that begins, gets worse and ends.
//
// It begins after `hold` reports in a row that say yes, and is over after `quiet` in a row that say no: one value, good
// or bad, decides nothing. A report that cannot say is not given to it. The finding carries the first and the last step
// that said yes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "detect/text.h"
#include "model/finding.h"

namespace gyrostat::detect {

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

  Sustained() {}  // Spelled out: clang 14 does not see a defaulted one inside a class.

  bool open() const { return open_; }
  const model::Finding& finding() const { return finding_; }  // As last said, while open.
  uint32_t run() const { return run_; }  // Reports in a row that said yes.

  // `severity`: nothing where this report says no. `fill(&finding)` sets signal, place, value, expected, message and
  // recommendation when it begins or gets worse; `over()` is the sentence at its end. Neither is called otherwise.
  template <class Fill, class Over>
  void Observe(std::optional<model::Severity> severity, const Limits& limits, const Context& context, Fill fill,
               Over over) {
    if (!severity) {
      run_ = 0;
      if (open_ && ++quiet_ >= limits.quiet) End(true, over(), context.out);
      return;
    }
    if (run_ == 0) first_ = context.step;
    run_ = Saturating(run_);
    quiet_ = 0;
    last_ = context.step;
    if (open_ ? *severity <= finding_.severity : run_ < limits.hold) return;
    if (!open_) {
      open_ = true;
      finding_.key = (*context.next_key)++;
      finding_.detector = context.detector;
      finding_.step_begin = first_;
      finding_.step_detected = context.step;
    }
    finding_.severity = *severity;
    fill(&finding_);
    context.out->push_back(finding_);
  }

  // Whatever is open ends, not healed; counts start again.
  void Break(std::string message, std::vector<model::Finding>* out) {
    if (open_) End(std::nullopt, std::move(message), out);
    run_ = quiet_ = 0;
  }

  template <class Archive>
  void Fields(Archive& a) { a(open_, finding_, run_, quiet_, first_, last_); }

 private:
  void End(std::optional<bool> healed, std::string message, std::vector<model::Finding>* out) {
    finding_.step_end = last_;
    finding_.healed = healed;
    finding_.message = std::move(message);
    out->push_back(std::move(finding_));
    finding_ = {};
    open_ = false;
    run_ = quiet_ = 0;
  }

  bool open_ = false;
  // Empty while not open. Not optional: GCC 12 then sees uninitialised strings where none are.
  model::Finding finding_;
  uint32_t run_ = 0, quiet_ = 0;
  model::Step first_ = 0, last_ = 0;
};

}  // namespace gyrostat::detect
