#include "logs/json_record.h"

#include <algorithm>

#include "logs/number.h"

namespace gyrostat::logs {

void RecordBuilder::Clear() {
  record.Clear();
  path_.clear();
  bases_.clear();
  array_depth_ = skip_depth_ = 0;
  values_.clear();
  row_ends_.clear();
}

void RecordBuilder::Begin(char bracket) {
  if (skip_depth_ > 0 || (bracket == '{' && array_depth_ > 0)) {
    ++skip_depth_;
  } else if (bracket == '[') {
    if (++array_depth_ == 1) {
      values_.clear();
      row_ends_.clear();
    }
  } else {
    bases_.push_back(path_.size());
  }
}

void RecordBuilder::End(char bracket) {
  if (skip_depth_ > 0) {
    --skip_depth_;
  } else if (bracket == '[') {
    if (array_depth_ == 2) row_ends_.push_back(values_.size());
    if (--array_depth_ == 0) EndArray();
  } else if (!bases_.empty()) {
    path_.resize(bases_.back());
    bases_.pop_back();
  }
}

void RecordBuilder::EndArray() {
  if (values_.empty()) return;
  Field& field = record.Add(path_);
  if (row_ends_.empty()) {
    field.values.swap(values_);
    return;
  }
  size_t columns = 0, begin = 0;
  for (const size_t end : row_ends_) columns = std::max(columns, end - std::exchange(begin, end));
  if (columns * row_ends_.size() > kArrayValuesMax) return record.DropLast();
  field.columns = static_cast<uint32_t>(columns);
  field.values.assign(columns * row_ends_.size(), model::kAbsent);
  begin = 0;
  for (size_t row = 0; row < row_ends_.size(); ++row) {
    for (size_t i = begin; i < row_ends_[row]; ++i) field.values[row * columns + i - begin] = values_[i];
    begin = row_ends_[row];
  }
}

void RecordBuilder::Key(std::string_view key) {
  if (skip_depth_ > 0 || bases_.empty()) return;
  path_.resize(bases_.back());
  if (!path_.empty()) path_.push_back('/');
  path_.append(key);
}

void RecordBuilder::Push(double value) {
  if (values_.size() < kArrayValuesMax) values_.push_back(static_cast<float>(value));
}

void RecordBuilder::Number(double value) {
  if (skip_depth_ > 0) return;
  if (array_depth_ > 0) return Push(value);
  if (!bases_.empty()) record.Add(path_, value);
}

void RecordBuilder::Text(std::string_view text) {
  if (skip_depth_ > 0 || bases_.empty()) return;
  const auto number = WholeNumber(text);
  const double value = number.value_or(static_cast<double>(model::kAbsent));
  if (array_depth_ > 0) return Push(value);
  Field& field = record.Add(path_);
  field.text.assign(text);
  field.value = value;
}

void RecordBuilder::Word(std::string_view word) {
  if (skip_depth_ > 0 || bases_.empty()) return;
  if (array_depth_ > 0) return Push(static_cast<double>(model::kAbsent));
  Field& field = record.Add(path_);
  if (word != "null") field.text.assign(word);
}

bool IsHeader(const Record& record) {
  for (size_t i = 0; i < record.size(); ++i)
    if (record[i].key == "gyrostat") return true;
  return false;
}

}  // namespace gyrostat::logs
