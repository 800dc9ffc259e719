// One condition of a detector: open or not, and the finding as it was last said.
//
// A detector with several series keeps several, and one counter of keys for all of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "model/finding.h"

namespace gyrostat::detect {

class Condition {
 public:
  Condition() {}  // Spelled out: clang 14 does not see a defaulted one inside a class.

  bool open() const { return finding_.has_value(); }
  model::Finding& finding() { return *finding_; }
  const model::Finding& finding() const { return *finding_; }

  // A new finding, not said yet: fill it, then Say it. Takes the next key from `*next_key`.
  model::Finding& Open(std::string_view detector, model::Signal signal, model::Step begin, model::Step now,
                       uint64_t* next_key) {
    model::Finding& finding = finding_.emplace();
    finding.key = (*next_key)++;
    finding.detector = detector;
    finding.signal = signal;
    finding.step_begin = begin;
    finding.step_detected = now;
    return finding;
  }
  void Say(std::vector<model::Finding>* out) const { out->push_back(*finding_); }
  // `last` is the last step that belongs to it.
  void End(model::Step last, std::optional<bool> healed, std::string message, std::vector<model::Finding>* out) {
    finding_->step_end = last < finding_->step_begin ? finding_->step_begin : last;
    finding_->healed = healed;
    finding_->message = std::move(message);
    out->push_back(*std::move(finding_));
    finding_.reset();
  }

  template <class Archive>
  void Fields(Archive& a) { a(finding_); }

 private:
  std::optional<model::Finding> finding_;
};

}  // namespace gyrostat::detect
