#include "store/series.h"

#include <cmath>
#include <string>

namespace gyrostat::store {
namespace {

absl::Status NoSuch(const engine::SeriesQuery& query, const char* what, uint32_t asked, size_t there) {
  return absl::InvalidArgumentError(std::string(what) + " " + std::to_string(asked) + " of " +
                                    std::string(model::SignalName(query.signal)) + ": it has " + std::to_string(there) +
                                    ", counted from 0");
}

}  // namespace

absl::Status CheckQuery(const engine::SeriesQuery& query) {
  if (query.signal == model::Signal::kNone && query.user_name.empty())
    return absl::InvalidArgumentError("no signal is named");
  const model::SignalInfo* info = model::FindSignal(query.signal);
  const std::string name = info != nullptr ? std::string(info->name) : query.user_name;
  if (info == nullptr || info->shape == model::Shape::kScalar) {
    if (query.layer || query.head) return absl::InvalidArgumentError(name + " is one value a step: it has no layers");
  } else if (query.head && info->shape != model::Shape::kLayerHead && info->shape != model::Shape::kLayerOrLayerHead) {
    return absl::InvalidArgumentError(name + " is one value a layer: it has no heads");
  }
  return absl::OkStatus();
}

size_t HeadsPerLayer(model::Signal signal, size_t size, uint32_t layers, uint32_t heads) {
  const model::SignalInfo* info = model::FindSignal(signal);
  const bool has_heads = info != nullptr && (info->shape == model::Shape::kLayerHead ||
                                             (info->shape == model::Shape::kLayerOrLayerHead && size != layers));
  if (!has_heads) return 1;
  return heads > 0 ? heads : layers > 0 && size % layers == 0 ? size / layers : size;
}

absl::StatusOr<std::vector<size_t>> IndicesOf(const engine::SeriesQuery& query, size_t size, uint32_t layers,
                                              uint32_t heads) {
  const size_t per_layer = HeadsPerLayer(query.signal, size, layers, heads);
  if (per_layer == 0) return std::vector<size_t>();
  const size_t layers_there = size / per_layer;
  if (query.layer && *query.layer >= layers_there) return NoSuch(query, "layer", *query.layer, layers_there);
  if (query.head && *query.head >= per_layer) return NoSuch(query, "head", *query.head, per_layer);
  std::vector<size_t> indices;
  for (size_t layer = query.layer.value_or(0); layer < layers_there; ++layer) {
    for (size_t head = query.head.value_or(0); head < per_layer; ++head) {
      indices.push_back(layer * per_layer + head);
      if (query.head) break;
    }
    if (query.layer) break;
  }
  return indices;
}

double Larger(double a, double b) {
  if (model::IsAbsent(a) || std::isnan(b)) return b;
  if (model::IsAbsent(b) || std::isnan(a)) return a;
  return a > b ? a : b;
}

}  // namespace gyrostat::store
