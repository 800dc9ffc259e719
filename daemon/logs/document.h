// JSON files that are one value: Hugging Face's trainer_state.json (log_history), columns ({"losses": [...]}), golden
// values of Megatron ({"lm loss": {"start_step", "step_interval", "values"}}), a list of rows. Read as a stream; only
// columns have to be kept until the end.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "logs/json_record.h"
#include "logs/json_scan.h"
#include "logs/reader.h"

namespace gyrostat::logs {

class DocumentReader : public Reader, private JsonEvents {
 public:
  static constexpr size_t kColumnValuesMax = size_t{64} << 20;

  explicit DocumentReader(RecordSink* sink) : sink_(sink), scanner_(this) {}
  void Feed(std::string_view bytes) override;
  void Finish() override;

 private:
  // A list of numbers under one name, or numbers by step.
  struct Column {
    std::vector<double> values;  // [i] is of step start + i * interval.
    std::map<int64_t, double> by_step;
    int64_t start = 0, interval = 1;
  };

  void Begin(char bracket) override;
  void End(char bracket) override;
  void Key(std::string_view key) override;
  void Number(double value) override;
  void Text(std::string_view text) override;
  void Word(std::string_view word) override;

  std::string Path(size_t without_last) const;
  void Value(double value, std::string_view text);
  void EndRow();
  void EndTop();
  void EmitByStep();
  void EmitLists();
  bool InRow() const { return row_depth_ > 0; }

  RecordSink* sink_;
  JsonScanner scanner_;
  RecordBuilder row_;              // The row that is open.
  size_t row_depth_ = 0;           // Depth of its object; 0: none is open.
  std::string open_;               // Brackets.
  std::vector<std::string> keys_;  // The newest key of each open object.
  Record top_;                     // Scalars of the top object: it may itself be a row.
  std::map<std::string, Column> columns_;
  uint64_t line_ = 1, row_line_ = 1;
  size_t rows_ = 0, values_ = 0;   // Of the top value.
  bool dead_ = false, first_ = true;
};

}  // namespace gyrostat::logs
