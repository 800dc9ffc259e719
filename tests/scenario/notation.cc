#include "scenario/notation.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "model/signal.h"
#include "support/lcg.h"

namespace gyrostat::scenario {
namespace {

// Takes a number from the front of `*text`. Not std::from_chars alone: that reads "inf" and "nan" too.
bool TakeNumber(std::string_view* text, double* value) {
  const size_t first = text->substr(0, 1) == "-" ? 1 : 0;
  if (text->size() <= first) return false;
  const char c = (*text)[first];
  if (c != '.' && (c < '0' || c > '9')) return false;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *value);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

bool TakeSpecial(std::string_view* text, double* value) {
  struct Word {
    std::string_view name;
    double value;
  };
  static const Word kWords[] = {{"NaN", std::numeric_limits<double>::quiet_NaN()},
                                {"Inf", std::numeric_limits<double>::infinity()},
                                {"-Inf", -std::numeric_limits<double>::infinity()},
                                {"_", static_cast<double>(model::kAbsent)}};
  for (const Word& word : kWords) {
    if (text->substr(0, word.name.size()) != word.name) continue;
    text->remove_prefix(word.name.size());
    *value = word.value;
    return true;
  }
  return false;
}

std::string Wrong(std::string_view item, const char* wanted) {
  return "value `" + std::string(item) + "`: wanted " + wanted;
}

}  // namespace

bool ReadNumber(std::string_view text, double* value) {
  return TakeNumber(&text, value) && text.empty() && std::isfinite(*value);
}

bool ReadCount(std::string_view text, uint64_t max, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value <= max;
}

std::string AppendItem(std::string_view item, uint64_t seed, Series* series) {
  if (series->open) return Wrong(item, "nothing after an item that goes on to the end (x*)");
  std::string_view rest = item;
  double value = 0, add = 0, times = 1, noise = 0;
  if (!TakeSpecial(&rest, &value)) {
    if (!TakeNumber(&rest, &value)) return Wrong(item, "a number, NaN, Inf, -Inf or _");
    if (!rest.empty() && (rest[0] == '+' || rest[0] == '-' || rest[0] == '*')) {
      const char sign = rest[0];
      double change = 0;
      rest.remove_prefix(1);
      if (!TakeNumber(&rest, &change) || change < 0) return Wrong(item, "a number of at least 0 after + - or *");
      if (sign == '*') times = change;
      if (sign == '+') add = change;
      if (sign == '-') add = -change;
    }
    if (rest.substr(0, 1) == "~") {
      rest.remove_prefix(1);
      if (!TakeNumber(&rest, &noise) || noise < 0 || noise > 1) return Wrong(item, "a share from 0 to 1 after ~");
    }
  }
  uint64_t count = 1;
  if (!rest.empty()) {
    if (rest[0] != 'x') return Wrong(item, "x and a count, or nothing, at the end");
    rest.remove_prefix(1);
    series->open = rest == "*";
    if (!series->open && (!ReadCount(rest, kStepsMax, &count) || count == 0))
      return Wrong(item, "a count from 1 to 100000, or *, after x");
  }
  series->tail = value;
  series->tail_add = add;
  series->tail_times = times;
  series->tail_noise = noise;
  if (series->open) return {};
  if (series->values.size() + count > kStepsMax) return Wrong(item, "at most 100000 values in all");
  series->open = true;
  series->ExtendTo(series->values.size() + count, seed);
  series->open = false;
  return {};
}

void Series::ExtendTo(size_t steps, uint64_t seed) {
  if (!open) return;
  testing::Lcg random(seed + values.size());
  for (double next = tail; values.size() < steps; next = next * tail_times + tail_add)
    values.push_back(tail_noise > 0 ? next * (1 + tail_noise * (2 * random.Uniform() - 1)) : next);
}

}  // namespace gyrostat::scenario
