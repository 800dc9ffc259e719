// Random numbers that are the same on every machine: a seed is a whole history.
#pragma once

#include <cstdint>

namespace gyrostat::simulation {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 0x1234567) {}

  uint64_t Next() {  // splitmix64.
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // [low, high].
  uint64_t Between(uint64_t low, uint64_t high) { return low + Next() % (high - low + 1); }
  double Real() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  bool Chance(double p) { return Real() < p; }

 private:
  uint64_t state_;
};

}  // namespace gyrostat::simulation
