#include "model/ids.h"

#include <algorithm>
#include <cstring>

namespace gyrostat::model {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool IsNameChar(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == ':' || c == '-';
}

}  // namespace

std::string Id128::ToHex() const {
  static const char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    text.push_back(kHex[byte >> 4]);
    text.push_back(kHex[byte & 15]);
  }
  return text;
}

std::optional<Id128> Id128::FromHex(std::string_view hex) {
  Id128 id;
  if (hex.size() != 2 * id.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < id.bytes.size(); ++i) {
    const int high = HexDigit(hex[2 * i]), low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    id.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return id;
}

std::optional<Id128> Id128::FromBytes(std::string_view bytes) {
  Id128 id;
  if (bytes.size() != id.bytes.size()) return std::nullopt;
  std::memcpy(id.bytes.data(), bytes.data(), bytes.size());
  return id;
}

bool IsValidName(std::string_view name) {
  return !name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), IsNameChar);
}

}  // namespace gyrostat::model
