#include "rpc/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rpc/convert.h"
#include "support/wire_samples.h"

namespace gyrostat::rpc {
namespace {

model::Id128 Id(char fill) { return *model::Id128::FromBytes(IdBytes(fill)); }

model::Order SampleOrder() {
  model::Order order;
  order.id = Id('o');
  order.run = "r";
  order.attempt = Id('a');
  order.epoch = 3;
  order.basis = 40;
  order.expires_boundary = 56;
  order.intent_id = "r/1";
  order.tau = 30;
  order.variant = model::ClipVariant::kGroupMin;
  order.split = 0.5;
  order.entries = {{1, 2, 31.7f, 58000}, {1, 3, 90, -5}};
  return order;
}

TEST(RenderOrder, CarriesEveryEntryBitForBit) {
  v1::DaemonMessage out;
  ToWire(SampleOrder(), &out);
  ASSERT_TRUE(out.has_order());
  EXPECT_EQ(out.order().order_id(), IdBytes('o'));
  EXPECT_EQ(out.order().attempt(), IdBytes('a'));
  EXPECT_EQ(out.order().kind(), v1::QK_CLIP);
  EXPECT_EQ(out.order().basis(), 40u);
  EXPECT_EQ(out.order().expires_boundary(), 56u);
  EXPECT_EQ(out.order().qk_clip().variant(), v1::GROUP_MIN);
  EXPECT_THAT(out.order().qk_clip().entries().layer(), testing::ElementsAre(1, 1));
  EXPECT_THAT(out.order().qk_clip().entries().head(), testing::ElementsAre(2, 3));
  EXPECT_THAT(out.order().qk_clip().entries().reported_max(), testing::ElementsAre(31.7f, 90));
  EXPECT_THAT(out.order().qk_clip().entries().target_ticks(), testing::ElementsAre(58000, -5));
}

TEST(RenderOrder, OfRegistersCarriesSetsAndRamp) {
  model::Order order = SampleOrder();
  order.kind = model::InterventionKind::kDeepnormAlpha;
  order.entries.clear();
  order.sets = {{64, 1.5f, 0}, {65, 1.25f, 7}};
  order.ramp = 50;
  v1::DaemonMessage out;
  ToWire(order, &out);
  ASSERT_TRUE(out.has_order());
  EXPECT_FALSE(out.order().has_qk_clip());
  EXPECT_EQ(out.order().kind(), v1::DEEPNORM_ALPHA);
  EXPECT_EQ(out.order().sets().ramp_boundaries(), 50u);
  EXPECT_THAT(out.order().sets().id(), testing::ElementsAre(64, 65));
  EXPECT_THAT(out.order().sets().value(), testing::ElementsAre(1.5f, 1.25f));
  EXPECT_THAT(out.order().sets().expected_version(), testing::ElementsAre(0, 7));
}

TEST(RenderOrder, BecomesLocalClipWhereClippingIsLocal) {
  model::Order order = SampleOrder();
  order.where = model::ClipWhere::kLocal;
  v1::DaemonMessage out;
  ToWire(order, &out);
  ASSERT_TRUE(out.has_local_clip());
  EXPECT_EQ(out.local_clip().tau(), 30);
  EXPECT_EQ(out.local_clip().intent_id(), "r/1");
  EXPECT_EQ(out.local_clip().epoch(), 3u);
}

TEST(RenderEpisode, CarriesTheDiagnosisAndItsPage) {
  diagnose::Diagnosis d;
  d.episode = 100001;
  d.closed = true;
  d.findings = 9;
  d.ranked = {{diagnose::Cause::kAttentionLogits, 0.75}, {diagnose::Cause::kBadData, 0.25}};
  d.severity = model::Severity::kCritical;
  d.step_begin = 90;
  d.step_end = 140;
  d.healed = false;
  d.detector = "attn_logit";
  d.signal = model::Signal::kAttnLogitMax;
  d.layer = 0, d.head = 5;
  d.first_step = 93;
  d.recommend = model::InterventionKind::kQkClip;
  d.headline = "It runs away.";
  d.advice = "Clip it.";
  d.evidence = {"Over tau."};
  v1::Episode out;
  ToWire(d, "r", Id('a'), &out);
  EXPECT_EQ(out.id(), 100001u);
  EXPECT_EQ(out.run(), "r");
  EXPECT_EQ(out.attempt(), IdBytes('a'));
  EXPECT_TRUE(out.closed());
  EXPECT_EQ(out.causes(1).cause(), "bad_data");
  EXPECT_EQ(out.causes(1).weight(), 0.25);
  EXPECT_EQ(out.severity(), "critical");
  EXPECT_EQ(out.step_end(), 140);
  EXPECT_TRUE(out.has_healed());
  EXPECT_FALSE(out.healed());
  EXPECT_EQ(out.signal(), "attn_logit_max");
  EXPECT_TRUE(out.has_layer());
  EXPECT_EQ(out.head(), 5u);
  EXPECT_FALSE(out.has_rank());
  EXPECT_EQ(out.first_step(), 93);
  EXPECT_EQ(out.recommend(), v1::QK_CLIP);
  EXPECT_EQ(out.findings(), 9u);
  EXPECT_EQ(out.page(), d.Text());
  EXPECT_THAT(out.page(), testing::HasSubstr("9 findings in all"));
}

TEST(RenderModel, ComesBackAsItWent) {
  model::Hello hello;
  ASSERT_TRUE(FromWire(SampleHello(), &hello).ok());
  v1::Hello again = SampleHello();
  again.clear_model();
  ToWire(hello.model, again.mutable_model());
  model::Hello back;
  ASSERT_TRUE(FromWire(again, &back).ok());
  EXPECT_EQ(back.model, hello.model);
  v1::ModelSpec nothing;
  ToWire(model::ModelSpec(), &nothing);
  EXPECT_EQ(nothing.ByteSizeLong(), 0u);
}

TEST(RenderRun, ShowsTheNewestOfEverything) {
  engine::RunState run;
  run.run = "r";
  run.attempt = Id('a');
  run.attempts = 2;
  run.life = engine::RunLife::kSilent;
  run.mode = model::Mode::kAct;
  run.step = 500;
  run.ranks = 8;
  run.last_report_unix_ms = 1700000000000;
  run.spec.layers = 2;
  run.spec.heads = 3;
  run.last.SetScalar(model::Signal::kLoss, 2.5);
  run.last.user = {{"mine", 4}};
  run.last.MutableArray(model::Signal::kAttnLogitMax) = {1, 7, model::kAbsent, NAN, 9, 2};
  run.worst_heads = {{1, 1, 9}};
  run.tau = 30;
  run.open_findings.emplace_back().message = "it grows";
  run.open_interventions.emplace_back().id = "r/1";
  run.recent_decisions.push_back({499, model::InterventionKind::kQkClip, false, "below tau"});
  run.interventions_pending = 1;
  v1::RunView out;
  ToWire(run, &out);
  EXPECT_EQ(out.summary().state(), "silent");
  EXPECT_EQ(out.summary().mode(), v1::ACT);
  EXPECT_EQ(out.summary().findings_open(), 1u);
  EXPECT_EQ(out.summary().interventions_pending(), 1u);
  EXPECT_EQ(out.summary().last_report_at_ms(), 1700000000000);
  ASSERT_EQ(out.scalars_size(), 2);
  EXPECT_EQ(out.scalars(0).signal(), "loss");
  EXPECT_EQ(out.scalars(1).signal(), "mine");
  ASSERT_EQ(out.layer_attn_logit_max_size(), 2);
  EXPECT_EQ(out.layer_attn_logit_max(0), 7);
  EXPECT_TRUE(std::isnan(out.layer_attn_logit_max(1)));
  EXPECT_EQ(out.worst_heads(0).value(), 9);
  EXPECT_EQ(out.head_attn_logit_max_size(), 0) << "only where it is asked for";
  AddHeads(run, &out);
  ASSERT_EQ(out.head_attn_logit_max_size(), 6);
  EXPECT_EQ(out.head_attn_logit_max(2), model::kAbsent);
  EXPECT_EQ(out.head_attn_logit_max(4), 9);
  EXPECT_EQ(out.open_findings(0).message(), "it grows");
  EXPECT_EQ(out.open_findings(0).attempt(), IdBytes('a'));
  EXPECT_EQ(out.open_interventions(0).run(), "r");
  EXPECT_EQ(out.recent_decisions(0).reason(), "below tau");
}

TEST(RenderFinding, LeavesAbsentWhatIsAbsent) {
  model::Finding in;
  in.id = 7;
  in.detector = "loss_spike";
  in.severity = model::Severity::kWarning;
  in.signal = model::Signal::kLoss;
  v1::Finding out;
  ToWire(in, "r", Id('a'), &out);
  EXPECT_EQ(out.severity(), "warning");
  EXPECT_EQ(out.signal(), "loss");
  EXPECT_FALSE(out.has_layer());
  EXPECT_FALSE(out.has_step_end());
  EXPECT_FALSE(out.has_healed());
  EXPECT_EQ(out.recommend(), v1::INTERVENTION_KIND_UNSPECIFIED);
  in.layer = 0;
  in.step_end = 9;
  in.healed = false;
  in.recommend = model::InterventionKind::kQkClip;
  ToWire(in, "r", Id('a'), &out);
  EXPECT_TRUE(out.has_layer());
  EXPECT_EQ(out.step_end(), 9);
  EXPECT_TRUE(out.has_healed());
  EXPECT_EQ(out.recommend(), v1::QK_CLIP);
}

TEST(RenderIntervention, NamesStateAndOutcome) {
  model::Intervention in;
  in.id = "r/4";
  in.state = model::InterventionState::kJudged;
  in.outcome = model::Outcome::kEffective;
  in.step_applied = 12;
  in.median_delay_boundaries = 1;
  v1::Intervention out;
  ToWire(in, "r", Id('a'), &out);
  EXPECT_EQ(out.state(), "judged");
  EXPECT_EQ(out.outcome(), "effective");
  EXPECT_EQ(out.step_applied(), 12);
  EXPECT_EQ(out.median_delay_boundaries(), 1);
}

}  // namespace
}  // namespace gyrostat::rpc
