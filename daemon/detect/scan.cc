#include "detect/scan.h"

#include <algorithm>
#include <array>

namespace gyrostat::detect {
namespace {

// Independent maxima side by side: one running maximum would be a chain that cannot be made vector code.
constexpr size_t kLanes = 16;

}  // namespace

float MaxFinite(std::span<const float> values) {
  std::array<float, kLanes> lanes;
  lanes.fill(model::kAbsent);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      const float v = FiniteOrAbsent(values[i + j]);
      lanes[j] = lanes[j] > v ? lanes[j] : v;
    }
  }
  for (; i < values.size(); ++i) lanes[0] = std::max(lanes[0], FiniteOrAbsent(values[i]));
  return *std::max_element(lanes.begin(), lanes.end());
}

Nonfinite CountNonfinite(std::span<const float> values) {
  constexpr uint32_t kPlusInf = kExponentBits, kMinusInf = kExponentBits | 0x80000000u;
  uint32_t all = 0, plus = 0, minus = 0;
  for (const float v : values) {
    const auto bits = std::bit_cast<uint32_t>(v);
    all += (bits & kExponentBits) == kExponentBits ? 1u : 0u;
    plus += bits == kPlusInf ? 1u : 0u;
    minus += bits == kMinusInf ? 1u : 0u;
  }
  return {all - plus - minus, plus, minus};
}

size_t IndexOf(std::span<const float> values, float value) {
  return static_cast<size_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

}  // namespace gyrostat::detect
