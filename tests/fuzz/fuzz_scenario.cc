// The scenario parser on any bytes: an error or a script within its bounds, never more.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "scenario/script.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gyrostat::scenario::Script script;
  const std::string error =
      gyrostat::scenario::Parse({reinterpret_cast<const char*>(data), size}, &script);
  if (!error.empty()) return 0;
  if (script.steps == 0 || script.steps > 100000) std::abort();
  for (const gyrostat::scenario::SignalLine& line : script.signals)
    if (line.values.size() != script.steps) std::abort();
  return 0;
}
