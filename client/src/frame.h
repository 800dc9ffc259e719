// A frame is one step's report on its way from the training thread to the sender: plain arrays of fixed size,
// allocated when the client opens, so that recording is a bounds check and a memcpy.
//
// Arrays begin at multiples of 64 bytes. glibc copies with `rep movsb` above 2 KiB, which is some twenty times slower
// when destination minus source is 1..31 modulo 4096 (Zen 3); two neighbouring malloc blocks are exactly such a pair.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "client/src/spsc_queue.h"
#include "gyrostat/gyrostat.h"
#include "model/ids.h"
#include "model/model_spec.h"
#include "model/report.h"
#include "model/signal.h"

namespace gyrostat::client {

inline constexpr size_t kUserScalarsMax = 64;  // Per report; as on the wire.
inline constexpr size_t kNameMax = 128;        // As model::IsValidName.
// Where the model's shape is not known an array may have this many values: 128 layers of 128 heads.
inline constexpr size_t kUnknownShapeValues = 128 * 128;
// All arrays of one report together: the maxima of the largest model that the daemon takes (1 MiB) and its layers'
// values. With what local mode may have to say of each head this stays below the daemon's 4 MiB a message.
inline constexpr size_t kArrayBytesMax = 1280 * 1024;

struct UserScalar {
  char name[kNameMax];
  uint32_t name_size = 0;
  double value = 0;
};

struct Frame {
  uint32_t epoch = 0;
  model::Boundary boundary = 0;
  model::Step step = 0;
  uint64_t ledger_version = 0;  // Of this step's forward.
  uint64_t dropped_hot = 0;
  double step_time_ms = 0;  // 0: the sender measures it.
  model::LogitKind logit_kind = model::LogitKind::kUnknown;
  uint32_t user_count = 0;
  size_t array_bytes = 0;
  std::array<double, model::kScalarSlots> scalars;
  std::array<uint32_t, model::kArraySlots> counts;           // Values in each array; 0: not recorded.
  std::array<uint64_t, model::kLayersMax / 64> layers_seen;  // Of attn_logit_max recorded layer by layer.
  std::array<float*, model::kArraySlots> arrays;             // Into the ring's memory.
  std::array<UserScalar, kUserScalarsMax> user;

  float* Array(model::Signal s) { return arrays[Slot(s)]; }
  const float* Array(model::Signal s) const { return arrays[Slot(s)]; }
  uint32_t Count(model::Signal s) const { return counts[Slot(s)]; }
  static size_t Slot(model::Signal s) { return static_cast<size_t>(static_cast<int>(s) - model::kArrayFirst); }

  // Says how many values an array has, 0: not recorded. False, and nothing changed, where all arrays together would be
  // too large. At most the layout's capacity.
  bool Resize(model::Signal signal, size_t count);
  // Makes the frame empty for a new step. Touches no array.
  void Begin(model::Step new_step);
  // Fills `*report` (its capacities are reused). Sequence, step time, totals of the sender and local clips are its
  // caller's.
  void CopyTo(model::Report* report) const;
};

// How many values each array may hold, for a model.
class FrameLayout {
 public:
  FrameLayout(uint32_t layers, uint32_t heads);

  // Whether `count` values can be `shape`, by the rule of model::CheckShapes and the room in the frame.
  bool Fits(model::Shape shape, size_t count) const;
  // The most values that `shape` may have.
  size_t Capacity(model::Shape shape) const;
  uint32_t layers() const { return layers_; }
  uint32_t heads() const { return heads_; }

 private:
  uint32_t layers_, heads_;
};

// The ring of frames and their memory. Pages that are never written cost nothing.
class FrameRing {
 public:
  FrameRing(const FrameLayout& layout, size_t frames);

  SpscQueue<Frame>& queue() { return queue_; }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete (p, std::align_val_t{kCacheLine}); }
  };
  std::unique_ptr<float, Free> memory_;
  SpscQueue<Frame> queue_;
};

// The kind of a maximum over values of two kinds: what may be said of all of them.
model::LogitKind WeakerKind(model::LogitKind a, model::LogitKind b);

}  // namespace gyrostat::client
