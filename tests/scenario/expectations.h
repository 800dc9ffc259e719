// What a run said, what was expected of it, and whether the two are the same.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/script.h"
#include "scenario/words.h"

namespace gyrostat::scenario {

// One thing that was said, in the words of `expect` lines. Printed, it is a line that would expect it.
struct Said {
  uint64_t step = 0;   // Of the scenario.
  std::string kind;
  std::vector<std::string> words;
  std::map<std::string, std::string> fields;
  std::string Line() const;
};

// Reads what follows `expect`. Kinds, words and fields that nothing says are errors. Empty, or what is wrong.
std::string ReadExpectation(const std::vector<Word>& words, Expectation* expectation);

// Whether `said` is what the line expects.
bool Matches(const Expectation& expectation, const Said& said);

// Compares all of it. Lines about one kind must match in the order in which it was said; what no line matched is an
// error, unless a line about the plural (`orders 3..5`) counts the rest. Returns one sentence for each difference.
std::vector<std::string> Compare(const std::vector<Expectation>& expectations, const std::vector<Said>& said);

}  // namespace gyrostat::scenario
