// Random numbers that are the same on every machine and with every library: a test's seed is its whole story.
#pragma once

#include <cstdint>

namespace gyrostat::testing {

class Lcg {
 public:
  explicit Lcg(uint64_t seed) : state_(seed * 2862933555777941757u + 3037000493u) {
    for (int i = 0; i < 4; ++i) Next();
  }
  // Knuth's MMIX multiplier; the high bits are the good ones.
  uint32_t Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 32);
  }
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(uint64_t{Next()} * n >> 32); }
  double Uniform() { return Next() / 4294967296.0; }  // [0, 1).
  // Mean 0, deviation 1; the sum of twelve uniforms is near enough to a normal.
  double Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

 private:
  uint64_t state_;
};

}  // namespace gyrostat::testing
