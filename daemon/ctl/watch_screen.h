// The live screen of `gyrostatctl watch`: one run on one terminal page, usable at 80 × 24.
//
// Pure: views go in, text comes out; it remembers the last values of a few signals for the sparklines.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "ctl/text.h"
#include "gyrostat/v1/control.pb.h"

namespace gyrostat::ctl {

class WatchScreen {
 public:
  // Takes a new look at the run. A view of a step already seen replaces the picture and adds nothing to the histories.
  void Add(const v1::RunView& view);

  // At most `rows` lines of at most style.columns columns, each ended by a newline. What does not fit is counted
  // ("2 more"). `trouble` is shown in place of the key line when not empty.
  std::string Render(const Style& style, size_t rows, int64_t now_unix_ms, std::string_view trouble = "") const;

 private:
  using History = std::deque<double>;
  struct Row {
    std::string text;
    Tint tint = Tint::kNone;
  };
  std::vector<Row> Signals(const Style& style, int64_t now_unix_ms) const;
  std::vector<Row> Episode() const;
  std::vector<Row> Findings() const;
  std::vector<Row> Interventions() const;
  static void Section(const std::vector<Row>& rows, size_t budget, std::vector<Row>* out);
  std::string Shown(std::string_view signal) const;
  std::string Curve(const Style& style, std::string_view name, const std::string& value, const History& history) const;
  std::string Heads(const Style& style) const;

  v1::RunView view_;
  History loss_, grad_norm_, logit_;
  bool seen_ = false;
};

}  // namespace gyrostat::ctl
