// Text on its way into a page. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace gyrostat::ctl {

// `text` with what HTML would read as markup, in text or in a quoted attribute, written as entities; control characters
// and invisible marks as Escape (text.h) writes them.
std::string Html(std::string_view text);

// What printf writes, at most 511 bytes of it. For numbers and our own words: nothing is escaped.
[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);

// For a data: address.
std::string Base64(std::string_view bytes);

// For people, in as few characters as tell it: "0.25", "12500", "3e-4", "1.5e6". Four significant digits.
std::string ShortNumber(double value);

}  // namespace gyrostat::ctl
