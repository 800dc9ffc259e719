// Bytes → lines, and what people's terminals and launchers put around them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "logs/reader.h"

namespace gyrostat::logs {

// A reader of lines: ends at \n, \r\n or a lone \r (progress bars), without a byte-order mark. A line may have
// kLineBytesMax bytes; what is longer is skipped and told.
//
// `srun --label` cuts lines after kLabelledBytes and goes on under the same label, with other tasks' lines between:
// such a line is put together again.
class LineReader : public Reader {
 public:
  static constexpr size_t kLineBytesMax = size_t{64} << 20;
  static constexpr size_t kLabelledBytes = 1024;

  explicit LineReader(RecordSink* sink) : sink_(sink) {}
  void Feed(std::string_view bytes) final;
  void Finish() final;

 protected:
  // `number` counts \n from 1. `complete`: the line's end was seen (the last one of a file may be torn).
  virtual void OnLine(std::string_view line, uint64_t number, bool complete) = 0;
  virtual void OnEnd() {}
  RecordSink* sink() const { return sink_; }

 private:
  void Emit(std::string_view line, bool complete);
  bool Join(std::string_view line, bool complete);

  RecordSink* sink_;
  std::string rest_;  // Of a line whose end has not come yet.
  uint64_t number_ = 1;
  bool first_ = true, after_cr_ = false, too_long_ = false;
  std::map<uint32_t, std::string> torn_;  // By label: what srun has cut, with the label once.
};

// Removes ANSI escape sequences. `*scratch` holds the result where there were any.
std::string_view WithoutAnsi(std::string_view line, std::string* scratch);

// Removes what launchers put before a line, and says which rank it names: "55: " (srun --label), "[rank3]:",
// "[default7]:", "[Rank 0]".
std::string_view WithoutRank(std::string_view line, std::optional<uint32_t>* rank);

}  // namespace gyrostat::logs
