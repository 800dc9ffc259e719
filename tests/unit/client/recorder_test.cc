#include "client/src/recorder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "unit/client/trainer_double.h"

namespace gyrostat::client {
namespace {

using model::LogitKind;
using model::Signal;

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() : ring_(FrameLayout(settings_.model.layers, settings_.model.heads), 2) {}

  std::string Error() const {
    char text[GYRO_REASON_BYTES];
    return counters_.training.error.Get(text) ? text : "";
  }
  const Frame& Last() const { return *recorder_.last(); }
  std::vector<float> Maxima() const {
    const float* values = Last().Array(Signal::kAttnLogitMax);
    return {values, values + Last().Count(Signal::kAttnLogitMax)};
  }
  double Scalar(Signal s) const { return Last().scalars[static_cast<size_t>(s)]; }

  Settings settings_ = SmallModel();
  FrameRing ring_;
  Counters counters_;
  Recorder recorder_{&settings_, &ring_, &counters_};
};

TEST_F(RecorderTest, TheFrameHoldsWhatWasRecorded) {
  const std::vector<float> norms = {1, 2};
  ASSERT_EQ(recorder_.Begin(10), GYRO_OK);
  EXPECT_EQ(recorder_.Scalar("loss", 2.5), GYRO_OK);
  EXPECT_EQ(recorder_.Scalar("tokens.seen", 1e6), GYRO_OK);
  EXPECT_EQ(recorder_.Array("layer_grad_norm", norms.data(), 2), GYRO_OK);
  ASSERT_EQ(recorder_.End(3, 7), GYRO_OK);
  EXPECT_EQ(Last().step, 10);
  EXPECT_EQ(Last().boundary, 1u);
  EXPECT_EQ(Last().epoch, 3u);
  EXPECT_EQ(Last().ledger_version, 7u);
  EXPECT_EQ(Scalar(Signal::kLoss), 2.5);
  EXPECT_EQ(Last().Count(Signal::kLayerGradNorm), 2u);
  EXPECT_EQ(Last().Array(Signal::kLayerGradNorm)[1], 2);
  EXPECT_EQ(Last().user_count, 1u);
  EXPECT_EQ(counters_.training.reports.value(), 1u);
}

TEST_F(RecorderTest, TheLastValueOfANameInAStepWins) {
  recorder_.Begin(1);
  recorder_.Scalar("loss", 1);
  recorder_.Scalar("loss", 2);
  recorder_.Scalar("mine", 3);
  recorder_.Scalar("mine", 4);
  recorder_.End(0, 0);
  EXPECT_EQ(Scalar(Signal::kLoss), 2);
  EXPECT_EQ(Last().user_count, 1u);
  EXPECT_EQ(Last().user[0].value, 4);
}

TEST_F(RecorderTest, NothingOfAnUnfinishedReportIsLeft) {
  const float norms[] = {1, 2};
  recorder_.Begin(1);
  recorder_.Scalar("loss", 9);
  recorder_.Array("layer_grad_norm", norms, 2);
  recorder_.Begin(2);
  recorder_.End(0, 0);
  EXPECT_TRUE(model::IsAbsent(Scalar(Signal::kLoss)));
  EXPECT_EQ(Last().Count(Signal::kLayerGradNorm), 0u);
  EXPECT_EQ(recorder_.boundary(), 1u) << "an unfinished report is no boundary";
}

TEST_F(RecorderTest, MicroBatchesOfALayerTakeTheMaximum) {
  const float a[] = {1, 5, 3, -2}, b[] = {2, 4, 3, -1};
  recorder_.Begin(1);
  EXPECT_EQ(recorder_.LayerAttnLogitMax(1, a, 4, GYRO_LOGIT_EXACT), GYRO_OK);
  EXPECT_EQ(recorder_.LayerAttnLogitMax(1, b, 4, GYRO_LOGIT_EXACT), GYRO_OK);
  recorder_.End(0, 0);
  const float absent = model::kAbsent;
  EXPECT_EQ(Maxima(), (std::vector<float>{absent, absent, absent, absent, 2, 5, 3, -1}))
      << "layer 0 was not measured: absent, not zero";
  EXPECT_EQ(Last().logit_kind, LogitKind::kExact);
}

TEST_F(RecorderTest, ANanOnceMeasuredStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float a[] = {nan, 1, 1, 1}, b[] = {7, nan, 1, 1};
  recorder_.Begin(1);
  recorder_.LayerAttnLogitMax(0, a, 4, GYRO_LOGIT_EXACT);
  recorder_.LayerAttnLogitMax(0, b, 4, GYRO_LOGIT_EXACT);
  recorder_.End(0, 0);
  EXPECT_TRUE(std::isnan(Maxima()[0]));
  EXPECT_TRUE(std::isnan(Maxima()[1]));
  EXPECT_EQ(Maxima()[2], 1);
}

TEST_F(RecorderTest, KindsOfLayersCombineToWhatHoldsOfAll) {
  const float a[] = {1, 1, 1, 1};
  recorder_.Begin(1);
  recorder_.LayerAttnLogitMax(0, a, 4, GYRO_LOGIT_EXACT);
  recorder_.LayerAttnLogitMax(1, a, 4, GYRO_LOGIT_SAMPLED_LOWER);
  recorder_.End(0, 0);
  EXPECT_EQ(Last().logit_kind, LogitKind::kSampledLower);
}

TEST_F(RecorderTest, AFullRecordReplacesLayersAndTakesTheDeclaredKind) {
  const float layer[] = {9, 9, 9, 9};
  const std::vector<float> all(8, 1.0f);
  recorder_.Begin(1);
  recorder_.LayerAttnLogitMax(0, layer, 4, GYRO_LOGIT_NORM_PRODUCT);
  EXPECT_EQ(recorder_.AttnLogitMax(all.data(), 8, GYRO_LOGIT_UNKNOWN), GYRO_OK);
  recorder_.End(0, 0);
  EXPECT_EQ(Maxima(), all);
  EXPECT_EQ(Last().logit_kind, LogitKind::kExact);
}

TEST_F(RecorderTest, ReportsTheSpikeScoreOfLossAndGradNorm) {
  recorder_.Begin(1);
  recorder_.Scalar("loss", 2);
  recorder_.End(0, 0);
  EXPECT_EQ(Scalar(Signal::kSpikeScoreLoss), 0);
  EXPECT_TRUE(model::IsAbsent(Scalar(Signal::kSpikeScoreGradNorm))) << "no grad norm, no score";
}

TEST_F(RecorderTest, AFullRingDropsTheNewReportAndStillPassesABoundary) {
  const float norms[] = {1, 2};
  for (int i = 1; i <= 2; ++i) {
    ASSERT_EQ(recorder_.Begin(i), GYRO_OK);
    ASSERT_EQ(recorder_.End(0, 0), GYRO_OK);
  }
  EXPECT_EQ(recorder_.Begin(3), GYRO_DROPPED);
  EXPECT_EQ(recorder_.Scalar("loss", 1), GYRO_DROPPED);
  EXPECT_EQ(recorder_.Array("layer_grad_norm", norms, 2), GYRO_DROPPED);
  EXPECT_EQ(recorder_.End(0, 0), GYRO_DROPPED);
  EXPECT_EQ(recorder_.last(), nullptr);
  EXPECT_EQ(recorder_.boundary(), 3u);
  EXPECT_EQ(counters_.training.dropped_hot.value(), 1u);
  EXPECT_EQ(counters_.training.reports.value(), 2u);
  ring_.queue().Release();
  EXPECT_EQ(recorder_.Begin(4), GYRO_OK);
  EXPECT_EQ(recorder_.End(0, 0), GYRO_OK);
  EXPECT_EQ(Last().dropped_hot, 1u);
}

TEST_F(RecorderTest, RefusalsNameWhatWasSeenAndWhatIsWanted) {
  const std::vector<float> values(100, 1.0f);
  recorder_.Begin(1);
  EXPECT_EQ(recorder_.Array("layer_grad_norm", values.data(), 3), GYRO_INVALID);
  EXPECT_EQ(Error(), "layer_grad_norm has 3 values, wanted what fits a model of 2 layers and 4 heads");
  EXPECT_EQ(recorder_.Array("layer_grad_norm", nullptr, 2), GYRO_INVALID);
  EXPECT_EQ(Error(), "layer_grad_norm has 2 values at NULL, wanted what fits a model of 2 layers and 4 heads");
  EXPECT_EQ(recorder_.Array("no_such", values.data(), 2), GYRO_INVALID);
  EXPECT_EQ(Error(), "\"no_such\" is not an array signal");
  EXPECT_EQ(recorder_.Array("loss", values.data(), 1), GYRO_INVALID);
  EXPECT_EQ(recorder_.Array(nullptr, values.data(), 1), GYRO_INVALID);
  EXPECT_EQ(recorder_.Scalar("hidden_ms", 1), GYRO_INVALID);
  EXPECT_EQ(Error(), "hidden_ms is an array signal, wanted a scalar: use gyro_record_array");
  EXPECT_EQ(recorder_.Scalar("no spaces", 1), GYRO_INVALID);
  EXPECT_EQ(Error(), "the scalar's name \"no spaces\" is not valid, wanted 1 to 128 of A-Z a-z 0-9 . _ : -");
  EXPECT_EQ(recorder_.Scalar(nullptr, 1), GYRO_INVALID);
  EXPECT_EQ(recorder_.Scalar("", 1), GYRO_INVALID);
  EXPECT_EQ(recorder_.Scalar(std::string(129, 'x').c_str(), 1), GYRO_INVALID);
  EXPECT_EQ(recorder_.Scalar(std::string(128, 'x').c_str(), 1), GYRO_OK);
  EXPECT_EQ(recorder_.AttnLogitMax(values.data(), 7, GYRO_LOGIT_EXACT), GYRO_INVALID);
  EXPECT_EQ(Error(), "attn_logit_max has 7 values, wanted layers x heads = 2 x 4");
  EXPECT_EQ(recorder_.AttnLogitMax(values.data(), 8, 5), GYRO_INVALID);
  EXPECT_EQ(Error(), "the kind of attn_logit_max is 5, wanted a gyro_logit_kind");
  EXPECT_EQ(recorder_.LayerAttnLogitMax(2, values.data(), 4, GYRO_LOGIT_EXACT), GYRO_INVALID);
  EXPECT_EQ(Error(), "attn_logit_max of layer 2 has 4 values, wanted a layer below 2 and 4 values (heads)");
  EXPECT_EQ(recorder_.LayerAttnLogitMax(~0u, values.data(), 4, GYRO_LOGIT_EXACT), GYRO_INVALID);
  EXPECT_EQ(recorder_.LayerAttnLogitMax(0, values.data(), 5, GYRO_LOGIT_EXACT), GYRO_INVALID);
  EXPECT_EQ(counters_.training.invalid.value(), 15u);
}

TEST_F(RecorderTest, AUserScalarTooManyIsRefused) {
  recorder_.Begin(1);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(recorder_.Scalar(("u" + std::to_string(i)).c_str(), i), GYRO_OK);
  EXPECT_EQ(recorder_.Scalar("u64", 1), GYRO_INVALID);
  EXPECT_EQ(Error(), "user scalar \"u64\" is number 65 of this report, wanted at most 64");
  EXPECT_EQ(recorder_.Scalar("u63", 1), GYRO_OK) << "a known name still may change";
}

TEST_F(RecorderTest, RecordingOutsideAStepIsAStateError) {
  EXPECT_EQ(recorder_.Scalar("loss", 1), GYRO_STATE);
  EXPECT_EQ(Error(), "gyro_record_scalar was called without gyro_step_begin");
  EXPECT_EQ(recorder_.End(0, 0), GYRO_STATE);
  EXPECT_EQ(recorder_.boundary(), 0u);
}

TEST_F(RecorderTest, AStepThatTheWireCannotCarryIsRefused) {
  EXPECT_EQ(recorder_.Begin(std::numeric_limits<int64_t>::max()), GYRO_INVALID);
  EXPECT_EQ(Error(), "the step is 9223372036854775807, wanted one within 2^53 of 0");
  EXPECT_EQ(recorder_.Begin(-(int64_t{1} << 53)), GYRO_OK);
}

TEST(Recorder, AReportIsBoundedInBytes) {
  Settings settings = SmallModel();
  settings.model.layers = 512;
  settings.model.heads = 512;
  FrameRing ring(FrameLayout(512, 512), 2);
  Counters counters;
  Recorder recorder(&settings, &ring, &counters);
  const std::vector<float> all(512 * 512, 1.0f);
  recorder.Begin(1);
  EXPECT_EQ(recorder.AttnLogitMax(all.data(), all.size(), GYRO_LOGIT_EXACT), GYRO_OK);
  EXPECT_EQ(recorder.AttnLogitMax(all.data(), all.size(), GYRO_LOGIT_EXACT), GYRO_OK) << "it replaces itself";
  EXPECT_EQ(recorder.Array("hidden_ms", all.data(), 513), GYRO_OK);
  EXPECT_EQ(recorder.Array("attn_entropy", all.data(), all.size()), GYRO_INVALID);
  char text[GYRO_REASON_BYTES];
  ASSERT_TRUE(counters.training.error.Get(text));
  EXPECT_STREQ(text, "attn_entropy would make the report larger than 1280 KiB");
}

}  // namespace
}  // namespace gyrostat::client
