// Words from strangers, made fit for error texts, logs and terminals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gyrostat::rpc {

// `text` without control characters (each becomes '?'), cut to `bytes_max` at a UTF-8 character.
std::string CleanText(std::string_view text, size_t bytes_max);

// The same in double quotes, cut to 64 bytes: for naming a value that was refused.
std::string Quoted(std::string_view text);

// As short as it can be read: "0.1", "1e+300", "nan".
std::string NumberText(double value);

}  // namespace gyrostat::rpc
