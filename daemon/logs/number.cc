#include "logs/number.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace gyrostat::logs {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// "nan", "inf", "infinity" as whole words.
std::optional<double> WordAt(std::string_view text, size_t* length) {
  static constexpr std::array<std::pair<std::string_view, double>, 3> kWords = {
      {{"infinity", kInf}, {"inf", kInf}, {"nan", kNan}}};
  for (const auto& [word, value] : kWords) {
    if (!StartsWithNoCase(text, word)) continue;
    const bool ends = text.size() == word.size() || !(IsAlpha(text[word.size()]) || IsDigit(text[word.size()]));
    // "nanz" and "nanms" are a NaN with a unit.
    const bool unit = word == "nan" && (text.substr(3, 1) == "z" || text.substr(3, 2) == "ms");
    if (!ends && !unit) continue;
    *length = word.size();
    return value;
  }
  return std::nullopt;
}

// The digits of "195,153,001" without their commas; empty where the commas do not stand like that.
size_t GroupedLength(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && IsDigit(text[i])) ++i;
  if (i == 0 || i > 3) return 0;
  const size_t first = i;
  while (i + 3 < text.size() && text[i] == ',' && IsDigit(text[i + 1]) && IsDigit(text[i + 2]) &&
         IsDigit(text[i + 3]) && (i + 4 == text.size() || !IsDigit(text[i + 4])))
    i += 4;
  return i == first ? 0 : i;
}

bool NegativeExponent(std::string_view number) {
  const size_t e = number.find_first_of("eE");
  return e != std::string_view::npos && e + 1 < number.size() && number[e + 1] == '-';
}

}  // namespace

bool StartsWithNoCase(std::string_view text, std::string_view lower_prefix) {
  if (text.size() < lower_prefix.size()) return false;
  for (size_t i = 0; i < lower_prefix.size(); ++i)
    if (Lower(text[i]) != lower_prefix[i]) return false;
  return true;
}

std::optional<double> NumberAt(std::string_view text, size_t* length) {
  size_t sign = 0;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) sign = 1;
  const double factor = sign == 1 && text[0] == '-' ? -1 : 1;
  const std::string_view rest = text.substr(sign);
  if (rest.empty()) return std::nullopt;
  if (!IsDigit(rest[0]) && rest[0] != '.') {
    const auto word = WordAt(rest, length);
    *length += sign;
    return word ? std::optional(factor * *word) : std::nullopt;
  }
  if (const size_t grouped = GroupedLength(rest); grouped > 0) {
    double value = 0;
    for (const char c : rest.substr(0, grouped))
      if (c != ',') value = value * 10 + (c - '0');
    *length = sign + grouped;
    return factor * value;
  }
  double value = 0;
  const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (code == std::errc::invalid_argument) return std::nullopt;
  const auto used = static_cast<size_t>(end - rest.data());
  if (code == std::errc::result_out_of_range) value = NegativeExponent(rest.substr(0, used)) ? 0 : kInf;
  *length = sign + used;
  return factor * value;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::optional<double> WholeNumber(std::string_view text) {
  text = Trim(text);
  size_t length = 0;
  const auto value = NumberAt(text, &length);
  if (!value) return std::nullopt;
  const std::string_view rest = Trim(text.substr(length));
  return rest.empty() || rest == "%" ? value : std::nullopt;
}

std::optional<int64_t> StepOf(double value) {
  constexpr double kStepMax = 9007199254740992.0;
  if (!(std::abs(value) <= kStepMax) || value != std::floor(value)) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace gyrostat::logs
