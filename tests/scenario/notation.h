// The value notation of scenarios: a series of a thousand values in a few characters.
//
//   2.5          one value                     2.00x20       20 of them
//   4.00-0.01x200  200 values, each 0.01 lower 20*1.05x60    60 values, each 1.05 times the one before
//   2.5~0.02x50  50 values around 2.5, each off by at most 2 % of it, the same in every run of the test
//   NaN Inf -Inf non-finite, as they are       _             not measured
//   2.5x*        to the end of the scenario; only as the last item
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyrostat::scenario {

inline constexpr size_t kStepsMax = 100000;

struct Series {
  std::vector<double> values;
  bool open = false;       // The last item said `x*`: `tail` goes on to the end.
  double tail = 0, tail_add = 0, tail_times = 1, tail_noise = 0;

  // Makes an open series `steps` long.
  void ExtendTo(size_t steps, uint64_t seed);
};

// Adds the values of one item. Empty, or what is wrong with it; `*series` is then unspecified. `seed` makes the noise.
std::string AppendItem(std::string_view item, uint64_t seed, Series* series);

// A plain finite number, all of `text`. False when it is anything else.
bool ReadNumber(std::string_view text, double* value);
bool ReadCount(std::string_view text, uint64_t max, uint64_t* value);

}  // namespace gyrostat::scenario
