// Layers as people name them in a query: "3", "0-7", "0-3,12,20-23".
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace gyrostat::telemetry {

// Thread-safe once made.
class LayerSet {
 public:
  // Empty: all layers. INVALID_ARGUMENT names the part that is no layer and no range; at most 64 parts.
  static absl::StatusOr<LayerSet> Parse(std::string_view text);

  bool Holds(size_t layer) const;

 private:
  std::vector<std::pair<size_t, size_t>> ranges_;  // First and last layer of each; none: all.
};

}  // namespace gyrostat::telemetry
