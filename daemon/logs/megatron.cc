#include "logs/megatron.h"

#include <cmath>
#include <limits>

#include "logs/key_values.h"
#include "logs/number.h"

namespace gyrostat::logs {
namespace {

// The step of "iteration 3/ 1000 |" and what follows the total.
std::optional<int64_t> Iteration(std::string_view line, std::string_view* rest) {
  constexpr std::string_view kWord = "iteration";
  for (size_t at = line.find(kWord); at != std::string_view::npos; at = line.find(kWord, at + 1)) {
    std::string_view tail = line.substr(at + kWord.size());
    const auto step = TakeStep(&tail);
    tail = tail.substr(std::min(tail.find_first_not_of(' '), tail.size()));
    if (!step || tail.empty() || tail[0] != '/') continue;
    tail.remove_prefix(1);
    if (!TakeStep(&tail) || tail.find('|') == std::string_view::npos) continue;
    *rest = tail;
    return step;
  }
  return std::nullopt;
}

class Megatron : public LineParser {
 public:
  bool Parse(std::string_view line, Record* record, std::string*) override {
    std::string_view rest;
    record->step = Iteration(line, &rest);
    if (!record->step) return false;
    FindKeyValues(rest, &pairs_);
    bool loss = false;
    double skipped = 0, nan = 0;
    for (const KeyValue& each : pairs_) {
      loss = loss || each.key == "lm loss" || each.key == "loss" || each.key == "lm_loss";
      if (each.key == "number of skipped iterations") skipped = each.value;
      if (each.key == "number of nan iterations") nan = each.value;
      record->Add(each.key, each.value);
    }
    if (!loss && (nan > 0 || (had_loss_ && skipped == 0))) {
      record->Add("lm loss", std::numeric_limits<double>::quiet_NaN());
      ++vanished_;
    }
    had_loss_ = had_loss_ || loss;
    return true;
  }
  std::string Remark() const override {
    return vanished_ == 0
               ? ""
               : "lm loss is missing from " + std::to_string(vanished_) +
                     " of the rows without a skipped iteration, as Megatron does with NaN: it was read as NaN";
  }

 private:
  std::vector<KeyValue> pairs_;
  bool had_loss_ = false;
  uint64_t vanished_ = 0;
};

}  // namespace

std::unique_ptr<LineParser> MakeMegatron() { return std::make_unique<Megatron>(); }

bool LooksLikeMegatron(std::string_view line) {
  std::string_view rest;
  return Iteration(line, &rest) && (rest.find("elapsed") != std::string_view::npos ||
                                    rest.find("consumed") != std::string_view::npos);
}

}  // namespace gyrostat::logs
