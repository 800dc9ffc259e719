#include "logs/llmc.h"

#include "logs/key_values.h"
#include "logs/number.h"

namespace gyrostat::logs {
namespace {

bool Has(std::string_view line, std::string_view text) { return line.find(text) != std::string_view::npos; }

// "loss 3.4" and never "loss: 3.4", which is what nanoGPT's kin print.
std::optional<int64_t> StdoutStep(std::string_view line, std::string_view* rest) {
  const auto step = StepAfter("step", line, rest);
  if (!step || rest->empty() || !(Has(*rest, "loss ") && !Has(*rest, "loss:"))) return std::nullopt;
  const bool slash = (*rest)[0] == '/' && Has(*rest, "|");
  const bool took = (*rest)[0] == ':' && Has(*rest, "(took");
  return slash || took ? step : std::nullopt;
}

std::optional<int64_t> MainLogStep(std::string_view line, std::string_view* rest) {
  const auto step = StepAfter("s:", line, rest);
  if (!step) return std::nullopt;
  const std::string_view tail = Trim(*rest);
  return tail.substr(0, 4) == "trl:" || tail.substr(0, 4) == "tel:" || tail.substr(0, 4) == "eval" ? step
                                                                                                   : std::nullopt;
}

class Llmc : public LineParser {
 public:
  bool Parse(std::string_view line, Record* record, std::string* trouble) override {
    std::string_view rest;
    record->step = StdoutStep(line, &rest);
    if (record->step && !Has(rest, " ms")) {  // Every line ends in times; one without them was cut by a kill.
      *trouble = "the record is cut off";
      return false;
    }
    if (!record->step) record->step = MainLogStep(line, &rest);
    if (!record->step) return false;
    AddKeyValues(rest, &pairs_, record);
    return true;
  }

 private:
  std::vector<KeyValue> pairs_;
};

}  // namespace

std::unique_ptr<LineParser> MakeLlmc() { return std::make_unique<Llmc>(); }

bool LooksLikeLlmc(std::string_view line) {
  std::string_view rest;
  return StdoutStep(line, &rest) || MainLogStep(line, &rest);
}

}  // namespace gyrostat::logs
