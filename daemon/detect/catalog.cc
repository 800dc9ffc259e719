#include "detect/catalog.h"

#include "model/presets.h"

namespace gyrostat::detect {

std::vector<std::unique_ptr<Detector>> MakeDetectors(const DetectOptions& options, const model::ModelSpec& declared) {
  const model::ModelSpec spec = model::Completed(declared);
  std::vector<std::unique_ptr<Detector>> detectors;
  detectors.push_back(std::make_unique<NonfiniteDetector>(options.nonfinite, spec));
  detectors.push_back(std::make_unique<Spike>(options.loss_spike));
  detectors.push_back(std::make_unique<Spike>(options.grad_spike));
  detectors.push_back(std::make_unique<SpikeScoreLevel>(options.spike_score));
  detectors.push_back(std::make_unique<AttnLogit>(options.attn_logit, spec));
  // Of the architecture.
  detectors.push_back(std::make_unique<GradProfile>(options.grad_profile, spec));
  detectors.push_back(std::make_unique<LnInput>(options.ln_input, spec));
  detectors.push_back(std::make_unique<DepthProfile>(options.depth_profile, spec));
  detectors.push_back(std::make_unique<Headroom>(options.headroom, spec));
  detectors.push_back(std::make_unique<DeadDepth>(options.dead_depth, spec));
  detectors.push_back(std::make_unique<Warmup>(options.warmup, spec));
  detectors.push_back(std::make_unique<Instrument>(options.instrument, spec));
  detectors.push_back(std::make_unique<RankOutlier>(options.rank_outlier));
  return detectors;
}

std::vector<std::string_view> DetectorNames() {
  return {"nonfinite", "loss_spike", "grad_spike", "spike_score", "attn_logit", "silence",
          "grad_profile", "ln_input", "depth_profile", "headroom", "dead_depth", "warmup", "instrument",
          "rank_outlier"};
}

}  // namespace gyrostat::detect
