// Words from strangers, made fit for logs, journals and terminals. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gyrostat::base {

// `text` without control characters (each becomes '?'), cut to `bytes_max` at a UTF-8 character.
std::string CleanText(std::string_view text, size_t bytes_max);

}  // namespace gyrostat::base
