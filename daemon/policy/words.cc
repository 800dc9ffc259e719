#include "policy/words.h"

#include <cstdio>

namespace gyrostat::policy {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

std::string Count(uint64_t n, const char* noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

std::string HeadName(uint32_t layer, uint32_t head) {
  return "L" + std::to_string(layer) + " H" + std::to_string(head);
}

std::string Joined(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + " " + second;
}

}  // namespace gyrostat::policy
