#include "detect/text.h"

#include <array>
#include <cstdarg>
#include <cstdio>

namespace gyrostat::detect {

std::string Sentence(const char* format, ...) {
  std::array<char, 512> text;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  return text.data();
}

std::string Counted(uint32_t count, const char* noun) {
  return Sentence("%u %s%s", count, noun, count == 1 ? "" : "s");
}

std::string EndedBy(Break kind, model::Step step) {
  const char* what = kind == Break::kNewAttempt  ? "A restart"
                     : kind == Break::kNewEpoch ? "A change of the weights' history"
                                                : "An intervention";
  return Sentence("%s at step %lld ended it.", what, Printable(step));
}

}  // namespace gyrostat::detect
