#include "model/reduction.h"

namespace gyrostat::model {

Reduction ReductionOf(Signal signal) {
  switch (signal) {
    case Signal::kOutputLogitAbsmax:
    case Signal::kQkRatio:
    case Signal::kHiddenAbsmax:
    case Signal::kAttnLogitMax:
    case Signal::kCrossAttnLogitMax:
      return Reduction::kMax;
    case Signal::kLossScale:
      return Reduction::kMin;
    case Signal::kNonfinite:
      return Reduction::kSum;
    case Signal::kLoss:
    case Signal::kLogZ:
    case Signal::kHiddenMs:
    case Signal::kAttnOutMs:
    case Signal::kMlpOutMs:
    case Signal::kLnInputMs:
    case Signal::kAttnEntropy:
      return Reduction::kMean;
    case Signal::kEmbeddingGradNorm:
    case Signal::kOutputGradNorm:
    case Signal::kLayerGradNorm:
    case Signal::kParamNorm:
      return Reduction::kSquares;
    case Signal::kUpdateRms:
      return Reduction::kMeanSquares;
    case Signal::kGradNorm:
      return Reduction::kGiven;
    case Signal::kSpikeScoreLoss:
    case Signal::kSpikeScoreGradNorm:
      return Reduction::kDerived;
    case Signal::kRankDigest:
      return Reduction::kPerRank;
    case Signal::kNone:
    case Signal::kLearningRate:
    case Signal::kScalarEnd:
    case Signal::kArrayEnd:
      break;
  }
  return Reduction::kLeader;
}

}  // namespace gyrostat::model
