#include "logs/record.h"

namespace gyrostat::logs {

void Record::Clear() {
  run.clear();
  step.reset();
  rank.reset();
  needs_step = verbatim = false;
  line = 0;
  size_ = 0;
}

Field& Record::Add(std::string_view key) {
  if (size_ == fields_.size()) fields_.emplace_back();
  Field& field = fields_[size_++];
  field.key.assign(key);
  field.value = static_cast<double>(model::kAbsent);
  field.text.clear();
  field.values.clear();
  field.columns = 0;
  return field;
}

}  // namespace gyrostat::logs
