#include "logs/text_reader.h"

#include "logs/number.h"

namespace gyrostat::logs {

void TextReader::OnLine(std::string_view line, uint64_t number, bool complete) {
  record_.Clear();
  trouble_.clear();
  std::optional<uint32_t> rank;
  const std::string_view bare = WithoutRank(WithoutAnsi(line, &scratch_), &rank);
  if (!parser_->Parse(bare, &record_, &trouble_)) {
    if (!trouble_.empty()) sink()->Skip(number, trouble_);
    return;
  }
  record_.rank = rank;
  record_.line = number;
  static_cast<void>(complete);  // A torn line's numbers may be torn: parsers that can tell say so.
  sink()->TakeRecord(record_);
}

void TextReader::OnEnd() {
  if (const std::string remark = parser_->Remark(); !remark.empty()) sink()->Warn(remark);
}

std::optional<int64_t> TakeStep(std::string_view* text) {
  std::string_view rest = *text;
  bool sign = false;
  while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\t' || (!sign && (rest[0] == ':' || rest[0] == '=')))) {
    sign = sign || rest[0] == ':' || rest[0] == '=';
    rest.remove_prefix(1);
  }
  size_t length = 0;
  if (rest.empty() || !IsDigit(rest[0])) return std::nullopt;
  const auto number = NumberAt(rest, &length);
  const auto step = number ? StepOf(*number) : std::nullopt;
  if (step) *text = rest.substr(length);
  return step;
}

std::optional<int64_t> StepAfter(std::string_view word, std::string_view line, std::string_view* rest) {
  line = Trim(line);
  if (line.substr(0, word.size()) != word) return std::nullopt;
  *rest = line.substr(word.size());
  return TakeStep(rest);
}

}  // namespace gyrostat::logs
