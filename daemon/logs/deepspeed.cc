#include "logs/deepspeed.h"

#include "logs/key_values.h"
#include "logs/number.h"

namespace gyrostat::logs {
namespace {

bool Has(std::string_view line, std::string_view text) { return line.find(text) != std::string_view::npos; }

bool IsLogDist(std::string_view line) {
  return Has(line, " step=") && Has(line, "skipped=") && (Has(line, "lr=") || Has(line, "mom="));
}
bool IsPipeline(std::string_view line) {
  std::string_view rest;
  return StepAfter("steps:", line, &rest).has_value() && Has(rest, "loss:") && Has(rest, "iter time");
}
constexpr std::string_view kAttempted = "Attempted loss scale:";
constexpr std::string_view kReducing = "reducing to";

class Deepspeed : public LineParser {
 public:
  bool Parse(std::string_view line, Record* record, std::string*) override {
    if (const size_t at = line.find(kAttempted); at != std::string_view::npos) {
      TakeOverflow(line.substr(at + kAttempted.size()));
      return false;
    }
    const bool step_line = IsLogDist(line) || IsPipeline(line);
    FindKeyValues(line, &pairs_);
    for (const KeyValue& each : pairs_) {
      const bool step = each.key == "step" || each.key == "steps";
      if (step_line && step && !record->step) record->step = StepOf(each.value);
      if (step_line && !step) record->Add(each.key, each.value);
      if (!step_line && each.key == "loss") loss_ = each.value;
    }
    if (step_line) {
      if (scale_) record->Add("loss_scale", *scale_);
      if (loss_) record->Add("loss", *loss_);
      scale_.reset();
      loss_.reset();
      return record->step.has_value();
    }
    // Scripts print rows of their own: "epoch 0 step 10 loss 2.3".
    record->needs_step = true;
    AddKeyValues(line, &pairs_, record);
    return record->size() > 1 && Has(line, "step");
  }
  std::string Remark() const override {
    return overflows_ == 0 ? "" : "overflows cut the loss scale " + std::to_string(overflows_) +
                                      " times; it is reported with the step line after each";
  }

 private:
  // " 65536, reducing to 32768", or " 65536, but hysteresis is 2. Reducing hysteresis to 1".
  void TakeOverflow(std::string_view rest) {
    ++overflows_;
    const size_t reduced = rest.find(kReducing);
    if (reduced != std::string_view::npos) rest.remove_prefix(reduced + kReducing.size());
    size_t length = 0;
    if (const auto scale = NumberAt(Trim(rest), &length)) scale_ = scale;
  }

  std::vector<KeyValue> pairs_;
  std::optional<double> scale_, loss_;  // Since the last step line.
  uint64_t overflows_ = 0;
};

}  // namespace

std::unique_ptr<LineParser> MakeDeepspeed() { return std::make_unique<Deepspeed>(); }

bool LooksLikeDeepspeed(std::string_view line) {
  return IsLogDist(line) || IsPipeline(line) || (Has(line, "OVERFLOW!") && Has(line, kAttempted));
}

}  // namespace gyrostat::logs
