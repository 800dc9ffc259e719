#include "logs/nanogpt.h"

#include "logs/key_values.h"
#include "logs/number.h"

namespace gyrostat::logs {
namespace {

bool Has(std::string_view line, std::string_view text) { return line.find(text) != std::string_view::npos; }

std::optional<int64_t> RowStep(std::string_view line, std::string_view* rest) {
  if (const auto step = StepAfter("iter", line, rest); step && Has(*rest, ": loss ")) return step;
  const auto step = StepAfter("step", line, rest);
  if (!step) return std::nullopt;
  const bool kin = Has(*rest, "train_loss:") || Has(*rest, "val_loss:") || Has(*rest, "| loss:") ||
                   Has(*rest, ": train loss ");
  return kin ? step : std::nullopt;
}

// build-nanogpt's log file: "0 val 10.95", "0 hella 0.24", "0 train 10.95".
std::optional<int64_t> FileStep(std::string_view line, std::string_view* rest) {
  *rest = Trim(line);
  const auto step = TakeStep(rest);
  if (!step) return std::nullopt;
  const std::string_view tail = Trim(*rest);
  for (const std::string_view word : {"train ", "val ", "hella "})
    if (tail.substr(0, word.size()) == word && WholeNumber(tail.substr(word.size()))) return step;
  return std::nullopt;
}

class Nanogpt : public LineParser {
 public:
  bool Parse(std::string_view line, Record* record, std::string*) override {
    std::string_view rest;
    record->step = RowStep(line, &rest);
    if (record->step) {
      AddKeyValues(rest, &pairs_, record);
      return true;
    }
    record->step = FileStep(line, &rest);
    if (!record->step) return false;
    rest = Trim(rest);
    if (rest.substr(0, 5) != "train") return false;
    record->Add("loss", *WholeNumber(rest.substr(5)));
    return true;
  }

 private:
  std::vector<KeyValue> pairs_;
};

}  // namespace

std::unique_ptr<LineParser> MakeNanogpt() { return std::make_unique<Nanogpt>(); }

bool LooksLikeNanogpt(std::string_view line) {
  std::string_view rest;
  return RowStep(line, &rest) || FileStep(line, &rest);
}

}  // namespace gyrostat::logs
