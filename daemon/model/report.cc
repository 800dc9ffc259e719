#include "model/report.h"

namespace gyrostat::model {
namespace {

// Whether `size` values can be what `shape` says; `wanted` then says in words what would have been right.
bool LengthFits(Shape shape, size_t size, const ModelSpec& spec, std::string* wanted) {
  const size_t layers = spec.layers, heads = spec.heads;
  switch (shape) {
    case Shape::kScalar:
      return true;
    case Shape::kLayer:
      *wanted = std::to_string(layers) + " (layers)";
      return layers == 0 || size == layers;
    case Shape::kBoundary:
      *wanted = std::to_string(layers) + " or " + std::to_string(layers + 1) + " (layers, or boundaries of layers)";
      return layers == 0 || size == layers || size == layers + 1;
    case Shape::kLayerHead:
      *wanted = std::to_string(layers * heads) + " (layers x heads = " + std::to_string(layers) + " x " +
                std::to_string(heads) + ")";
      if (layers == 0) return heads == 0 || size % heads == 0;
      return heads == 0 ? size % layers == 0 : size == layers * heads;
    case Shape::kLayerOrLayerHead:
      *wanted = std::to_string(layers) + " (layers) or " + std::to_string(layers * heads) + " (layers x heads)";
      return layers == 0 || size == layers || (heads == 0 ? size % layers == 0 : size == layers * heads);
    case Shape::kRankDigest:
      *wanted = "a multiple of " + std::to_string(kRankDigestFields) + ", at most " +
                std::to_string(kRankDigestFields * kRankSlotsMax);
      return size % kRankDigestFields == 0 && size <= kRankDigestFields * kRankSlotsMax;
  }
  return false;
}

}  // namespace

void Report::Clear() {
  sequence = 0;
  epoch = 0;
  boundary = 0;
  step = 0;
  ledger_version = 0;
  step_time_ms = 0;
  dropped_hot = dropped_unacked = 0;
  attn_logit_kind = LogitKind::kUnknown;
  local_clips.boundary = local_clips.ledger_version_before = local_clips.ledger_version_after = 0;
  local_clips.applied.layer.clear();
  local_clips.applied.head.clear();
  local_clips.applied.ticks.clear();
  user.clear();
  scalars_.fill(static_cast<double>(kAbsent));
  for (std::vector<float>& array : arrays_) array.clear();
}

std::string CheckShapes(const Report& report, const ModelSpec& spec) {
  for (const SignalInfo& info : Signals()) {
    if (!IsArray(info.signal) || !report.Has(info.signal)) continue;
    const size_t size = report.Array(info.signal).size();
    std::string wanted;
    if (!LengthFits(info.shape, size, spec, &wanted))
      return std::string(info.name) + " has " + std::to_string(size) + " values, wanted " + wanted;
  }
  return {};
}

}  // namespace gyrostat::model
