#include "logs/keys.h"

#include <gtest/gtest.h>

namespace gyrostat::logs {
namespace {

using model::Signal;

Meaning Of(const std::string& key, const KeyOptions& options = {}) { return KeyMap(options).Find(key); }

TEST(KeyMap, KnowsTheUsualNames) {
  const std::pair<const char*, Signal> cases[] = {
      {"loss", Signal::kLoss}, {"train/loss", Signal::kLoss}, {"lm loss", Signal::kLoss}, {"lm_loss", Signal::kLoss},
      {"reduced_train_loss", Signal::kLoss}, {"train_loss", Signal::kLoss}, {"losses", Signal::kLoss},
      {"trl", Signal::kLoss}, {"train/CrossEntropyLoss", Signal::kLoss}, {"grad_norm", Signal::kGradNorm},
      {"gradient_norm", Signal::kGradNorm}, {"grad norm", Signal::kGradNorm}, {"gnorm", Signal::kGradNorm},
      {"train/grad_norm", Signal::kGradNorm}, {"optim/total_grad_norm", Signal::kGradNorm},
      {"l2_norm/grad/global", Signal::kGradNorm}, {"lr", Signal::kLearningRate},
      {"learning rate", Signal::kLearningRate}, {"lr-AdamW", Signal::kLearningRate},
      {"loss scale", Signal::kLossScale}, {"hidden_ms", Signal::kHiddenMs}, {"log_z", Signal::kLogZ}};
  for (const auto& [key, signal] : cases) {
    EXPECT_EQ(Of(key).kind, Meaning::Kind::kSignal) << key;
    EXPECT_EQ(Of(key).signal, signal) << key;
  }
}

TEST(KeyMap, DoesNotTakeAnEvaluationForTraining) {
  for (const char* key : {"val/loss", "eval_loss", "validation loss", "test/loss", "valid_loss", "z_loss", "val loss",
                          "mtp_1 loss", "params norm", "dev-other_loss", "train_step_timing"})
    EXPECT_EQ(Of(key).kind, Meaning::Kind::kNothing) << key;
}

TEST(KeyMap, TheBareNameIsTheBetterOne) {
  EXPECT_LT(Of("loss").rank, Of("train/loss").rank);
  EXPECT_LT(Of("step").rank, Of("global_step").rank);
  EXPECT_LT(Of("global_step").rank, Of("_step").rank);
  EXPECT_LT(Of("_step").rank, Of("train/step").rank);
}

TEST(KeyMap, FindsCellsOfArrays) {
  const Meaning logit = Of("logits/layer11/max_p95");
  EXPECT_EQ(logit.signal, Signal::kAttnLogitMax);
  EXPECT_EQ(logit.layer, 11u);
  EXPECT_EQ(logit.logit_kind, model::LogitKind::kSampledLower);
  const Meaning cell = Of("attn_logit_max/layer3/head1");
  EXPECT_EQ(cell.signal, Signal::kAttnLogitMax);
  EXPECT_EQ(cell.layer, 3u);
  EXPECT_EQ(cell.head, 1u);
  EXPECT_EQ(Of("grad_norm/layer_2").signal, Signal::kLayerGradNorm);
  EXPECT_EQ(Of("layers.4.grad_norm").layer, 4u);
  EXPECT_EQ(Of("attn/layer5/entropy/mean").signal, Signal::kAttnEntropy);
  EXPECT_EQ(Of("hidden_ms/layer7").signal, Signal::kHiddenMs);
  for (const char* key : {"logits/layer0/mean", "logits/layer0/std", "attn/layer0/entropy/p95", "layer/loss",
                          "attn/layer0/maxA/frac>0.95", "grad_norm/layer99999"})
    EXPECT_EQ(Of(key).kind, Meaning::Kind::kNothing) << key;
}

TEST(KeyMap, WhatIsMappedByHandHasNoOtherName) {
  KeyOptions options;
  options.map = {
      {"loss", "train/ce"}, {"step", "it"}, {"attn_logit_max", "qk/{layer}/{head}/max"}, {"grad_norm", "g*"}};
  EXPECT_EQ(Of("train/ce", options).signal, Signal::kLoss);
  EXPECT_EQ(Of("loss", options).kind, Meaning::Kind::kNothing);
  EXPECT_EQ(Of("it", options).kind, Meaning::Kind::kStep);
  EXPECT_EQ(Of("step", options).kind, Meaning::Kind::kNothing);
  EXPECT_EQ(Of("qk/3/12/max", options).layer, 3u);
  EXPECT_EQ(Of("qk/3/12/max", options).head, 12u);
  EXPECT_EQ(Of("qk/3/x/max", options).kind, Meaning::Kind::kNothing);
  EXPECT_EQ(Of("lr", options).signal, Signal::kLearningRate);
}

TEST(KeyMap, FindsTheRunColumn) {
  EXPECT_EQ(Of("run_id").kind, Meaning::Kind::kRun);
  EXPECT_LT(Of("run_id").rank, Of("run").rank);
  KeyOptions options;
  options.run_column = "trial";
  EXPECT_EQ(Of("trial", options).kind, Meaning::Kind::kRun);
  EXPECT_EQ(Of("run_id", options).kind, Meaning::Kind::kNothing);
}

TEST(ParseMapping, NamesTheSignalsThereAre) {
  std::string error;
  EXPECT_TRUE(ParseMapping("loss=train/ce", &error));
  EXPECT_EQ(ParseMapping("loss=a=b", &error)->column, "a=b");
  EXPECT_FALSE(ParseMapping("los=x", &error));
  EXPECT_NE(error.find("no signal \"los\"; there are: step, loss"), std::string::npos) << error;
  EXPECT_FALSE(ParseMapping("loss", &error));
  EXPECT_FALSE(ParseMapping("=x", &error));
}

}  // namespace
}  // namespace gyrostat::logs
