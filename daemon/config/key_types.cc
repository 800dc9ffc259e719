#include "config/key_types.h"

#include <charconv>
#include <cmath>

namespace gyrostat::config {

std::optional<int64_t> ReadInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ReadNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string ShowNumber(double value) {
  char buffer[400];  // The longest double in fixed notation has 309 digits before the point.
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  return error == std::errc() ? std::string(buffer, end) : "";
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  return quoted + "\"";
}

std::string PathProblem(const std::string& text) {
  return text.find('\0') == std::string::npos && text.size() < 4096 ? "" : "saw no path";
}

}  // namespace gyrostat::config
