#include "client/src/recorder.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

namespace gyrostat::client {
namespace {

constexpr model::Step kStepMax = model::Step{1} << 53;  // As the daemon takes them: exact in a double.

// A C string as far as it may be a signal's name; longer ones keep one byte too many and so match nothing.
std::string_view NameOf(const char* name) {
  return name == nullptr ? std::string_view() : std::string_view(name, strnlen(name, kNameMax + 1));
}

int Printable(std::string_view name) { return static_cast<int>(std::min<size_t>(name.size(), 64)); }

}  // namespace

Recorder::Recorder(const Settings* settings, FrameRing* ring, Counters* counters)
    : settings_(settings), layout_(settings->model.layers, settings->model.heads), ring_(ring), counters_(counters) {}

gyro_status Recorder::Begin(model::Step step) {
  if (step < -kStepMax || step > kStepMax)
    return Invalid("the step is %lld, wanted one within 2^53 of 0", static_cast<long long>(step));
  last_ = nullptr;
  step_ = step;
  frame_ = ring_->queue().Reserve(held_ != nullptr ? 1 : 0);
  if (frame_ == nullptr) {
    phase_ = Phase::kDropping;
    return GYRO_DROPPED;
  }
  frame_->Begin(step);
  phase_ = Phase::kRecording;
  return GYRO_OK;
}

gyro_status Recorder::Scalar(const char* signal, double value) {
  if (phase_ != Phase::kRecording) return OutOfOrder("gyro_record_scalar");
  const std::string_view name = NameOf(signal);
  const model::SignalInfo* info = model::FindSignal(name);
  if (info == nullptr) return User(name, value);
  if (!model::IsScalar(info->signal))
    return Invalid("%s is an array signal, wanted a scalar: use gyro_record_array", signal);
  frame_->scalars[static_cast<size_t>(info->signal)] = value;
  return GYRO_OK;
}

gyro_status Recorder::User(std::string_view name, double value) {
  if (!model::IsValidName(name))
    return Invalid("the scalar's name \"%.*s\" is not valid, wanted 1 to 128 of A-Z a-z 0-9 . _ : -", Printable(name),
                   name.data() == nullptr ? "" : name.data());
  for (uint32_t i = 0; i < frame_->user_count; ++i) {
    UserScalar& known = frame_->user[i];
    if (std::string_view(known.name, known.name_size) != name) continue;
    known.value = value;
    return GYRO_OK;
  }
  if (frame_->user_count == kUserScalarsMax)
    return Invalid("user scalar \"%.*s\" is number 65 of this report, wanted at most 64", Printable(name), name.data());
  UserScalar& scalar = frame_->user[frame_->user_count++];
  name.copy(scalar.name, name.size());
  scalar.name_size = static_cast<uint32_t>(name.size());
  scalar.value = value;
  return GYRO_OK;
}

gyro_status Recorder::Array(const char* signal, const float* values, size_t count) {
  if (phase_ != Phase::kRecording) return OutOfOrder("gyro_record_array");
  const std::string_view name = NameOf(signal);
  const model::SignalInfo* info = model::FindSignal(name);
  if (info == nullptr || !model::IsArray(info->signal))
    return Invalid("\"%.*s\" is not an array signal", Printable(name), name.data() == nullptr ? "" : name.data());
  if (info->signal == model::Signal::kAttnLogitMax) return AttnLogitMax(values, count, GYRO_LOGIT_UNKNOWN);
  if (values == nullptr || !layout_.Fits(info->shape, count))
    return Invalid("%s has %zu values%s, wanted what fits a model of %u layers and %u heads", signal, count,
                   values == nullptr ? " at NULL" : "", layout_.layers(), layout_.heads());
  if (!frame_->Resize(info->signal, count)) return Invalid("%s would make the report larger than 1280 KiB", signal);
  std::memcpy(frame_->Array(info->signal), values, count * sizeof(float));
  return GYRO_OK;
}

gyro_status Recorder::AttnLogitMax(const float* values, size_t count, int kind) {
  if (phase_ != Phase::kRecording) return OutOfOrder("gyro_record_attn_logit_max");
  constexpr model::Signal kSignal = model::Signal::kAttnLogitMax;
  model::LogitKind made;
  if (!ReadKind(kind, &made)) return Invalid("the kind of attn_logit_max is %d, wanted a gyro_logit_kind", kind);
  if (values == nullptr || !layout_.Fits(model::Shape::kLayerHead, count))
    return Invalid("attn_logit_max has %zu values%s, wanted layers x heads = %u x %u", count,
                   values == nullptr ? " at NULL" : "", layout_.layers(), layout_.heads());
  if (!frame_->Resize(kSignal, count)) return Invalid("attn_logit_max would make the report larger than 1280 KiB");
  std::memcpy(frame_->Array(kSignal), values, count * sizeof(float));
  frame_->layers_seen.fill(~uint64_t{0});
  frame_->logit_kind = made;
  return GYRO_OK;
}

gyro_status Recorder::LayerAttnLogitMax(uint32_t layer, const float* values, size_t count, int kind) {
  if (phase_ != Phase::kRecording) return OutOfOrder("gyro_record_layer_attn_logit_max");
  constexpr model::Signal kSignal = model::Signal::kAttnLogitMax;
  model::LogitKind made;
  if (!ReadKind(kind, &made)) return Invalid("the kind of attn_logit_max is %d, wanted a gyro_logit_kind", kind);
  const size_t layers = layout_.layers(), heads = layout_.heads();
  if (values == nullptr || layer >= layers || count != heads || heads == 0)
    return Invalid("attn_logit_max of layer %u has %zu values%s, wanted a layer below %zu and %zu values (heads)",
                   layer, count, values == nullptr ? " at NULL" : "", layers, heads);
  const bool first = frame_->Count(kSignal) == 0;
  if (!frame_->Resize(kSignal, layers * heads))
    return Invalid("attn_logit_max would make the report larger than 1280 KiB");
  frame_->logit_kind = first ? made : WeakerKind(frame_->logit_kind, made);
  float* held = frame_->Array(kSignal) + layer * heads;
  uint64_t& seen = frame_->layers_seen[layer / 64];
  const uint64_t bit = uint64_t{1} << (layer % 64);
  if ((seen & bit) == 0) {
    seen |= bit;
    std::memcpy(held, values, count * sizeof(float));
    return GYRO_OK;
  }
  // A NaN once seen stays: it is what that head measured. Absent is -FLT_MAX and loses to any measurement.
  for (size_t h = 0; h < heads; ++h)
    if (values[h] > held[h] || values[h] != values[h]) held[h] = values[h];
  return GYRO_OK;
}

gyro_status Recorder::End(uint32_t epoch, uint64_t ledger_version) {
  if (phase_ == Phase::kClosed) return OutOfOrder("gyro_step_end");
  counters_->training.boundary.Set(++boundary_);
  if (phase_ == Phase::kDropping) {
    phase_ = Phase::kClosed;
    counters_->training.dropped_hot.Add();
    return GYRO_DROPPED;
  }
  counters_->training.reports.Add();
  phase_ = Phase::kClosed;
  frame_->epoch = epoch;
  frame_->boundary = boundary_;
  frame_->ledger_version = ledger_version;
  frame_->dropped_hot = counters_->training.dropped_hot.value();
  if (frame_->Count(model::Signal::kAttnLogitMax) != 0) {
    const size_t heads = layout_.heads();
    for (uint32_t layer = 0; layer < layout_.layers(); ++layer)  // Layers that no call named were not measured.
      if ((frame_->layers_seen[layer / 64] >> (layer % 64) & 1) == 0)
        std::fill_n(frame_->Array(model::Signal::kAttnLogitMax) + layer * heads, heads, model::kAbsent);
  }
  last_ = frame_;
  if (holding_) return GYRO_OK;
  Score(frame_);
  ring_->queue().Commit();
  return GYRO_OK;
}

void Recorder::Score(Frame* frame) {
  const auto score = [frame](model::Signal of, model::Signal to, stats::SpikeScore* spikes) {
    const double value = frame->scalars[static_cast<size_t>(of)];
    // DeepSpeed reports -1 for a norm it did not measure.
    if (model::IsAbsent(value) || (of == model::Signal::kGradNorm && value < 0)) return;
    spikes->Observe(value);
    frame->scalars[static_cast<size_t>(to)] = spikes->percent();
  };
  score(model::Signal::kLoss, model::Signal::kSpikeScoreLoss, &loss_spikes_);
  score(model::Signal::kGradNorm, model::Signal::kSpikeScoreGradNorm, &grad_norm_spikes_);
}

void Recorder::DeliverHeld() {
  DeliverHeldEarly();
  held_ = last_;
}

void Recorder::DeliverHeldEarly() {
  Frame* held = std::exchange(held_, nullptr);
  if (held == nullptr) return;
  if (held->logit_kind == model::LogitKind::kUnknown) held->logit_kind = settings_->attn_logit.kind;
  Score(held);
  ring_->queue().Commit();
}

void Recorder::GoTo(model::Boundary boundary) { counters_->training.boundary.Set(boundary_ = boundary); }

gyro_status Recorder::Invalid(const char* format, ...) {
  char text[GYRO_REASON_BYTES];
  va_list arguments;
  va_start(arguments, format);
  const int size = std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  counters_->training.error.Set(std::string_view(text, std::clamp<size_t>(size < 0 ? 0 : size, 0, sizeof(text) - 1)));
  counters_->training.invalid.Add();
  return GYRO_INVALID;
}

gyro_status Recorder::OutOfOrder(const char* call) {
  if (phase_ == Phase::kDropping) return GYRO_DROPPED;
  Invalid("%s was called without gyro_step_begin", call);
  return GYRO_STATE;
}

bool Recorder::ReadKind(int kind, model::LogitKind* out) const {
  if (kind < GYRO_LOGIT_UNKNOWN || kind > GYRO_LOGIT_NORM_PRODUCT) return false;
  *out = kind == GYRO_LOGIT_UNKNOWN ? settings_->attn_logit.kind : static_cast<model::LogitKind>(kind);
  return true;
}

}  // namespace gyrostat::client
