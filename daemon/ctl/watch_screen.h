// The live screen of `gyrostatctl watch`: one run on one terminal page, usable at 80 x 24.
//
// From top to bottom: the run; curves of loss, gradient norm, learning rate, spike scores and the largest attention
// logit; the current episode; what waits for a person, with the words to type; other interventions and findings; layers
// against heads in the room that is left (head_grid.h); the keys. When the window is small, findings give way first,
// then the map; the run, the episode and what waits for a person stay.
//
// Pure: views go in, text comes out; it remembers the last values of a few signals for the curves.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ctl/text.h"
#include "gyrostat/v1/control.pb.h"

namespace gyrostat::ctl {

// The signals whose past a screen takes over before the first view.
inline constexpr std::string_view kWatchedSignals[] = {"loss", "grad_norm", "learning_rate", "spike_score_loss",
                                                       "spike_score_grad_norm"};
inline constexpr size_t kWatchedPoints = 120;  // More than a curve of the widest window shows.

class WatchScreen {
 public:
  // `command` starts what a person is told to type: "gyrostatctl", with an address where it needs one.
  explicit WatchScreen(std::string command = "gyrostatctl");

  // One value of a signal's past, oldest first. Names that are not watched are ignored.
  void AddPast(std::string_view signal, double value);

  // Takes a new look at the run. A view of a step already seen replaces the picture and adds nothing to the curves. A
  // view without heads leaves the map of the last that had them.
  void Add(const v1::RunView& view);

  // At most `rows` lines of at most style.columns columns, each ended by a newline. What does not fit is counted
  // ("2 more"). `trouble` is shown in place of the keys when not empty.
  std::string Render(const Style& style, size_t rows, int64_t now_unix_ms, std::string_view trouble = "",
                     std::string_view keys = "") const;

  // The newest view in one line, without a newline: what goes into a pipe.
  std::string Line(int64_t now_unix_ms) const;

 private:
  using History = std::deque<double>;
  struct Row {
    std::string text;
    Tint tint = Tint::kNone;
    bool drawn = false;  // Fits already and holds escape sequences: neither cut nor painted.
  };
  std::vector<Row> Signals(const Style& style, int64_t now_unix_ms) const;
  std::vector<Row> Episode() const;
  std::vector<Row> Waiting() const;
  std::vector<Row> Interventions() const;
  std::vector<Row> Findings() const;
  std::vector<Row> Map(const Style& style, size_t rows) const;
  size_t MapRowsWanted() const;
  std::string Shown(std::string_view signal) const;
  std::string Curve(const Style& style, std::string_view name, const std::string& value, const History& history) const;
  Row LogitRow(const Style& style) const;
  std::string Heads(const Style& style) const;

  const std::string command_;
  v1::RunView view_;
  std::map<std::string, History, std::less<>> past_;  // By signal.
  History logit_;
  std::vector<float> heads_;  // Of the last view that had them.
  size_t layers_ = 0;         // As heads_ has.
  bool seen_ = false;
};

}  // namespace gyrostat::ctl
