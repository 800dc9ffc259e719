// CSV with a header line: comma, semicolon or tab; quotes as RFC 4180, so that cells may hold line ends. Weights &
// Biases' exports are CSV too: several runs as rows (run column), or as columns named "run - metric".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "logs/reader.h"

namespace gyrostat::logs {

class CsvReader : public Reader {
 public:
  static constexpr size_t kColumnsMax = 100000;
  static constexpr size_t kCellBytesMax = size_t{16} << 20;

  explicit CsvReader(RecordSink* sink) : sink_(sink) {}
  void Feed(std::string_view bytes) override;
  void Finish() override;

 private:
  struct Column {
    std::string run, name;  // `run` not empty: the column is of that run alone.
    bool other = false;     // Bounds that W&B puts beside a metric (__MIN, __MAX): not read.
    bool may_vanish = false;  // Has had a number: an empty cell can be a NaN.
  };

  void Take(char c);
  void EndCell();
  void EndRow();
  void TakeHeader();
  void TakeRow();
  void TakeWideRow();
  bool IsLoneStep() const;

  RecordSink* sink_;
  char separator_ = 0;  // 0: not known yet.
  std::string first_line_;
  std::vector<std::string> cells_;
  size_t filled_ = 0;  // Cells of the open row; cells_ itself keeps its memory.
  std::string cell_;
  bool quoted_ = false, quote_seen_ = false, after_cr_ = false, cell_started_ = false;
  uint64_t line_ = 1, row_line_ = 1;
  std::vector<Column> columns_;
  std::vector<std::string> runs_;  // Of a wide table, in the order of its columns.
  bool wide_ = false, first_ = true;
  Record record_;
};

// The separator of a header line: the one of , ; and tab that is in it most often; 0: none is.
char SeparatorOf(std::string_view header_line);

}  // namespace gyrostat::logs
