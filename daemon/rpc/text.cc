#include "rpc/text.h"

#include <cstdio>

#include "base/text.h"

namespace gyrostat::rpc {

std::string Quoted(std::string_view text) {
  constexpr size_t kShownMax = 64;
  return "\"" + base::CleanText(text, kShownMax) + (text.size() > kShownMax ? "…\"" : "\"");
}

std::string NumberText(double value) {
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%g", value);
  return digits;
}

}  // namespace gyrostat::rpc
