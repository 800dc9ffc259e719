#include "client/src/frame.h"

#include <algorithm>
#include <new>
#include <string>

namespace gyrostat::client {
namespace {

constexpr size_t kFloatsPerLine = kCacheLine / sizeof(float);

size_t RoundUp(size_t floats) { return (floats + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine; }

}  // namespace

void Frame::Begin(model::Step new_step) {
  step = new_step;
  logit_kind = model::LogitKind::kUnknown;
  user_count = 0;
  array_bytes = 0;
  step_time_ms = 0;
  scalars.fill(static_cast<double>(model::kAbsent));
  counts.fill(0);
  layers_seen.fill(0);
}

bool Frame::Resize(model::Signal signal, size_t count) {
  uint32_t& held = counts[Slot(signal)];
  const size_t bytes = array_bytes - held * sizeof(float) + count * sizeof(float);
  if (bytes > kArrayBytesMax) return false;
  array_bytes = bytes;
  held = static_cast<uint32_t>(count);
  return true;
}

void Frame::CopyTo(model::Report* report) const {
  report->Clear();
  report->epoch = epoch;
  report->boundary = boundary;
  report->step = step;
  report->ledger_version = ledger_version;
  report->dropped_hot = dropped_hot;
  report->step_time_ms = step_time_ms;
  report->attn_logit_kind = logit_kind;
  for (int s = 1; s < model::kScalarSlots; ++s)
    report->SetScalar(static_cast<model::Signal>(s), scalars[static_cast<size_t>(s)]);
  for (int slot = 0; slot < model::kArraySlots; ++slot) {
    const auto signal = static_cast<model::Signal>(model::kArrayFirst + slot);
    const auto i = static_cast<size_t>(slot);
    report->MutableArray(signal).assign(arrays[i], arrays[i] + counts[i]);
  }
  for (uint32_t i = 0; i < user_count; ++i)
    report->user.emplace_back(std::string(user[i].name, user[i].name_size), user[i].value);
}

FrameLayout::FrameLayout(uint32_t layers, uint32_t heads) : layers_(layers), heads_(heads) {}

size_t FrameLayout::Capacity(model::Shape shape) const {
  switch (shape) {
    case model::Shape::kScalar:
      return 0;
    case model::Shape::kLayer:
      return layers_ == 0 ? kUnknownShapeValues : layers_;
    case model::Shape::kBoundary:
      return layers_ == 0 ? kUnknownShapeValues : size_t{layers_} + 1;
    case model::Shape::kLayerHead:
    case model::Shape::kLayerOrLayerHead:
      return layers_ == 0 || heads_ == 0 ? std::max<size_t>(kUnknownShapeValues, layers_) : size_t{layers_} * heads_;
    case model::Shape::kRankDigest:
      return size_t{model::kRankDigestFields} * model::kRankSlotsMax;
  }
  return 0;
}

bool FrameLayout::Fits(model::Shape shape, size_t count) const {
  if (count == 0 || count > Capacity(shape)) return false;
  switch (shape) {
    case model::Shape::kScalar:
      return false;
    case model::Shape::kLayer:
      return layers_ == 0 || count == layers_;
    case model::Shape::kBoundary:
      return layers_ == 0 || count == layers_ || count == size_t{layers_} + 1;
    case model::Shape::kLayerHead:
      if (layers_ == 0) return heads_ == 0 || count % heads_ == 0;
      return heads_ == 0 ? count % layers_ == 0 : count == size_t{layers_} * heads_;
    case model::Shape::kLayerOrLayerHead:
      return layers_ == 0 || count == layers_ ||
             (heads_ == 0 ? count % layers_ == 0 : count == size_t{layers_} * heads_);
    case model::Shape::kRankDigest:
      return count % model::kRankDigestFields == 0;
  }
  return false;
}

FrameRing::FrameRing(const FrameLayout& layout, size_t frames) : queue_(frames) {
  std::array<size_t, model::kArraySlots> offsets{};
  size_t stride = 0;
  for (const model::SignalInfo& info : model::Signals()) {
    if (!model::IsArray(info.signal)) continue;
    offsets[Frame::Slot(info.signal)] = stride;
    stride += RoundUp(layout.Capacity(info.shape));
  }
  memory_.reset(static_cast<float*>(::operator new (frames* stride * sizeof(float), std::align_val_t{kCacheLine})));
  for (size_t f = 0; f < frames; ++f)
    for (size_t slot = 0; slot < offsets.size(); ++slot)
      queue_.slot(f).arrays[slot] = memory_.get() + f * stride + offsets[slot];
}

model::LogitKind WeakerKind(model::LogitKind a, model::LogitKind b) {
  using enum model::LogitKind;
  if (a == b) return a;
  if (a == kUnknown || b == kUnknown) return kUnknown;
  return std::max(a, b);  // Exact and an upper bound give an upper bound; anything with a sample or a product is that.
}

}  // namespace gyrostat::client
