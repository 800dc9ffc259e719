// Name → detector: the list of what there is, in the order in which they run.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "detect/attn_logit.h"
#include "detect/dead_depth.h"
#include "detect/depth_profile.h"
#include "detect/detector.h"
#include "detect/grad_profile.h"
#include "detect/headroom.h"
#include "detect/instrument.h"
#include "detect/ln_input.h"
#include "detect/nonfinite.h"
#include "detect/rank_outlier.h"
#include "detect/silence.h"
#include "detect/spike.h"
#include "detect/spike_score_level.h"
#include "detect/warmup.h"

namespace gyrostat::detect {

struct DetectOptions {
  NonfiniteOptions nonfinite;
  SpikeOptions loss_spike = LossSpikeDefaults();
  SpikeOptions grad_spike = GradSpikeDefaults();
  SpikeScoreLevelOptions spike_score;
  AttnLogitOptions attn_logit;  // tau is set from policy.qk_clip.tau by config/.
  SilenceOptions silence;       // Used by engine/, which has the clock.
  DepthProfileOptions depth_profile;
  GradProfileOptions grad_profile;
  LnInputOptions ln_input;
  HeadroomOptions headroom;
  DeadDepthOptions dead_depth;
  WarmupOptions warmup;
  InstrumentOptions instrument;
  RankOutlierOptions rank_outlier;
  template <class Archive>
  void Fields(Archive& a) {
    a(nonfinite, loss_spike, grad_spike, spike_score, attn_logit, silence);
    a(depth_profile, grad_profile, ln_input, headroom, dead_depth, warmup, instrument, rank_outlier);
  }
};

// All detectors of one run that read reports, fresh. silence is not among them.
std::vector<std::unique_ptr<Detector>> MakeDetectors(const DetectOptions& options, const model::ModelSpec& spec);

// Names of every detector, silence included; for metrics that are created at 0.
std::vector<std::string_view> DetectorNames();

}  // namespace gyrostat::detect
