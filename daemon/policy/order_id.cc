#include "policy/order_id.h"

#include <cstring>

namespace gyrostat::policy {
namespace {

// FNV-1a, then the finalizer of splitmix64, since FNV alone leaves the high bits of short inputs poorly mixed.
uint64_t Hash(uint64_t hash, std::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return hash;
}

uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

model::OrderId MakeOrderId(std::string_view run, const model::AttemptId& attempt, uint64_t counter) {
  char number[sizeof(counter)];
  std::memcpy(number, &counter, sizeof(counter));
  model::OrderId id;
  // Two hashes that start apart; FNV's own offset basis and its complement.
  uint64_t start = 0xCBF29CE484222325u;
  for (size_t half = 0; half < 2; ++half, start = ~start) {
    const uint64_t hash = Mixed(Hash(Hash(Hash(start, attempt.AsBytes()), {number, sizeof(number)}), run));
    std::memcpy(id.bytes.data() + half * sizeof(hash), &hash, sizeof(hash));
  }
  return id;
}

}  // namespace gyrostat::policy
