// How the policy's sentences write numbers and heads.
#pragma once

#include <cstdint>
#include <string>

namespace gyrostat::policy {

// Six digits at most, as people write: 45.3, 1e+09, nan.
std::string Number(double value);

// "1 head", "3 heads".
std::string Count(uint64_t n, const char* noun);

// "L2 H11".
std::string HeadName(uint32_t layer, uint32_t head);

// Two sentences as one text; either may be empty.
std::string Joined(const std::string& first, const std::string& second);

}  // namespace gyrostat::policy
