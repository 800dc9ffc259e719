// Name → detector: the list of what there is, in the order in which they run; and the rule sets of --rules.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "detect/adam_eps.h"
#include "detect/attn_entropy.h"
#include "detect/attn_logit.h"
#include "detect/dead_depth.h"
#include "detect/depth_profile.h"
#include "detect/detector.h"
#include "detect/divergence.h"
#include "detect/grad_growth.h"
#include "detect/grad_profile.h"
#include "detect/grad_roughness.h"
#include "detect/headroom.h"
#include "detect/instrument.h"
#include "detect/ln_input.h"
#include "detect/log_z.h"
#include "detect/loss_scale.h"
#include "detect/nonfinite.h"
#include "detect/rank_outlier.h"
#include "detect/silence.h"
#include "detect/spike.h"
#include "detect/spike_score_level.h"
#include "detect/update_ratio.h"
#include "detect/warmup.h"

namespace gyrostat::detect {

// What a detector may say, whatever it sees.
struct Voice {
  bool enabled = true;  // False: it is not made.
  model::Severity severity_max = model::Severity::kCritical;  // Severer findings are said as this.
  template <class Archive>
  void Fields(Archive& a) { a(enabled, severity_max); }
};

// Names of every detector, silence included, in the order in which they run; for metrics that are created at 0.
std::vector<std::string_view> DetectorNames();
inline constexpr size_t kDetectors = 22;
size_t DetectorIndex(std::string_view name);  // In DetectorNames(); kDetectors for a name that is not one.

struct DetectOptions {
  std::array<Voice, kDetectors> voices;  // In the order of DetectorNames().
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
  DivergenceOptions divergence;
  GradGrowthOptions grad_growth;
  GradRoughnessOptions grad_roughness;
  LogZOptions log_z;
  UpdateRatioOptions update_ratio;
  AdamEpsOptions adam_eps;
  LossScaleOptions loss_scale;
  AttnEntropyOptions attn_entropy;
  template <class Archive>
  void Fields(Archive& a) {
    a(voices, nonfinite, loss_spike, grad_spike, spike_score, attn_logit, silence, divergence, grad_growth,
      grad_roughness, log_z, update_ratio, adam_eps, loss_scale, attn_entropy, depth_profile, grad_profile, ln_input,
      headroom, dead_depth, warmup, instrument, rank_outlier);
  }
};

// All detectors of one run that read reports, fresh, but for those that `voices` switches off. silence is not among
// them.
std::vector<std::unique_ptr<Detector>> MakeDetectors(const DetectOptions& options, const model::ModelSpec& spec);

// The rule sets: "gyrostat" first, which is MakeDetectors, then the rules of other tools (rivals/). Rivals are for
// comparison: a daemon never runs them, and DetectorNames() does not list them.
std::vector<std::string_view> RuleSetNames();

// The detectors of one rule set, fresh; empty for a name that is not one.
std::vector<std::unique_ptr<Detector>> MakeRuleSet(std::string_view name, const DetectOptions& options,
                                                   const model::ModelSpec& spec);

}  // namespace gyrostat::detect
