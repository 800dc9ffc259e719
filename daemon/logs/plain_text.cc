#include "logs/plain_text.h"

#include "logs/key_values.h"
#include "logs/number.h"

namespace gyrostat::logs {
namespace {

// "[step=10/739328,epoch=0]" and "[batch=1/4800]:": the values come on the indented lines below.
std::optional<int64_t> Heading(std::string_view line) {
  for (const std::string_view word : {"[step=", "[batch="}) {
    const size_t at = line.find(word);
    if (at == std::string_view::npos) continue;
    std::string_view rest = line.substr(at + word.size());
    if (const auto step = TakeStep(&rest)) return step;
  }
  return std::nullopt;
}

// "12) loss = 0.41" and "12: loss 0.41".
std::optional<int64_t> LeadingStep(std::string_view line) {
  const size_t bracket = line.rfind("] ");  // Behind a logger's prefix.
  std::string_view rest = Trim(bracket == std::string_view::npos ? line : line.substr(bracket + 2));
  const auto step = TakeStep(&rest);
  return step && rest.size() > 1 && (rest[0] == ')' || rest[0] == ':') && rest[1] == ' ' ? step : std::nullopt;
}

class PlainText : public LineParser {
 public:
  bool Parse(std::string_view line, Record* record, std::string*) override {
    if (line.empty()) return false;
    FindKeyValues(line, &pairs_);
    const bool indented = line[0] == ' ' || line[0] == '\t';
    const auto heading = Heading(line);
    if (!indented) heading_ = heading;
    if (pairs_.empty()) return false;
    record->needs_step = line.find('{') == std::string_view::npos;
    if (heading) record->step = heading;
    else if (indented && heading_) record->step = heading_;
    else if (const auto leading = LeadingStep(line)) record->Add("step", static_cast<double>(*leading));
    for (const KeyValue& each : pairs_) record->Add(each.key, each.value);
    return true;
  }

 private:
  std::vector<KeyValue> pairs_;
  std::optional<int64_t> heading_;  // Of the newest line that was not indented.
};

}  // namespace

std::unique_ptr<LineParser> MakePlainText() { return std::make_unique<PlainText>(); }

bool LooksLikePlainText(std::string_view) { return true; }

}  // namespace gyrostat::logs
