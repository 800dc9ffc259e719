// A line of a scenario cut into words, and the small values that words are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/script.h"

namespace gyrostat::scenario {

// One word: `text`, `key=value` or `key~value`. Quotes around a value are taken off.
struct Word {
  std::string key;    // Empty for a plain word.
  char mark = 0;      // '=' or '~' where there is a key.
  std::string value;  // Of a plain word: the word.
};

// Cuts at spaces outside "quotes" and drops what follows a #. Empty, or what is wrong.
std::string Cut(std::string_view line, std::vector<Word>* words);

// "500ms", "1s", "10m", "2h"; at most a day.
bool ReadDuration(std::string_view text, int64_t* ms);
// "7" or "7..9", of finite numbers, low <= high.
bool ReadRange(std::string_view text, Range* range);
// "a,b,c"; empty gives none.
std::vector<std::string> ReadList(std::string_view text);

}  // namespace gyrostat::scenario
