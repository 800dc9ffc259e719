#include "model/signal.h"

#include <array>

namespace gyrostat::model {
namespace {

constexpr std::array kSignals = {
    SignalInfo{Signal::kLoss, "loss", Shape::kScalar},
    SignalInfo{Signal::kLearningRate, "learning_rate", Shape::kScalar},
    SignalInfo{Signal::kGradNorm, "grad_norm", Shape::kScalar},
    SignalInfo{Signal::kEmbeddingGradNorm, "embedding_grad_norm", Shape::kScalar},
    SignalInfo{Signal::kOutputGradNorm, "output_grad_norm", Shape::kScalar},
    SignalInfo{Signal::kOutputLogitAbsmax, "output_logit_absmax", Shape::kScalar},
    SignalInfo{Signal::kLogZ, "log_z", Shape::kScalar},
    SignalInfo{Signal::kLossScale, "loss_scale", Shape::kScalar},
    SignalInfo{Signal::kSpikeScoreLoss, "spike_score_loss", Shape::kScalar},
    SignalInfo{Signal::kSpikeScoreGradNorm, "spike_score_grad_norm", Shape::kScalar},
    SignalInfo{Signal::kQkRatio, "qk_ratio", Shape::kScalar},
    SignalInfo{Signal::kLayerGradNorm, "layer_grad_norm", Shape::kLayer},
    SignalInfo{Signal::kHiddenMs, "hidden_ms", Shape::kBoundary},
    SignalInfo{Signal::kHiddenAbsmax, "hidden_absmax", Shape::kBoundary},
    SignalInfo{Signal::kAttnOutMs, "attn_out_ms", Shape::kLayer},
    SignalInfo{Signal::kMlpOutMs, "mlp_out_ms", Shape::kLayer},
    SignalInfo{Signal::kLnInputMs, "ln_input_ms", Shape::kLayer},
    SignalInfo{Signal::kAttnLogitMax, "attn_logit_max", Shape::kLayerHead},
    SignalInfo{Signal::kCrossAttnLogitMax, "cross_attn_logit_max", Shape::kLayerHead},
    SignalInfo{Signal::kUpdateRms, "update_rms", Shape::kLayer},
    SignalInfo{Signal::kParamNorm, "param_norm", Shape::kLayer},
    SignalInfo{Signal::kAttnEntropy, "attn_entropy", Shape::kLayerOrLayerHead},
    SignalInfo{Signal::kNonfinite, "nonfinite", Shape::kLayer},
    SignalInfo{Signal::kRankDigest, "rank_digest", Shape::kRankDigest},
};

}  // namespace

std::span<const SignalInfo> Signals() { return kSignals; }

const SignalInfo* FindSignal(Signal signal) {
  for (const SignalInfo& info : kSignals)
    if (info.signal == signal) return &info;
  return nullptr;
}

const SignalInfo* FindSignal(std::string_view name) {
  for (const SignalInfo& info : kSignals)
    if (info.name == name) return &info;
  return nullptr;
}

std::string_view SignalName(Signal signal) {
  const SignalInfo* info = FindSignal(signal);
  return info == nullptr ? std::string_view() : info->name;
}

}  // namespace gyrostat::model
