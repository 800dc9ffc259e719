#include "logs/document.h"

#include <algorithm>
#include <set>

#include "logs/jsonl.h"
#include "logs/keys.h"
#include "logs/number.h"

namespace gyrostat::logs {
namespace {

constexpr double kNone = static_cast<double>(model::kAbsent);
constexpr size_t kTopFieldsMax = 10000;

bool AllDigits(std::string_view text) {
  return !text.empty() && text.size() < 16 && std::ranges::all_of(text, IsDigit);
}

// "runs/a/losses" → "runs/a" and "losses".
std::pair<std::string, std::string> Split(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::pair(std::string(), path)
                                    : std::pair(path.substr(0, slash), path.substr(slash + 1));
}

}  // namespace

void DocumentReader::Feed(std::string_view bytes) {
  if (first_ && !bytes.empty()) {
    first_ = false;
    if (bytes.substr(0, 3) == "\xef\xbb\xbf") bytes.remove_prefix(3);
  }
  // Line by line, so that a row knows where it stands.
  while (!bytes.empty() && !dead_) {
    const size_t end = std::min(bytes.find('\n'), bytes.size() - 1) + 1;
    if (scanner_.Feed(bytes.substr(0, end)) < end) {
      dead_ = true;
      sink_->Skip(line_, "it is no JSON: " + scanner_.error() + "; nothing behind it was read");
      return;
    }
    if (bytes[end - 1] == '\n') ++line_;
    bytes.remove_prefix(end);
  }
}

void DocumentReader::Finish() {
  scanner_.Finish();
  if (!dead_ && !scanner_.AtTop()) sink_->Warn("the file ends in the middle of a value; what came before was read");
  if (!scanner_.AtTop()) EndTop();
}

std::string DocumentReader::Path(size_t without_last) const {
  std::string path;
  for (size_t i = 0; i + without_last < keys_.size(); ++i) path += (i == 0 ? "" : "/") + keys_[i];
  return path;
}

void DocumentReader::Begin(char bracket) {
  const bool starts_row = !InRow() && bracket == '{' && !open_.empty() && open_.back() == '[';
  open_.push_back(bracket);
  if (bracket == '{') keys_.emplace_back();
  if (starts_row) {
    row_.Clear();
    row_depth_ = open_.size();
    row_line_ = line_;
  }
  if (InRow()) row_.Begin(bracket);
}

void DocumentReader::End(char bracket) {
  if (InRow()) row_.End(bracket);
  if (open_.size() == row_depth_) EndRow();
  if (!open_.empty()) open_.pop_back();
  if (bracket == '{' && !keys_.empty()) keys_.pop_back();
  if (open_.empty()) EndTop();
}

void DocumentReader::Key(std::string_view key) {
  if (InRow()) row_.Key(key);
  if (!keys_.empty()) keys_.back().assign(key);
}

void DocumentReader::Number(double value) {
  if (InRow()) return row_.Number(value);
  Value(value, "");
}

void DocumentReader::Text(std::string_view text) {
  if (InRow()) return row_.Text(text);
  Value(WholeNumber(text).value_or(kNone), text);
}

void DocumentReader::Word(std::string_view word) {
  if (InRow()) return row_.Word(word);
  Value(kNone, "");
}

// A value outside of any row: a part of a column, or a scalar of the top object.
void DocumentReader::Value(double value, std::string_view text) {
  if (keys_.empty() || ++values_ > kColumnValuesMax) return;
  const std::string& key = keys_.back();
  if (open_.back() == '[') {
    if (open_.size() >= 2 && open_[open_.size() - 2] == '[') return;  // Lists of lists are no columns of ours.
    const bool golden = key == "values" && keys_.size() >= 2;
    // Golden values write "nan" where nothing was logged.
    columns_[Path(golden ? 1 : 0)].values.push_back(golden && !text.empty() ? kNone : value);
    return;
  }
  if (AllDigits(key) && keys_.size() >= 2) {
    const bool golden = keys_[keys_.size() - 2] == "values" && keys_.size() >= 3;
    const auto step = StepOf(WholeNumber(key).value_or(0));
    if (step) columns_[Path(golden ? 2 : 1)].by_step[*step] = golden && !text.empty() ? kNone : value;
    return;
  }
  const auto whole = StepOf(value);
  if (keys_.size() == 2 && key == "start_step" && whole) columns_[keys_[0]].start = *whole;
  if (keys_.size() == 2 && key == "step_interval" && whole && *whole > 0) columns_[keys_[0]].interval = *whole;
  if (keys_.size() != 1 || top_.size() >= kTopFieldsMax) return;
  Field& field = top_.Add(key);
  field.value = value;
  field.text.assign(text);
}

void DocumentReader::EndRow() {
  row_depth_ = 0;
  ++rows_;
  Record& record = row_.record;
  // The last row of a Hugging Face run sums it up: its train_loss is a mean over all steps, at the last one.
  for (size_t i = 0; i < record.size(); ++i)
    if (record[i].key == "train_runtime") return;
  record.line = row_line_;
  sink_->TakeRecord(record);
}

void DocumentReader::EndTop() {
  top_.line = line_;
  Header header;
  if (rows_ == 0 && columns_.empty() && top_.size() > 0 && !TakeGyrostatHeader(top_, sink_, &header))
    sink_->TakeRecord(top_);
  EmitByStep();
  EmitLists();
  columns_.clear();
  top_.Clear();
  keys_.clear();
  open_.clear();
  rows_ = values_ = 0;
}

void DocumentReader::EmitByStep() {
  std::map<std::string, std::set<int64_t>> steps;  // By run.
  for (const auto& [path, column] : columns_)
    for (const auto& [step, value] : column.by_step) steps[Split(path).first].insert(step);
  Record record;
  for (const auto& [run, all] : steps)
    for (const int64_t step : all) {
      record.Clear();
      record.run = run;
      record.step = step;
      for (const auto& [path, column] : columns_) {
        const auto it = column.by_step.find(step);
        if (it != column.by_step.end() && Split(path).first == run) record.Add(Split(path).second, it->second);
      }
      record.line = static_cast<uint64_t>(std::max<int64_t>(step, 0)) + 1;
      sink_->TakeRecord(record);
    }
}

// Lists are rows lying down. The longest tell how many rows there are; a shorter one is of something else.
void DocumentReader::EmitLists() {
  std::map<std::string, size_t> lengths;  // By run.
  for (const auto& [path, column] : columns_) {
    size_t& length = lengths[Split(path).first];
    length = std::max(length, column.values.size());
  }
  Record record;
  for (const auto& [run, length] : lengths) {
    std::vector<std::pair<std::string, const Column*>> whole;
    for (const auto& [path, column] : columns_)
      if (Split(path).first == run && column.values.size() == length) whole.emplace_back(Split(path).second, &column);
    for (size_t i = 0; i < length; ++i) {
      record.Clear();
      record.run = run;
      record.line = i + 1;
      bool step = false;
      for (const auto& [name, column] : whole) {
        const std::string plain = Normalised(name);
        step = step || plain == "step" || plain == "steps" || plain == "iteration" || plain == "iterations";
        record.Add(name, column->values[i]);
      }
      if (!step) record.step = whole[0].second->start + static_cast<int64_t>(i) * whole[0].second->interval;
      sink_->TakeRecord(record);
    }
  }
}

}  // namespace gyrostat::logs
