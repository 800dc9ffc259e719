#include "ctl/signal_words.h"

#include <algorithm>
#include <array>

namespace gyrostat::ctl {
namespace {

using model::Signal;

constexpr std::array kWords = {
    SignalWords{Signal::kLoss, "nats per token"},
    SignalWords{Signal::kGradNorm, "before clipping", ScaleKind::kLogarithmic},
    SignalWords{Signal::kEmbeddingGradNorm, "", ScaleKind::kLogarithmic},
    SignalWords{Signal::kOutputGradNorm, "", ScaleKind::kLogarithmic},
    SignalWords{Signal::kLearningRate, "", ScaleKind::kLinear},
    SignalWords{Signal::kOutputLogitAbsmax, "largest entry"},
    SignalWords{Signal::kLogZ, "mean log partition of the output softmax", ScaleKind::kLinear},
    SignalWords{Signal::kLossScale, "of fp16", ScaleKind::kLogarithmic},
    SignalWords{Signal::kSpikeScoreLoss, "percent", ScaleKind::kLinear},
    SignalWords{Signal::kSpikeScoreGradNorm, "percent", ScaleKind::kLinear},
    SignalWords{Signal::kLayerGradNorm, "", ScaleKind::kLogarithmic},
    SignalWords{Signal::kHiddenMs, "mean square of the residual stream"},
    SignalWords{Signal::kHiddenAbsmax, "entries of the residual stream"},
    SignalWords{Signal::kAttnOutMs, "mean square that attention adds"},
    SignalWords{Signal::kMlpOutMs, "mean square that the MLP adds"},
    SignalWords{Signal::kLnInputMs, "mean square before the closing norm"},
    SignalWords{Signal::kAttnLogitMax, "softmax input"},
    SignalWords{Signal::kCrossAttnLogitMax, "softmax input"},
    SignalWords{Signal::kAttnEntropy, "nats, mean of the rows"},
    SignalWords{Signal::kNonfinite, "entries of a layer's output", ScaleKind::kLinear},
};

}  // namespace

const SignalWords& WordsOf(Signal signal) {
  static constexpr SignalWords kNone{Signal::kNone, ""};
  const auto* found = std::ranges::find(kWords, signal, &SignalWords::signal);
  return found == kWords.end() ? kNone : *found;
}

}  // namespace gyrostat::ctl
