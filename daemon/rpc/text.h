// Values that were refused, as error texts name them.
#pragma once

#include <string>
#include <string_view>

namespace gyrostat::rpc {

// `text` as base::CleanText makes it, in double quotes and cut to 64 bytes.
std::string Quoted(std::string_view text);

// As short as it can be read: "0.1", "1e+300", "nan".
std::string NumberText(double value);

}  // namespace gyrostat::rpc
