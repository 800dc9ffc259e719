#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "rpc/convert.h"
#include "support/wire_samples.h"

namespace gyrostat::rpc {
namespace {

// The refusal's text; empty when the hello is taken.
std::string Refusal(const v1::Hello& in) {
  model::Hello out;
  const absl::Status status = FromWire(in, &out);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

void AddReading(uint32_t id, float from, float to, int64_t first, v1::Hello* hello) {
  v1::RegisterReading* reading = hello->add_registers();
  reading->set_id(id);
  reading->set_from(from);
  reading->set_to(to);
  reading->set_first_boundary(first);
  reading->set_ramp_boundaries(50);
  reading->set_version(2);
}

TEST(ConvertHello, KeepsEveryField) {
  model::Hello out;
  ASSERT_TRUE(FromWire(SampleHello(), &out).ok());
  EXPECT_EQ(out.run, "gpt-20m");
  EXPECT_EQ(out.attempt.AsBytes(), IdBytes('a'));
  EXPECT_EQ(out.epoch, 2u);
  EXPECT_EQ(out.boundary, 41u);
  EXPECT_EQ(out.ledger_version, 7u);
  EXPECT_EQ(out.ledger, (model::LedgerDelta{{1}, {3}, {5 << 20}}));
  ASSERT_EQ(out.last_outcomes.size(), 1u);
  EXPECT_EQ(out.last_outcomes[0].order_id.AsBytes(), IdBytes('o'));
  EXPECT_EQ(out.last_outcomes[0].outcome, model::AckOutcome::kApplied);
  EXPECT_THAT(out.allow, testing::ElementsAre("qk_clip"));
  EXPECT_EQ(out.tau_min, 10);
  EXPECT_EQ(out.model.layers, 2u);
  EXPECT_EQ(out.model.heads, 4u);
  EXPECT_EQ(out.model.kv_heads, 2u);
  EXPECT_EQ(out.model.attention, model::Attention::kGqa);
  EXPECT_EQ(out.model.norm_placement, model::NormPlacement::kPre);
  EXPECT_EQ(out.model.norm_kind, model::NormKind::kRmsnorm);
  EXPECT_EQ(out.model.norm_eps, 1e-6);
  EXPECT_EQ(out.model.norm_gain, model::NormGain::kUnitOffset);
  EXPECT_EQ(out.model.master_fp32, true);
  EXPECT_EQ(out.model.attention_bias, std::nullopt);
  EXPECT_EQ(out.model.schedule_kind, model::ScheduleKind::kCosine);
  EXPECT_EQ(out.model.schedule_peak, 3e-4);
  EXPECT_EQ(out.model.warmup_steps, 100u);
  EXPECT_EQ(out.model.total_steps, std::nullopt);
  EXPECT_EQ(out.attn_logit, (model::AttnLogitInfo{model::LogitKind::kExact, true, false, false, false}));
  EXPECT_EQ(out.world_size, 8u);
  EXPECT_EQ(out.agreement_lag, 1u);
  EXPECT_EQ(out.first_sequence, 12u);
  EXPECT_EQ(out.grad_norm_convention, "unclipped");
}

TEST(ConvertHello, TakesRegistersInOrderOfTheirIds) {
  v1::Hello in = SampleHello();
  AddReading(0, 1, 0.3f, -40, &in);
  AddReading(64, 1, 1.5f, 7, &in);
  model::Hello out;
  ASSERT_TRUE(FromWire(in, &out).ok());
  EXPECT_EQ(out.registers, (std::vector<model::RegisterReading>{{0, 1, 0.3f, -40, 50, 2}, {64, 1, 1.5f, 7, 50, 2}}));
}

TEST(ConvertHello, RefusesRegistersThatNoMirrorCanHold) {
  const auto with = [](uint32_t id, float from, float to, int64_t first) {
    v1::Hello in = SampleHello();
    AddReading(3, 1, 1, 0, &in);
    AddReading(id, from, to, first, &in);
    return Refusal(in);
  };
  EXPECT_EQ(with(4, 1, 1, 0), "");
  EXPECT_EQ(with(3, 1, 1, 0), "hello.registers.id is 3 after 3, wanted ids in order, each once");
  EXPECT_EQ(with(2, 1, 1, 0), "hello.registers.id is 2 after 3, wanted ids in order, each once");
  EXPECT_EQ(with(2112, 1, 1, 0), "hello.registers.id is 2112, wanted below 2112");
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(with(4, nan, 1, 0), "hello.registers[4].from is nan, wanted 0 to 1e+30");
  EXPECT_EQ(with(4, 1, inf, 0), "hello.registers[4].to is inf, wanted 0 to 1e+30");
  EXPECT_EQ(with(4, 1, -1, 0), "hello.registers[4].to is -1, wanted 0 to 1e+30");
  EXPECT_NE(with(4, 1, 1, int64_t{1} << 60), "");
  v1::Hello many = SampleHello();
  for (int i = 0; i < 2113; ++i) many.add_registers();
  EXPECT_EQ(Refusal(many), "hello.registers is 2113 entries, wanted at most 2112");
}

TEST(ConvertHello, NeedsNothingButVersionRunAndAttempt) {
  v1::Hello in;
  in.set_protocol_version(1);
  in.set_run("r");
  in.set_attempt(IdBytes('a'));
  model::Hello out;
  ASSERT_TRUE(FromWire(in, &out).ok());
  EXPECT_EQ(out.model, model::ModelSpec());
  EXPECT_EQ(out.world_size, 1u);
  EXPECT_EQ(out.first_sequence, 1u);
}

TEST(ConvertHello, RefusesAnotherProtocolVersion) {
  v1::Hello in = SampleHello();
  in.set_protocol_version(2);
  EXPECT_EQ(Refusal(in), "hello.protocol_version is 2, wanted 1 to 1");
}

TEST(ConvertHello, RefusesImpossibleRunNames) {
  for (const std::string& name : {std::string(), std::string("a/b"), std::string("a b"), std::string("a\n"),
                                  std::string(129, 'x'), std::string("läuft")}) {
    v1::Hello in = SampleHello();
    in.set_run(name);
    EXPECT_THAT(Refusal(in), testing::StartsWith("hello.run is \"")) << name;
  }
  v1::Hello in = SampleHello();
  in.set_run(std::string(128, 'x'));
  EXPECT_EQ(Refusal(in), "");
}

TEST(ConvertHello, RefusesAttemptsThatAreNot16RandomBytes) {
  v1::Hello in = SampleHello();
  in.set_attempt(std::string(15, 'a'));
  EXPECT_EQ(Refusal(in), "hello.attempt is 15 bytes, wanted 16 bytes");
  in.set_attempt(std::string(16, '\0'));
  EXPECT_EQ(Refusal(in), "hello.attempt is all zero, wanted random bytes");
}

TEST(ConvertHello, BoundsTheModel) {
  v1::Hello in = SampleHello();
  in.clear_ledger();
  in.mutable_model()->set_layers(model::kLayersMax + 1);
  EXPECT_EQ(Refusal(in), "model.layers is 1025, wanted 0 to 1024");
  in.mutable_model()->set_layers(1024);
  in.mutable_model()->set_heads(256);
  EXPECT_EQ(Refusal(in), "");
  in.mutable_model()->set_heads(258);
  EXPECT_EQ(Refusal(in), "model.layers x model.heads is 264192, wanted at most 262144");
  in.mutable_model()->set_layers(0xFFFFFFFFu);
  in.mutable_model()->set_heads(0xFFFFFFFFu);
  EXPECT_EQ(Refusal(in), "model.layers is 4294967295, wanted 0 to 1024");
}

TEST(ConvertHello, WantsKvHeadsToDivideHeads) {
  v1::Hello in = SampleHello();
  in.mutable_model()->set_kv_heads(3);
  EXPECT_EQ(Refusal(in), "model.kv_heads is 3, wanted a divisor of heads = 4");
  in.mutable_model()->clear_kv_heads();
  EXPECT_EQ(Refusal(in), "");
}

TEST(ConvertHello, RefusesNumbersThatAreNone) {
  v1::Hello in = SampleHello();
  in.mutable_model()->set_norm_eps(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(Refusal(in), "model.norm_eps is nan, wanted 0 to 1");
  in = SampleHello();
  in.mutable_model()->mutable_schedule()->set_peak(-1e-3);
  EXPECT_EQ(Refusal(in), "model.schedule.peak is -0.001, wanted 0 to 1e+06");
  in = SampleHello();
  in.set_tau_min(std::numeric_limits<double>::infinity());
  EXPECT_EQ(Refusal(in), "hello.tau_min is inf, wanted 0 to 1e+09");
}

TEST(ConvertHello, TakesTokensOfANewerClientAsUnknown) {
  v1::Hello in = SampleHello();
  in.mutable_model()->set_attention("linear");
  in.mutable_model()->set_norm_placement("sideways");
  in.add_allow("teleport");
  in.set_grad_norm_convention("squared");
  in.mutable_attn_logit()->set_kind(static_cast<v1::AttnLogitInfo::Kind>(9));
  model::Hello out;
  ASSERT_TRUE(FromWire(in, &out).ok());
  EXPECT_EQ(out.model.attention, model::Attention::kUnknown);
  EXPECT_EQ(out.model.norm_placement, model::NormPlacement::kUnknown);
  EXPECT_THAT(out.allow, testing::ElementsAre("qk_clip"));
  EXPECT_EQ(out.grad_norm_convention, "");
  EXPECT_EQ(out.attn_logit.kind, model::LogitKind::kUnknown);
}

TEST(ConvertHello, JudgesTheLedger) {
  v1::Hello in = SampleHello();
  in.mutable_ledger()->add_layer(0);
  EXPECT_EQ(Refusal(in), "hello.ledger is 2 layers, 1 heads, 1 ticks, wanted one of each per head");
  in = SampleHello();
  in.mutable_ledger()->set_layer(0, 2);
  EXPECT_EQ(Refusal(in), "hello.ledger.layer is 2, wanted below 2");
  in = SampleHello();
  in.mutable_ledger()->set_head(0, 4);
  EXPECT_EQ(Refusal(in), "hello.ledger.head is 4, wanted below 4");
  in = SampleHello();
  in.mutable_ledger()->set_ticks(0, -1);
  EXPECT_EQ(Refusal(in), "hello.ledger.ticks is -1, wanted 0 to 1125899906842624");
  in = SampleHello();
  in.mutable_ledger()->add_layer(1);
  in.mutable_ledger()->add_head(3);
  in.mutable_ledger()->add_ticks(1);
  EXPECT_EQ(Refusal(in), "hello.ledger is layer 1 head 3 named twice, wanted each head once");
}

TEST(ConvertHello, TakesALedgerOfAModelItDoesNotKnow) {
  v1::Hello in = SampleHello();
  in.clear_model();
  in.mutable_ledger()->set_layer(0, 1023);
  in.mutable_ledger()->set_head(0, 1023);
  EXPECT_EQ(Refusal(in), "");
  in.mutable_ledger()->set_head(0, 1024);
  EXPECT_EQ(Refusal(in), "hello.ledger.head is 1024, wanted below 1024");
}

TEST(ConvertHello, BoundsOutcomesAndKinds) {
  v1::Hello in = SampleHello();
  for (int i = in.last_outcomes_size(); i < kOutcomesMax; ++i) *in.add_last_outcomes() = in.last_outcomes(0);
  EXPECT_EQ(Refusal(in), "");
  *in.add_last_outcomes() = in.last_outcomes(0);
  EXPECT_EQ(Refusal(in), "hello.last_outcomes is 257 entries, wanted at most 256");
  in = SampleHello();
  for (int i = 0; i < 64; ++i) in.add_allow("qk_clip");
  EXPECT_EQ(Refusal(in), "hello.allow is 65 kinds, wanted at most 64");
  in = SampleHello();
  in.mutable_last_outcomes(0)->set_outcome(static_cast<v1::Ack::Outcome>(99));
  EXPECT_EQ(Refusal(in), "hello.last_outcomes.outcome is 99, wanted 1 to 6");
}

TEST(ConvertHello, WantsARankOfTheWorld) {
  v1::Hello in = SampleHello();
  in.set_rank(8);
  EXPECT_EQ(Refusal(in), "hello.rank is 8, wanted 0 to 7");
}

TEST(ConvertHello, CleansText) {
  v1::Hello in = SampleHello();
  in.set_framework("torch\x1b[31m\n" + std::string(200, 'x'));
  model::Hello out;
  ASSERT_TRUE(FromWire(in, &out).ok());
  EXPECT_EQ(out.framework.substr(0, 11), "torch?[31m?");
  EXPECT_EQ(out.framework.size(), 64u);
}

}  // namespace
}  // namespace gyrostat::rpc
