// The hash of what ranks compare: against accidents, not against an adversary, who would sit inside the job anyway.
#pragma once

#include <cstdint>
#include <string_view>

namespace gyrostat::base {

// splitmix64's finaliser (Steele, Lea, Flood 2014): a cheap mix whose every output bit depends on every input bit.
inline uint64_t Mix(uint64_t h, uint64_t word) {
  h = (h ^ word) + 0x9e3779b97f4a7c15;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

inline uint64_t MixBytes(uint64_t h, std::string_view bytes) {
  for (const char c : bytes) h = Mix(h, static_cast<uint8_t>(c));
  return Mix(h, bytes.size());
}

}  // namespace gyrostat::base
