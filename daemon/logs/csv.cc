#include "logs/csv.h"

#include <algorithm>
#include <cmath>

#include "logs/keys.h"
#include "logs/number.h"

namespace gyrostat::logs {
namespace {

constexpr double kNone = static_cast<double>(model::kAbsent);
constexpr std::string_view kRunSeparator = " - ";  // Of a column of W&B's chart export.

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Only these become NaN in a run that breaks; a learning rate that is not written is just not written.
bool IsJudged(std::string_view column) {
  const std::string name = Normalised(column);
  return name.find("loss") != std::string::npos || name.find("norm") != std::string::npos;
}

}  // namespace

char SeparatorOf(std::string_view header_line) {
  char best = 0;
  std::ptrdiff_t most = 0;
  for (const char c : {',', ';', '\t'})
    if (const auto count = std::ranges::count(header_line, c); count > most) {
      most = count;
      best = c;
    }
  return best;
}

void CsvReader::Feed(std::string_view bytes) {
  if (first_ && !bytes.empty()) {
    first_ = false;
    if (bytes.substr(0, 3) == "\xef\xbb\xbf") bytes.remove_prefix(3);
  }
  if (separator_ == 0) {  // The header line decides, so it must be there whole.
    const size_t end = bytes.find('\n');
    first_line_.append(bytes.substr(0, end == std::string_view::npos ? end : end + 1));
    if (first_line_.size() > kCellBytesMax) first_line_.resize(kCellBytesMax);
    if (end == std::string_view::npos) return;
    separator_ = SeparatorOf(first_line_);
    if (separator_ == 0) separator_ = ',';
    for (const char c : first_line_) Take(c);
    bytes.remove_prefix(end + 1);
  }
  for (const char c : bytes) Take(c);
}

void CsvReader::Finish() {
  if (separator_ == 0) {
    separator_ = SeparatorOf(first_line_);
    for (const char c : first_line_) Take(c);
  }
  if (filled_ == 0 && !cell_started_ && cell_.empty()) return;
  EndCell();
  if (columns_.empty() || filled_ == columns_.size()) EndRow();
  else sink_->Warn("the last line is cut off in the middle");
}

void CsvReader::Take(char c) {
  if (c == '\n') ++line_;
  if (quoted_) {
    if (quote_seen_) {
      quote_seen_ = false;
      if (c == '"') {
        cell_.push_back(c);
        return;
      }
      quoted_ = false;  // That was the end; `c` comes behind it.
    } else if (c == '"') {
      quote_seen_ = true;
      return;
    } else {
      if (cell_.size() < kCellBytesMax) cell_.push_back(c);
      return;
    }
  }
  if (after_cr_) {
    after_cr_ = false;
    if (c == '\n') return;
  }
  if (c == separator_) return EndCell();
  if (c == '\n' || c == '\r') {
    after_cr_ = c == '\r';
    EndCell();
    return EndRow();
  }
  if (c == '"' && cell_.empty()) {
    quoted_ = cell_started_ = true;
    return;
  }
  if (cell_.size() < kCellBytesMax) cell_.push_back(c);
}

void CsvReader::EndCell() {
  if (filled_ < kColumnsMax) {
    if (filled_ == cells_.size()) cells_.emplace_back();
    cells_[filled_++].swap(cell_);
  }
  cell_.clear();
  quoted_ = quote_seen_ = cell_started_ = false;
}

void CsvReader::EndRow() {
  const bool blank = filled_ == 1 && cells_[0].empty();
  if (!blank && columns_.empty()) TakeHeader();
  else if (!blank && filled_ != columns_.size())
    sink_->Skip(row_line_, "it has " + std::to_string(filled_) + " cells, wanted " + std::to_string(columns_.size()));
  else if (!blank && wide_) TakeWideRow();
  else if (!blank) TakeRow();
  filled_ = 0;
  row_line_ = line_;
}

void CsvReader::TakeHeader() {
  Record names;
  for (size_t i = 0; i < filled_; ++i) {
    Column column;
    const std::string_view text = Trim(cells_[i]);
    const size_t dash = text.rfind(kRunSeparator);
    if (dash != std::string_view::npos && dash > 0) {
      column.run = text.substr(0, dash);
      column.name = text.substr(dash + kRunSeparator.size());
      column.other = EndsWith(text, "__MIN") || EndsWith(text, "__MAX");
      wide_ = true;
      if (std::ranges::find(runs_, column.run) == runs_.end()) runs_.push_back(column.run);
    } else {
      column.name = text;
    }
    names.Add(column.name);
    columns_.push_back(std::move(column));
  }
  sink_->Declare(names);
}

// A step and nothing else. pandas writes NaN as an empty cell: such a row was logged, and all that it logged was NaN.
// Rows of an evaluation have other cells; rows of a sparse table have theirs.
bool CsvReader::IsLoneStep() const {
  size_t written = 0;
  for (size_t i = 0; i < filled_; ++i) written += Trim(cells_[i]).empty() ? 0 : 1;
  return written == 1 && filled_ > 1;
}

void CsvReader::TakeRow() {
  record_.Clear();
  record_.line = row_line_;
  const bool lone = IsLoneStep();
  for (size_t i = 0; i < filled_; ++i) {
    const std::string_view text = Trim(cells_[i]);
    if (text.empty()) {
      if (lone && columns_[i].may_vanish) record_.Add(columns_[i].name, std::nan(""));
      continue;
    }
    Field& field = record_.Add(columns_[i].name);
    const auto number = WholeNumber(text);
    field.value = number.value_or(kNone);
    field.text.assign(text);
    if (number && IsJudged(columns_[i].name)) columns_[i].may_vanish = true;
  }
  sink_->TakeRecord(record_);
}

// One row, one step, a column for each run.
void CsvReader::TakeWideRow() {
  for (const std::string& run : runs_) {
    record_.Clear();
    record_.run = run;
    record_.line = row_line_;
    for (size_t i = 0; i < filled_; ++i) {
      const Column& column = columns_[i];
      if (column.other || !(column.run.empty() || column.run == run)) continue;
      if (const auto number = WholeNumber(cells_[i])) record_.Add(column.name, *number);
    }
    sink_->TakeRecord(record_);
  }
}

}  // namespace gyrostat::logs
