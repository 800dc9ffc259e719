// The recording half of the training thread: fills the frame of a step and hands it over. No allocation, lock or
// system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "client/src/counters.h"
#include "client/src/frame.h"
#include "client/src/settings.h"
#include "gyrostat/gyrostat.h"
#include "stats/spike_score.h"

namespace gyrostat::client {

// Training thread only. Every refusal counts in `invalid` and says in `error` what was seen and what was wanted.
class Recorder {
 public:
  // All pointers outlive the recorder.
  Recorder(const Settings* settings, FrameRing* ring, Counters* counters);

  gyro_status Begin(model::Step step);
  gyro_status Scalar(const char* signal, double value);
  gyro_status Array(const char* signal, const float* values, size_t count);
  // `kind` is a gyro_logit_kind as the caller gave it, any int.
  gyro_status AttnLogitMax(const float* values, size_t count, int kind);
  gyro_status LayerAttnLogitMax(uint32_t layer, const float* values, size_t count, int kind);
  // Passes boundary number boundary() + 1 and commits the frame. `ledger_version` is the one its forward ran under.
  gyro_status End(uint32_t epoch, uint64_t ledger_version);

  // With `hold` a frame is not handed over by End but by DeliverHeld, one boundary later: R brings then what all ranks
  // measured. Its spike scores are computed there.
  void HoldFrames(bool hold) { holding_ = hold; }
  // The frame that End held at the boundary before, to be changed until DeliverHeld; null: none.
  Frame* held() { return held_; }
  // Hands the held frame over. The frame of this boundary is held from now on.
  void DeliverHeld();
  // Hands it over within the step after it, be that step begun or not. The frame that is being recorded stays where it
  // is: the queue's next.
  void DeliverHeldEarly();

  // Boundaries count on from `boundary`: this rank has joined others that were further.
  void GoTo(model::Boundary boundary);

  bool open() const { return phase_ != Phase::kClosed; }
  model::Boundary boundary() const { return boundary_; }
  model::Step step() const { return step_; }
  // The frame of the last boundary, readable until the next Begin; null when its report was dropped. Once it was handed
  // over it may say what all ranks measured.
  const Frame* last() const { return last_; }
  uint64_t frames_committed() { return ring_->queue().Committed(); }

 private:
  enum class Phase : uint8_t { kClosed, kRecording, kDropping };

  gyro_status Invalid(const char* format, ...) __attribute__((format(printf, 2, 3)));
  gyro_status OutOfOrder(const char* call);
  gyro_status User(std::string_view name, double value);
  bool ReadKind(int kind, model::LogitKind* out) const;
  // Spike scores of loss and grad_norm.
  void Score(Frame* frame);

  const Settings* settings_;
  const FrameLayout layout_;
  FrameRing* ring_;
  Counters* counters_;
  stats::SpikeScore loss_spikes_, grad_norm_spikes_;
  Phase phase_ = Phase::kClosed;
  Frame* frame_ = nullptr;
  Frame* last_ = nullptr;
  Frame* held_ = nullptr;  // Finished at the boundary before the last, not committed.
  model::Boundary boundary_ = 0;
  model::Step step_ = 0;
  bool holding_ = false;
};

}  // namespace gyrostat::client
