// For each detector: a healthy run, and what it must find from one report on.
#pragma once

#include <cmath>
#include <string_view>
#include <vector>

#include "detect/detector.h"
#include "support/lcg.h"
#include "unit/detect/feed.h"

namespace gyrostat::detect {

inline constexpr size_t kLayers = 12, kHeads = 4;

struct BlindCase {
  std::string_view name;      // Of the case; begins with the detector's.
  std::string_view detector;
  void (*declare)(model::ModelSpec* spec);
  void (*healthy)(model::Report* r, int step, testing::Lcg* random);
  void (*happens)(model::Report* r, int t);  // `t` reports into the event.
  int slack = 0;   // So many reports later it may be found with trouble before it: traces in its windows.
  int window = 0;  // And so many with trouble in the middle of it: the count in a row that its header states.
};

inline void PutArray(model::Report* r, model::Signal s, size_t size, double value, testing::Lcg* random,
                     double sigma) {
  std::vector<float>& values = r->MutableArray(s);
  for (size_t i = 0; i < size; ++i) values.push_back(static_cast<float>(value * std::exp(sigma * random->Normal())));
}
inline void Multiply(model::Report* r, model::Signal s, double factor) {
  for (float& v : r->MutableArray(s)) v *= static_cast<float>(factor);
}

inline model::ModelSpec BlindSpec() {
  model::ModelSpec spec;
  spec.layers = kLayers;
  spec.heads = kHeads;
  spec.hidden_size = 64;
  spec.optimizer = "adamw";
  spec.compute_dtype = "bf16";
  spec.qk_norm = model::QkNorm::kNone;
  return spec;
}

inline void AnyModel(model::ModelSpec*) {}
inline void PreNorm(model::ModelSpec* s) { s->norm_placement = model::NormPlacement::kPre; }
inline void Peri(model::ModelSpec* s) { s->norm_placement = model::NormPlacement::kPeri; }
inline void HalfPrecision(model::ModelSpec* s) { s->compute_dtype = "fp16"; }
inline void PostNormWarmup(model::ModelSpec* s) {
  s->norm_placement = model::NormPlacement::kPost;
  s->warmup_steps = 100'000;
}
inline void Vocabulary(model::ModelSpec* s) { s->vocab_size = 50'257; }

// What the detectors of any model read.
inline void Plain(model::Report* r, int, testing::Lcg* random) {
  using model::Signal;
  r->SetScalar(Signal::kLoss, 2 + 0.02 * random->Normal());
  r->SetScalar(Signal::kGradNorm, 2 * std::exp(0.1 * random->Normal()));
  r->SetScalar(Signal::kLearningRate, 1e-3);
  r->SetScalar(Signal::kLogZ, 1 + 0.05 * random->Normal());
  r->SetScalar(Signal::kLossScale, 65536);
  PutArray(r, Signal::kLayerGradNorm, kLayers, 0.25, random, 0.1);
  PutArray(r, Signal::kUpdateRms, kLayers, 3e-4, random, 0.05);
  PutArray(r, Signal::kAttnEntropy, kLayers * kHeads, 2, random, 0.1);
  PutArray(r, Signal::kAttnLogitMax, kLayers * kHeads, 10, random, 0.1);
  r->attn_logit_kind = model::LogitKind::kExact;
}
inline void Gradients(model::Report* r, int, testing::Lcg* random) {
  PutArray(r, model::Signal::kLayerGradNorm, kLayers, 0.25, random, 0.1);
}
// A stream that grows by one branch a block, and the gradients that go with it.
inline void Stream(model::Report* r, int, testing::Lcg* random) {
  using model::Signal;
  PutArray(r, Signal::kHiddenMs, kLayers + 1, 1, random, 0.05);
  PutArray(r, Signal::kHiddenAbsmax, kLayers + 1, 8, random, 0.05);
  PutArray(r, Signal::kLayerGradNorm, kLayers, 0.25, random, 0.1);
  PutArray(r, Signal::kAttnOutMs, kLayers, 0.5, random, 0.05);
  PutArray(r, Signal::kMlpOutMs, kLayers, 0.5, random, 0.05);
  for (size_t b = 1; b <= kLayers; ++b) {
    const auto s = static_cast<float>(1 + b);
    r->MutableArray(Signal::kHiddenMs)[b] *= s;
    r->MutableArray(Signal::kHiddenAbsmax)[b] *= std::sqrt(s);
    r->MutableArray(Signal::kLayerGradNorm)[b - 1] /= std::sqrt(s);
  }
}
inline void NormInputs(model::Report* r, int, testing::Lcg* random) {
  PutArray(r, model::Signal::kLnInputMs, kLayers, 1.5, random, 0.02);
}
// It learns: no plateau before step 400.
inline void Falling(model::Report* r, int step, testing::Lcg* random) {
  r->SetScalar(model::Signal::kLoss, std::max(2.0, 10.8 - 0.01 * step) + 0.02 * random->Normal());
  r->SetScalar(model::Signal::kLearningRate, 1e-3);
}
inline void Rising(model::Report* r, int step, testing::Lcg* random) {
  r->SetScalar(model::Signal::kLoss, 4 + 0.02 * random->Normal());
  r->SetScalar(model::Signal::kLearningRate, 1e-6 * (step + 1));
}
inline void Ranks(model::Report* r, int step, testing::Lcg* random) {
  std::vector<float>& digest = r->MutableArray(model::Signal::kRankDigest);
  for (int rank = 0; rank < 8; ++rank)
    for (const double v : {1.0 * rank, 2.5 + 0.05 * random->Normal(), std::exp(0.2 * random->Normal()),
                           500 + 10 * random->Normal(), 1000.0 + step})
      digest.push_back(static_cast<float>(v));
}

inline std::vector<BlindCase> CasesOfAnyModel() {
  using model::Report;
  using model::Signal;
  return {
      {"nonfinite", "nonfinite", AnyModel, Plain, [](Report* r, int) { r->SetScalar(Signal::kGradNorm, kNan); }},
      {"loss_spike", "loss_spike", AnyModel, Plain, [](Report* r, int) { r->SetScalar(Signal::kLoss, 6); }},
      {"grad_spike", "grad_spike", AnyModel, Plain, [](Report* r, int) { r->SetScalar(Signal::kGradNorm, 40); }},
      {"attn_logit", "attn_logit", AnyModel, Plain,
       [](Report* r, int) { r->MutableArray(Signal::kAttnLogitMax)[5] = 160; }, 1, 3},
      {"divergence", "divergence", AnyModel, Plain,
       [](Report* r, int t) { r->SetScalar(Signal::kLoss, r->Scalar(Signal::kLoss) + 0.004 * t); }, 8, 32},
      {"grad_growth", "grad_growth", AnyModel, Plain,
       [](Report* r, int t) {
         r->SetScalar(Signal::kGradNorm, r->Scalar(Signal::kGradNorm) * std::exp(0.01 * std::min(t, 160)));
       },
       8, 32},
      {"grad_roughness", "grad_roughness", AnyModel, Plain,
       [](Report* r, int t) { r->MutableArray(Signal::kLayerGradNorm)[2] *= t % 2 == 0 ? 6.f : 1.f; }, 4, 40},
      {"log_z", "log_z", AnyModel, Plain,
       [](Report* r, int t) { r->SetScalar(Signal::kLogZ, r->Scalar(Signal::kLogZ) + 0.1 * t); }, 4, 16},
      {"update_ratio", "update_ratio", AnyModel, Plain,
       [](Report* r, int) { r->MutableArray(Signal::kUpdateRms)[1] *= 6; }, 0, 3},
      {"adam_eps", "adam_eps", AnyModel, Plain,
       [](Report* r, int) { r->MutableArray(Signal::kLayerGradNorm)[3] = 1e-7f; }, 0, 64},
      {"loss_scale", "loss_scale", AnyModel, Plain,
       [](Report* r, int t) { r->SetScalar(Signal::kLossScale, std::exp2(16 - std::min(t / 4, 8))); }, 0, 4},
      {"attn_entropy", "attn_entropy", AnyModel, Plain,
       [](Report* r, int) { r->MutableArray(Signal::kAttnEntropy)[7] = 0.01f; }, 0, 10},
  };
}

inline std::vector<BlindCase> CasesOfTheArchitecture() {
  using model::Report;
  using model::Signal;
  return {
      {"grad_profile_collapse", "grad_profile", PostNormWarmup, Gradients,
       [](Report* r, int) { r->MutableArray(Signal::kLayerGradNorm)[0] *= 1e-3f; }, 0, 5},
      {"grad_profile_drift", "grad_profile", PreNorm, Stream,
       [](Report* r, int) {
         for (size_t l = 0; l < kLayers; ++l)
           r->MutableArray(Signal::kLayerGradNorm)[l] *= static_cast<float>(std::exp(0.3 * static_cast<double>(l)));
       },
       4, 32},
      {"ln_input_growth", "ln_input", PostNormWarmup, NormInputs,
       [](Report* r, int t) { Multiply(r, Signal::kLnInputMs, std::exp(0.1 * std::min(t, 20))); }, 0, 13},
      {"ln_input_level", "ln_input", PostNormWarmup, NormInputs,
       [](Report* r, int) { Multiply(r, Signal::kLnInputMs, 400); }, 0, 8},
      {"depth_profile", "depth_profile", Peri, Stream,
       [](Report* r, int) {
         for (size_t b = 0; b <= kLayers; ++b)
           r->MutableArray(Signal::kHiddenMs)[b] = static_cast<float>(std::exp(0.9 * static_cast<double>(b)));
       },
       1, 96},  // Windows count reports that measure it.
      {"headroom_level", "headroom", HalfPrecision, Stream,
       [](Report* r, int) { r->MutableArray(Signal::kHiddenAbsmax)[kLayers] = 12'000; }, 0, 3},
      {"headroom_forecast", "headroom", HalfPrecision, Stream,
       [](Report* r, int t) {
         r->MutableArray(Signal::kHiddenAbsmax)[kLayers] = static_cast<float>(600 * std::exp(0.05 * std::min(t, 90)));
       },
       2, 8},
      {"dead_depth", "dead_depth", PreNorm, Stream,
       [](Report* r, int) {
         r->MutableArray(Signal::kAttnOutMs)[4] = 1e-9f;
         r->MutableArray(Signal::kMlpOutMs)[4] = 1e-9f;
       },
       0, 64},
      {"warmup_plateau", "warmup", Vocabulary, Falling,
       [](Report* r, int t) { r->SetScalar(Signal::kLoss, r->Scalar(Signal::kLoss) + 0.01 * t); }, 2, 32},
      {"warmup_ramp", "warmup", PostNormWarmup, Rising,
       [](Report* r, int t) { r->SetScalar(Signal::kLoss, r->Scalar(Signal::kLoss) + 0.01 * t); }, 2, 16},
      {"instrument", "instrument", PreNorm, Stream,
       [](Report* r, int) { r->MutableArray(Signal::kHiddenAbsmax)[6] = 0.5f; }, 0, 8},
      {"rank_outlier_loss", "rank_outlier", AnyModel, Ranks,
       [](Report* r, int) { r->MutableArray(Signal::kRankDigest)[3 * 5 + 1] = 6; }, 0, 3},
      {"rank_outlier_weights", "rank_outlier", AnyModel, Ranks,
       [](Report* r, int) { r->MutableArray(Signal::kRankDigest)[3 * 5 + 4] = 7; }, 0, 1},
  };
}

inline const std::vector<BlindCase>& BlindCases() {
  static const std::vector<BlindCase> cases = [] {
    std::vector<BlindCase> all = CasesOfAnyModel();
    for (const BlindCase& each : CasesOfTheArchitecture()) all.push_back(each);
    return all;
  }();
  return cases;
}

}  // namespace gyrostat::detect
