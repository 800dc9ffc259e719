// Whether the learning rate's warm-up still runs: as declared, and as the rate itself shows. A stretched warm-up goes
// on after the declared end, an undeclared one shows in the rate: it rises where it is above all that it has been. One
// that was cut does not rise, by this, until it is there again.
//
// Pure. Not thread-safe. Allocates nothing.
#pragma once

#include <algorithm>

#include "model/model_spec.h"
#include "model/report.h"

namespace gyrostat::detect {

class WarmupPhase {
 public:
  explicit WarmupPhase(const model::ModelSpec& spec) : declared_(spec.warmup_steps) {}

  enum class Phase : uint8_t { kUnknown, kRising, kOver };

  Phase Observe(const model::Report& report) {
    const double rate = report.Scalar(model::Signal::kLearningRate);
    if (report.Has(model::Signal::kLearningRate) && rate > 0 && rate < 1e300) {
      // The highest that two rates in a row have reached: after one stray rate the next rises are still seen.
      if (previous_ > 0) highest_ = std::max(highest_, std::min(rate, previous_));
      // A plateau before the first rise, and one between rises of a warm-up in stairs, are short. The first rate is no
      // rise.
      const bool rises = previous_ > 0 && rate > highest_ * (1 + 1e-6);
      since_rise_ = rises ? 0 : since_rise_ + (since_rise_ < kSettled ? 1 : 0);
      previous_ = rate;
    }
    const bool declared = declared_ && report.step < static_cast<model::Step>(*declared_);
    if (declared || since_rise_ < kSettled) return phase_ = Phase::kRising;
    return phase_ = declared_ || previous_ > 0 ? Phase::kOver : Phase::kUnknown;
  }
  Phase phase() const { return phase_; }
  bool rising() const { return phase_ == Phase::kRising; }
  // A restart: the rate may begin anew.
  void Clear() { highest_ = previous_ = 0, since_rise_ = kSettled, phase_ = Phase::kUnknown; }

  template <class Archive>
  void Fields(Archive& a) { a(highest_, previous_, since_rise_, phase_); }

 private:
  static constexpr uint32_t kSettled = 8;  // Reports without a new highest rate.

  std::optional<uint64_t> declared_;
  double highest_ = 0, previous_ = 0;
  uint32_t since_rise_ = kSettled;
  Phase phase_ = Phase::kUnknown;
};

}  // namespace gyrostat::detect
