// Rules that compare a value with mean and standard deviation of a window: OLMo-core's and OLMo 2's.
//
// Values enter the window as they are, so that a spike widens the next one's limit, and one NaN makes every comparison
// false until it has left.
#pragma once

#include <array>

#include "detect/rivals/rival.h"

namespace gyrostat::detect::rivals {

struct Windows {
  std::vector<double> loss, grad_norm;  // Newest last.
  template <class Archive>
  void Fields(Archive& a) { a(loss, grad_norm); }
};

// allenai/OLMo-core train/callbacks/stability_monitor.py: a loss or gradient norm above mean + 6 std (population) of
// the 128 before it, once there are so many; never where std < 1e-10. The windows are part of the checkpoint.
class OlmoCore : public RivalOf<Windows, true> {
 public:
  std::string_view name() const override { return "olmo_core"; }

 protected:
  Verdict Judge(const model::Report& report) override;
};

// allenai/OLMo-core optim/skip_step_optimizer.py: fires (skips the step) unless |value - mean| <= 6 std (sample) of
// the up to 128 before it, for loss and gradient norm; from 64 losses on. "Unless", so that a NaN in the window skips
// every step until it has left. The lists are not part of the checkpoint.
class OlmoCoreSkip : public RivalOf<Windows, false> {
 public:
  std::string_view name() const override { return "olmo_core_skip"; }

 protected:
  Verdict Judge(const model::Report& report) override;
};

// OLMo 2 (arXiv 2501.00656 §3.2): at least 7 standard deviations away from the mean of the last 1,000 values, loss or
// gradient norm. The paper leaves the rest open; read as in methods.md §1.3: past values only, population std, both
// sides, what is flagged stays. A NaN is kept too, as any mean over the raw series would.
class Olmo2 : public RivalOf<Windows, true> {
 public:
  std::string_view name() const override { return "olmo2"; }

 protected:
  Verdict Judge(const model::Report& report) override;
};

}  // namespace gyrostat::detect::rivals
