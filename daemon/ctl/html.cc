#include "ctl/html.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ctl/text.h"

namespace gyrostat::ctl {
namespace {

constexpr double kPlainFrom = 1e-3, kPlainBelow = 1e5;  // Beyond, an exponent is shorter and easier to compare.

}  // namespace

std::string Html(std::string_view text) {
  std::string out;
  for (const char c : Escape(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out.push_back(c);
    }
  }
  return out;
}

std::string Format(const char* format, ...) {
  std::array<char, 512> raw;
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(raw.data(), raw.size(), format, arguments);
  va_end(arguments);
  return {raw.data(), std::min(static_cast<size_t>(std::max(length, 0)), raw.size() - 1)};
}

std::string Base64(std::string_view bytes) {
  static constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k)
      three = (three << 8) | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      out.push_back(i + k > bytes.size() ? '=' : kAlphabet[(three >> (18 - 6 * k)) & 63u]);
  }
  return out;
}

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return Number(value);
  const double size = std::abs(value);
  if (size == 0 || (size >= kPlainFrom && size < kPlainBelow)) {
    const int whole = size == 0 ? 0 : static_cast<int>(std::floor(std::log10(size)));
    std::string plain = Format("%.*f", std::max(0, 3 - whole), value);
    if (plain.find('.') != std::string::npos) plain.erase(plain.find_last_not_of('0') + 1);
    if (plain.back() == '.') plain.pop_back();
    return plain;
  }
  std::string out = Format("%.3e", value);
  const size_t e = out.find('e');
  std::string mantissa = out.substr(0, e);
  mantissa.erase(mantissa.find_last_not_of('0') + 1);
  if (mantissa.back() == '.') mantissa.pop_back();
  return mantissa + "e" + std::to_string(std::atoi(out.c_str() + e + 1));
}

}  // namespace gyrostat::ctl
