#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "rpc/convert.h"
#include "support/wire_samples.h"

namespace gyrostat::rpc {
namespace {

using model::Signal;

model::ModelSpec SampleSpec() {
  model::ModelSpec spec;
  spec.layers = 2;
  spec.heads = 4;
  return spec;
}

struct Outcome {
  absl::Status status;
  model::Report report;
  uint64_t unknown = 0;
};

Outcome Convert(const v1::Report& in) {
  Outcome out;
  out.status = FromWire(in, SampleSpec(), &out.report, &out.unknown);
  EXPECT_TRUE(out.status.ok() || absl::IsInvalidArgument(out.status)) << out.status;
  return out;
}

std::string Refusal(const v1::Report& in) { return std::string(Convert(in).status.message()); }

TEST(ConvertReport, KeepsEveryField) {
  v1::Report in = SampleReport(3);
  in.set_dropped_hot(4);
  in.set_dropped_unacked(5);
  in.mutable_local_clips()->set_boundary(42);
  in.mutable_local_clips()->set_ledger_version_before(7);
  in.mutable_local_clips()->set_ledger_version_after(8);
  in.mutable_local_clips()->mutable_applied()->add_layer(1);
  in.mutable_local_clips()->mutable_applied()->add_head(2);
  in.mutable_local_clips()->mutable_applied()->add_ticks(99);
  const Outcome out = Convert(in);
  ASSERT_TRUE(out.status.ok()) << out.status;
  EXPECT_EQ(out.report.sequence, 3u);
  EXPECT_EQ(out.report.epoch, 2u);
  EXPECT_EQ(out.report.boundary, 43u);
  EXPECT_EQ(out.report.step, 103);
  EXPECT_EQ(out.report.ledger_version, 7u);
  EXPECT_EQ(out.report.step_time_ms, 12.5);
  EXPECT_EQ(out.report.dropped_hot, 4u);
  EXPECT_EQ(out.report.dropped_unacked, 5u);
  EXPECT_EQ(out.report.attn_logit_kind, model::LogitKind::kExact);
  EXPECT_EQ(out.report.Scalar(Signal::kLoss), 3.25);
  EXPECT_FALSE(out.report.Has(Signal::kLearningRate));
  EXPECT_THAT(out.report.Array(Signal::kAttnLogitMax), testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(out.report.user, testing::ElementsAre(testing::Pair("tokens_per_second", 1e5)));
  EXPECT_EQ(out.report.local_clips.ledger_version_after, 8u);
  EXPECT_EQ(out.report.local_clips.applied, (model::LedgerDelta{{1}, {2}, {99}}));
  EXPECT_EQ(out.unknown, 0u);
}

TEST(ConvertReport, PassesValuesThatAreNotFinite) {
  v1::Report in = SampleReport(1);
  in.set_scalars(0, std::numeric_limits<double>::quiet_NaN());
  in.set_scalars(1, std::numeric_limits<double>::infinity());
  in.mutable_arrays(0)->set_values(FloatBytes({NAN, INFINITY, -INFINITY, model::kAbsent, 0, -0.0f, 1e-45f, 1}));
  const Outcome out = Convert(in);
  ASSERT_TRUE(out.status.ok()) << out.status;
  EXPECT_TRUE(std::isnan(out.report.Scalar(Signal::kLoss)));
  EXPECT_TRUE(std::isnan(out.report.Array(Signal::kAttnLogitMax)[0]));
  EXPECT_TRUE(model::IsAbsent(out.report.Array(Signal::kAttnLogitMax)[3]));
}

TEST(ConvertReport, SkipsAndCountsSignalsOfANewerClient) {
  v1::Report in = SampleReport(1);
  AddScalar(&in, static_cast<Signal>(31), 1);
  in.add_scalar_signals(1000000);
  in.add_scalars(1);
  v1::SignalValues* array = in.add_arrays();
  array->set_signal(4000000000u);
  array->set_values("any bytes at all");
  const Outcome out = Convert(in);
  ASSERT_TRUE(out.status.ok()) << out.status;
  EXPECT_EQ(out.unknown, 3u);
}

TEST(ConvertReport, RefusesSignalsInTheWrongPlace) {
  v1::Report in = SampleReport(1);
  AddScalar(&in, Signal::kAttnLogitMax, 1);
  EXPECT_EQ(Refusal(in), "report.scalar_signals is 38, wanted the number of a scalar signal");
  in = SampleReport(1);
  AddArray(&in, Signal::kLoss, {1});
  EXPECT_EQ(Refusal(in), "report.arrays.signal is 1, wanted the number of an array signal");
  in = SampleReport(1);
  in.add_scalar_signals(0);
  in.add_scalars(1);
  EXPECT_EQ(Refusal(in), "report.scalar_signals is 0, wanted the number of a scalar signal");
  in = SampleReport(1);
  in.add_arrays();
  EXPECT_EQ(Refusal(in), "report.arrays.signal is 0, wanted the number of an array signal");
}

TEST(ConvertReport, RefusesASignalNamedTwice) {
  v1::Report in = SampleReport(1);
  AddScalar(&in, Signal::kLoss, 9);
  EXPECT_EQ(Refusal(in), "report.scalar_signals is loss named twice, wanted each once");
  in = SampleReport(1);
  AddArray(&in, Signal::kAttnLogitMax, {1});
  EXPECT_EQ(Refusal(in), "report.arrays is attn_logit_max named twice, wanted each once");
}

TEST(ConvertReport, WantsAsManyScalarsAsSignals) {
  v1::Report in = SampleReport(1);
  in.add_scalars(1);
  EXPECT_EQ(Refusal(in), "report.scalars is 3 values for 2 signals, wanted one each, at most 256");
}

TEST(ConvertReport, WantsWholeFloatsAndBoundedArrays) {
  v1::Report in = SampleReport(1);
  in.mutable_arrays(0)->set_values("abcde");
  EXPECT_EQ(Refusal(in), "report.arrays.attn_logit_max is 5 bytes, wanted a multiple of 4 up to 1048576");
  in.mutable_arrays(0)->set_values(std::string(4 * kLayerHeadsMax, '\0'));
  EXPECT_EQ(Refusal(in), "");
  in.mutable_arrays(0)->set_values(std::string(4 * kLayerHeadsMax + 4, '\0'));
  EXPECT_EQ(Refusal(in), "report.arrays.attn_logit_max is 1048580 bytes, wanted a multiple of 4 up to 1048576");
  in = SampleReport(1);
  AddArray(&in, Signal::kHiddenMs, std::vector<float>(model::kLayersMax + 1));
  EXPECT_EQ(Refusal(in), "");
  in = SampleReport(1);
  AddArray(&in, Signal::kLayerGradNorm, std::vector<float>(model::kLayersMax + 1));
  EXPECT_EQ(Refusal(in), "report.arrays.layer_grad_norm is 4100 bytes, wanted a multiple of 4 up to 4096");
}

TEST(ConvertReport, TakesAnEmptyArrayAsAbsent) {
  v1::Report in = SampleReport(1);
  in.mutable_arrays(0)->clear_values();
  const Outcome out = Convert(in);
  ASSERT_TRUE(out.status.ok()) << out.status;
  EXPECT_FALSE(out.report.Has(Signal::kAttnLogitMax));
}

TEST(ConvertReport, BoundsNumbersSoThatSumsCannotOverflow) {
  v1::Report in = SampleReport(1);
  in.set_sequence(0);
  EXPECT_EQ(Refusal(in), "report.sequence is 0, wanted 1 to 9007199254740992");
  in = SampleReport(1);
  in.set_step(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Refusal(in), "report.step is 9223372036854775807, wanted a step within 2^53 of 0");
  in.set_step(-1);
  EXPECT_EQ(Refusal(in), "");
  in = SampleReport(1);
  in.set_boundary(~uint64_t{0});
  EXPECT_EQ(Refusal(in), "report.boundary is 18446744073709551615, wanted 0 to 9007199254740992");
  in = SampleReport(1);
  in.set_step_time_ms(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(Refusal(in), "report.step_time_ms is nan, wanted 0 to 1e+12");
}

TEST(ConvertReport, JudgesUserScalars) {
  v1::Report in = SampleReport(1);
  in.add_user_names("with space");
  in.add_user_values(1);
  EXPECT_EQ(Refusal(in), "report.user_names is \"with space\", wanted 1 to 128 of A-Z a-z 0-9 . _ : -");
  in = SampleReport(1);
  in.add_user_names("tokens_per_second");
  in.add_user_values(1);
  EXPECT_EQ(Refusal(in), "report.user_names is \"tokens_per_second\" twice, wanted each once");
  in = SampleReport(1);
  for (int i = 1; i < kUserScalarsMax; ++i) {
    in.add_user_names("u" + std::to_string(i));
    in.add_user_values(i);
  }
  EXPECT_EQ(Refusal(in), "");
  in.add_user_names("one_more");
  in.add_user_values(1);
  EXPECT_EQ(Refusal(in), "report.user_values is 65 values for 65 names, wanted one each, at most 64");
}

TEST(ConvertReport, RefusesALedgerThatRunsBackwards) {
  v1::Report in = SampleReport(1);
  in.mutable_local_clips()->set_ledger_version_before(8);
  in.mutable_local_clips()->set_ledger_version_after(7);
  EXPECT_EQ(Refusal(in), "report.local_clips.ledger_version_after is 7, wanted 8 to 9007199254740992");
}

TEST(ConvertReport, ForgetsWhatTheReusedReportHeld) {
  model::Report report;
  uint64_t unknown = 0;
  ASSERT_TRUE(FromWire(SampleReport(1), SampleSpec(), &report, &unknown).ok());
  v1::Report bare;
  bare.set_sequence(2);
  ASSERT_TRUE(FromWire(bare, SampleSpec(), &report, &unknown).ok());
  EXPECT_FALSE(report.Has(Signal::kLoss));
  EXPECT_FALSE(report.Has(Signal::kAttnLogitMax));
  EXPECT_TRUE(report.user.empty());
}

TEST(ConvertAck, KeepsEveryField) {
  model::Ack out;
  v1::Ack in = SampleAck();
  in.set_reason("applied\tat once");
  in.set_state_digest(~uint64_t{0});
  ASSERT_TRUE(FromWire(in, SampleSpec(), &out).ok());
  EXPECT_EQ(out.order_id.AsBytes(), IdBytes('o'));
  EXPECT_EQ(out.outcome, model::AckOutcome::kApplied);
  EXPECT_EQ(out.boundary, 42u);
  EXPECT_EQ(out.ledger_version_after, 8u);
  EXPECT_EQ(out.applied, (model::LedgerDelta{{1}, {3}, {1000}}));
  EXPECT_EQ(out.state_digest, ~uint64_t{0});
  EXPECT_EQ(out.reason, "applied?at once");
}

TEST(ConvertAck, RefusesWhatItCannotBe) {
  model::Ack out;
  v1::Ack in = SampleAck();
  in.set_order_id("short");
  EXPECT_EQ(FromWire(in, SampleSpec(), &out).message(), "ack.order_id is 5 bytes, wanted 16 bytes");
  in = SampleAck();
  in.set_outcome(v1::Ack::OUTCOME_UNSPECIFIED);
  EXPECT_EQ(FromWire(in, SampleSpec(), &out).message(), "ack.outcome is 0, wanted 1 to 6");
  in = SampleAck();
  in.mutable_applied()->set_ticks(0, kDeltaTicksMax + 1);
  EXPECT_EQ(FromWire(in, SampleSpec(), &out).message(), "ack.applied.ticks is 1073741825, wanted 0 to 1073741824");
}

}  // namespace
}  // namespace gyrostat::rpc
