// Numbers as logs write them. No locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gyrostat::logs {

// The number at the start of `text`, and in `*length` how many characters it takes: 1.2e+01, nan, Inf, -infinity,
// 195,153, +3. What is too large for a double is infinite, what is too small 0. Nothing: `text` starts with no number.
std::optional<double> NumberAt(std::string_view text, size_t* length);

// `text` is one number and nothing else but blanks and a percent sign around it.
std::optional<double> WholeNumber(std::string_view text);

// A step: a whole number of at most 2^53 either way; "794.0" is one, 0.5 and NaN are not.
std::optional<int64_t> StepOf(double value);

std::string_view Trim(std::string_view text);

inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }
inline bool IsAlpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool StartsWithNoCase(std::string_view text, std::string_view lower_prefix);

}  // namespace gyrostat::logs
