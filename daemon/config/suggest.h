// What a mistyped key was probably meant to be. Private to config/.
#pragma once

#include <string>
#include <vector>

namespace gyrostat::config {

// The name nearest to `typed`, whole or by its last part; empty where none is near enough to be worth saying.
std::string Nearest(const std::string& typed, const std::vector<std::string>& names);

}  // namespace gyrostat::config
