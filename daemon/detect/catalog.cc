#include "detect/catalog.h"

#include <algorithm>
#include <array>

#include "detect/capped.h"
#include "detect/rivals/trainer_rules.h"
#include "detect/rivals/window_rules.h"
#include "model/presets.h"

namespace gyrostat::detect {
namespace {

using Made = std::unique_ptr<Detector>;

template <class Rule>
Made Make(const model::ModelSpec&) { return std::make_unique<Rule>(); }

struct RivalEntry {
  std::string_view name;  // As --rules calls it.
  Made (*make)(const model::ModelSpec& spec);
};
constexpr std::array kRivals = {
    RivalEntry{"olmo-core", Make<rivals::OlmoCore>},
    RivalEntry{"olmo-core-skip", Make<rivals::OlmoCoreSkip>},
    RivalEntry{"olmo2", Make<rivals::Olmo2>},
    RivalEntry{"zclip", Make<rivals::ZClip>},
    RivalEntry{"megatron", Make<rivals::Megatron>},
    RivalEntry{"llm-foundry",
               [](const model::ModelSpec& spec) -> Made { return std::make_unique<rivals::LlmFoundry>(spec); }},
    RivalEntry{"lightning", Make<rivals::Lightning>},
    RivalEntry{"llmc", Make<rivals::Llmc>},
};
constexpr std::string_view kOurs = "gyrostat";

constexpr std::array<std::string_view, kDetectors> kNames = {
    "nonfinite", "loss_spike", "grad_spike", "spike_score", "attn_logit", "divergence", "grad_growth",
    "grad_roughness", "log_z", "update_ratio", "adam_eps", "loss_scale", "attn_entropy", "grad_profile",
    "ln_input", "depth_profile", "headroom", "dead_depth", "warmup", "instrument", "rank_outlier", "silence"};

// Only those that may speak, and no louder than they may.
std::vector<Made> Voiced(std::vector<Made> all, const std::array<Voice, kDetectors>& voices) {
  std::vector<Made> voiced;
  for (Made& detector : all) {
    const Voice& voice = voices[DetectorIndex(detector->name())];
    if (!voice.enabled) continue;
    const bool capped = voice.severity_max < model::Severity::kCritical;
    voiced.push_back(capped ? std::make_unique<Capped>(std::move(detector), voice.severity_max) : std::move(detector));
  }
  return voiced;
}

}  // namespace

std::vector<std::unique_ptr<Detector>> MakeDetectors(const DetectOptions& options, const model::ModelSpec& declared) {
  const model::ModelSpec spec = model::Completed(declared);
  std::vector<std::unique_ptr<Detector>> detectors;
  detectors.push_back(std::make_unique<NonfiniteDetector>(options.nonfinite, spec));
  detectors.push_back(std::make_unique<Spike>(options.loss_spike));
  detectors.push_back(std::make_unique<Spike>(options.grad_spike));
  detectors.push_back(std::make_unique<SpikeScoreLevel>(options.spike_score));
  detectors.push_back(std::make_unique<AttnLogit>(options.attn_logit, spec));
  detectors.push_back(std::make_unique<Divergence>(options.divergence));
  detectors.push_back(std::make_unique<GradGrowth>(options.grad_growth, spec));
  detectors.push_back(std::make_unique<GradRoughness>(options.grad_roughness, spec));
  detectors.push_back(std::make_unique<LogZ>(options.log_z, spec));
  detectors.push_back(std::make_unique<UpdateRatio>(options.update_ratio));
  detectors.push_back(std::make_unique<AdamEps>(options.adam_eps, spec));
  detectors.push_back(std::make_unique<LossScale>(options.loss_scale));
  detectors.push_back(std::make_unique<AttnEntropy>(options.attn_entropy, spec));
  // Of the architecture.
  detectors.push_back(std::make_unique<GradProfile>(options.grad_profile, spec));
  detectors.push_back(std::make_unique<LnInput>(options.ln_input, spec));
  detectors.push_back(std::make_unique<DepthProfile>(options.depth_profile, spec));
  detectors.push_back(std::make_unique<Headroom>(options.headroom, spec));
  detectors.push_back(std::make_unique<DeadDepth>(options.dead_depth, spec));
  detectors.push_back(std::make_unique<Warmup>(options.warmup, spec));
  detectors.push_back(std::make_unique<Instrument>(options.instrument, spec));
  detectors.push_back(std::make_unique<RankOutlier>(options.rank_outlier));
  return Voiced(std::move(detectors), options.voices);
}

std::vector<std::string_view> DetectorNames() { return {kNames.begin(), kNames.end()}; }

size_t DetectorIndex(std::string_view name) {
  return static_cast<size_t>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
}

std::vector<std::string_view> RuleSetNames() {
  std::vector<std::string_view> names = {kOurs};
  for (const RivalEntry& entry : kRivals) names.push_back(entry.name);
  return names;
}

std::vector<std::unique_ptr<Detector>> MakeRuleSet(std::string_view name, const DetectOptions& options,
                                                   const model::ModelSpec& spec) {
  if (name == kOurs) return MakeDetectors(options, spec);
  std::vector<std::unique_ptr<Detector>> detectors;
  for (const RivalEntry& entry : kRivals)
    if (entry.name == name) detectors.push_back(entry.make(spec));
  return detectors;
}

}  // namespace gyrostat::detect
