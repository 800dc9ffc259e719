#include "telemetry/layer_set.h"

#include <charconv>
#include <optional>
#include <string>
#include <system_error>

#include "absl/status/status.h"

namespace gyrostat::telemetry {
namespace {

constexpr size_t kPartsMax = 64;

std::optional<size_t> ToLayer(std::string_view text) {
  size_t layer = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return layer;
}

}  // namespace

absl::StatusOr<LayerSet> LayerSet::Parse(std::string_view text) {
  LayerSet set;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const size_t dash = part.find('-');
    const std::optional<size_t> first = ToLayer(part.substr(0, dash));
    const std::optional<size_t> last = dash == std::string_view::npos ? first : ToLayer(part.substr(dash + 1));
    if (!first || !last || *last < *first || set.ranges_.size() == kPartsMax)
      return absl::InvalidArgumentError("layers: saw '" + std::string(part.substr(0, 32)) +
                                        "', accepted are at most 64 layers and ranges, such as 0-7,12");
    set.ranges_.emplace_back(*first, *last);
  }
  return set;
}

bool LayerSet::Holds(size_t layer) const {
  if (ranges_.empty()) return true;
  for (const auto& [first, last] : ranges_)
    if (first <= layer && layer <= last) return true;
  return false;
}

}  // namespace gyrostat::telemetry
