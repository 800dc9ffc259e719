// Logs of text: a parser for each trainer says which lines are rows. What launchers and terminals add is taken off
// before.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "logs/lines.h"

namespace gyrostat::logs {

class LineParser {
 public:
  virtual ~LineParser() = default;
  // True: `line` is a row, and `*record` (cleared) holds it. `*trouble` may say why a line that began as one is none.
  virtual bool Parse(std::string_view line, Record* record, std::string* trouble) = 0;
  // What there is to say once, at the end; empty: nothing.
  virtual std::string Remark() const { return ""; }
};

class TextReader : public LineReader {
 public:
  TextReader(RecordSink* sink, std::unique_ptr<LineParser> parser) : LineReader(sink), parser_(std::move(parser)) {}

 protected:
  void OnLine(std::string_view line, uint64_t number, bool complete) override;
  void OnEnd() override;

 private:
  std::unique_ptr<LineParser> parser_;
  Record record_;
  std::string scratch_, trouble_;
};

// The first whole number in `text` behind blanks and at most one of : and =. Moves `*text` behind it.
std::optional<int64_t> TakeStep(std::string_view* text);

// Whether `line` (blanks taken off) starts with `word` and then a step: "iter 3", "step:3", "step  00003". `*rest` is
// what follows the step.
std::optional<int64_t> StepAfter(std::string_view word, std::string_view line, std::string_view* rest);

}  // namespace gyrostat::logs
