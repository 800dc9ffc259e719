// One JSON object → one flat record: {"a": {"b": 1}} is a field "a/b", an array of numbers is a field with values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "logs/json_scan.h"
#include "logs/record.h"

namespace gyrostat::logs {

// Strings that are numbers ("11.52", "NaN", "-Infinity") count as numbers and keep their text. null inside an array is
// kAbsent, objects inside arrays are left out, inner arrays of different lengths are filled up with kAbsent.
class RecordBuilder : public JsonEvents {
 public:
  static constexpr size_t kArrayValuesMax = size_t{4} << 20;

  Record record;

  void Clear();
  void Begin(char bracket) override;
  void End(char bracket) override;
  void Key(std::string_view key) override;
  void Number(double value) override;
  void Text(std::string_view text) override;
  void Word(std::string_view word) override;

 private:
  void EndArray();
  void Push(double value);

  std::string path_;           // Of the value that comes next.
  std::vector<size_t> bases_;  // Length of the path of each open object.
  size_t array_depth_ = 0, skip_depth_ = 0;
  std::vector<float> values_;
  std::vector<size_t> row_ends_;  // Of the inner arrays.
};

// Whether it is the first object of gyrostat JSONL.
bool IsHeader(const Record& record);

}  // namespace gyrostat::logs
