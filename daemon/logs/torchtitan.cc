#include "logs/torchtitan.h"

#include "logs/key_values.h"
#include "logs/number.h"

namespace gyrostat::logs {
namespace {

std::optional<int64_t> RowStep(std::string_view line, std::string_view* rest) {
  const size_t at = line.find("step:");
  if (at == std::string_view::npos) return std::nullopt;
  const auto step = StepAfter("step:", line.substr(at), rest);
  if (!step || rest->empty() || (*rest)[0] != ' ' || Trim(*rest).substr(0, 5) != "loss:") return std::nullopt;
  return step;
}

class Torchtitan : public LineParser {
 public:
  bool Parse(std::string_view line, Record* record, std::string*) override {
    std::string_view rest;
    record->step = RowStep(line, &rest);
    if (!record->step) return false;
    FindKeyValues(rest, &pairs_);
    for (const KeyValue& each : pairs_)
      if (!(each.key == "loss" && each.value == -1)) record->Add(each.key, each.value);
    return true;
  }

 private:
  std::vector<KeyValue> pairs_;
};

}  // namespace

std::unique_ptr<LineParser> MakeTorchtitan() { return std::make_unique<Torchtitan>(); }

bool LooksLikeTorchtitan(std::string_view line) {
  std::string_view rest;
  return RowStep(line, &rest).has_value();
}

}  // namespace gyrostat::logs
