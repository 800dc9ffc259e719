#include "logs/fairseq.h"

#include "logs/key_values.h"
#include "logs/number.h"

namespace gyrostat::logs {
namespace {

bool Has(std::string_view line, std::string_view text) { return line.find(text) != std::string_view::npos; }

bool IsInner(std::string_view line) {
  if (!Has(line, "num_updates") || Has(line, "train_num_updates") || Has(line, "valid")) return false;
  return Has(line, "train_inner") || Has(line, "| epoch");
}

class Fairseq : public LineParser {
 public:
  bool Parse(std::string_view line, Record* record, std::string*) override {
    if (!IsInner(line)) return false;
    FindKeyValues(line, &pairs_);
    for (const KeyValue& each : pairs_) {
      if (each.key == "num_updates") record->step = StepOf(each.value);
      else record->Add(each.key, each.value);
    }
    return record->step.has_value();
  }

 private:
  std::vector<KeyValue> pairs_;
};

}  // namespace

std::unique_ptr<LineParser> MakeFairseq() { return std::make_unique<Fairseq>(); }

bool LooksLikeFairseq(std::string_view line) { return IsInner(line); }

}  // namespace gyrostat::logs
