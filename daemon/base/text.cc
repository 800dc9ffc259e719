#include "base/text.h"

namespace gyrostat::base {

std::string CleanText(std::string_view text, size_t bytes_max) {
  if (text.size() > bytes_max) {
    // A byte 10xxxxxx continues a character: do not cut before one.
    while (bytes_max > 0 && (static_cast<unsigned char>(text[bytes_max]) & 0xC0) == 0x80) --bytes_max;
    text = text.substr(0, bytes_max);
  }
  std::string clean(text);
  for (char& c : clean)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return clean;
}

}  // namespace gyrostat::base
