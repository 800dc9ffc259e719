#include "ctl/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace gyrostat::ctl {
namespace {

v1::RunSummary Summary() {
  v1::RunSummary run;
  run.set_run("gpt");
  run.set_attempt(std::string("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f", 16));
  run.set_attempts(2);
  run.set_state("live");
  run.set_mode(v1::ACT);
  run.set_step(41);
  run.set_ranks(1);
  run.set_last_report_at_ms(1767225600250);
  run.set_findings_open(1);
  run.set_interventions_pending(3);
  return run;
}

TEST(Json, ARunHasTheFieldsOfTheContract) {
  EXPECT_EQ(Json(Summary()),
            R"({"run":"gpt","attempt":"000102030405060708090a0b0c0d0e0f","attempts":2,"state":"live","mode":"act",)"
            R"("step":41,"ranks":1,"last_report_at":"2026-01-01T00:00:00.250Z","findings_open":1,)"
            R"("interventions_pending":3})");
}

TEST(Json, ARunThatNeverReportedHasNoTime) {
  v1::RunSummary run;
  run.set_run("new");
  const auto parsed = nlohmann::json::parse(Json(run));
  EXPECT_TRUE(parsed["last_report_at"].is_null());
  EXPECT_TRUE(parsed["attempt"].is_null());
  EXPECT_TRUE(parsed["mode"].is_null());
}

TEST(Json, AFindingHasReplaysFieldsAndItsOwn) {
  v1::Finding finding;
  finding.set_id(9);
  finding.set_run("gpt");
  finding.set_detector("attn_logit");
  finding.set_severity("warning");
  finding.set_signal("attn_logit_max");
  finding.set_layer(3);
  finding.set_head(0);
  finding.set_step_begin(100);
  finding.set_step_detected(102);
  finding.set_value(INFINITY);
  finding.set_expected(100);
  finding.set_message("over tau");
  finding.set_recommend(v1::QK_CLIP);
  EXPECT_EQ(Json(finding),
            R"({"id":9,"run":"gpt","attempt":null,"episode":null,"rules":"gyrostat","detector":"attn_logit",)"
            R"("severity":"warning","signal":"attn_logit_max","layer":3,"head":0,"rank":null,"step_begin":100,)"
            R"("step_detected":102,"step_end":null,"healed":null,"value":"Infinity","expected":100.0,)"
            R"("message":"over tau","recommend":"qk_clip"})");
  finding.set_step_end(110);
  finding.set_healed(false);
  finding.set_value(NAN);
  const auto parsed = nlohmann::json::parse(Json(finding));
  EXPECT_EQ(parsed["step_end"], 110);
  EXPECT_EQ(parsed["healed"], false);
  EXPECT_EQ(parsed["value"], "NaN");
}

TEST(Json, AnEpisodeIsItsDiagnosis) {
  v1::Episode episode;
  episode.set_id(400001);
  episode.set_run("gpt");
  episode.set_severity("critical");
  for (const auto& [cause, weight] : {std::pair("attention_logits", 0.75), std::pair("bad_data", 0.25)}) {
    episode.add_causes()->set_cause(cause);
    episode.mutable_causes()->rbegin()->set_weight(weight);
  }
  episode.set_step_begin(90);
  episode.set_detector("attn_logit");
  episode.set_signal("attn_logit_max");
  episode.set_layer(2);
  episode.set_first_step(93);
  episode.set_headline("h");
  episode.set_advice("a");
  episode.add_evidence("e");
  episode.set_findings(7);
  EXPECT_EQ(Json(episode),
            R"({"id":400001,"run":"gpt","attempt":null,"closed":false,"severity":"critical",)"
            R"("cause":"attention_logits","causes":[{"cause":"attention_logits","weight":0.75},)"
            R"({"cause":"bad_data","weight":0.25}],"step_begin":90,"step_end":null,"healed":null,)"
            R"("detector":"attn_logit","signal":"attn_logit_max","layer":2,"head":null,"rank":null,"first_step":93,)"
            R"("common_mode":false,"recommend":null,"headline":"h","advice":"a","likely":null,"evidence":["e"],)"
            R"("findings":7})");
}

TEST(Json, AnInterventionWithoutOutcomeSaysNull) {
  v1::Intervention intent;
  intent.set_id("gpt/1");
  intent.set_run("gpt");
  intent.set_kind(v1::QK_CLIP);
  intent.set_state("proposed");
  intent.set_mode(v1::ADVISE);
  intent.set_reason("head 3 over tau");
  intent.set_author("policy");
  intent.set_step_proposed(7);
  EXPECT_EQ(Json(intent),
            R"({"id":"gpt/1","run":"gpt","attempt":null,"kind":"qk_clip","state":"proposed","outcome":null,)"
            R"("mode":"advise","reason":"head 3 over tau","author":"policy","step_proposed":7,"step_applied":null,)"
            R"("orders":0,"orders_applied":0,"heads":0,"median_delay_steps":null})");
  intent.set_outcome("effective");
  intent.set_step_applied(0);
  const auto parsed = nlohmann::json::parse(Json(intent));
  EXPECT_EQ(parsed["outcome"], "effective");
  EXPECT_EQ(parsed["step_applied"], 0);
}

TEST(Json, AViewIsASummaryWithEverythingElse) {
  v1::RunView view;
  *view.mutable_summary() = Summary();
  view.mutable_model()->set_layers(2);
  view.mutable_model()->mutable_schedule()->set_kind("cosine");
  view.mutable_attn_logit()->set_kind(v1::AttnLogitInfo::EXACT);
  auto* scalar = view.add_scalars();
  scalar->set_signal("loss");
  scalar->set_value(NAN);
  view.add_layer_attn_logit_max(33.3f);
  view.add_layer_attn_logit_max(-std::numeric_limits<float>::max());
  auto* worst = view.add_worst_heads();
  worst->set_layer(1);
  worst->set_value(INFINITY);
  auto* decision = view.add_recent_decisions();
  decision->set_step(40);
  decision->set_kind(v1::QK_CLIP);
  decision->set_reason("mode is observe");
  view.add_allow("qk_clip");
  const auto parsed = nlohmann::json::parse(Json(view));
  EXPECT_EQ(parsed["run"], "gpt");
  EXPECT_EQ(parsed["model"]["layers"], 2);
  EXPECT_EQ(parsed["model"]["schedule"]["kind"], "cosine");
  EXPECT_EQ(parsed["attn_logit"]["kind"], "exact");
  EXPECT_EQ(parsed["scalars"]["loss"], "NaN");
  EXPECT_EQ(parsed["layer_attn_logit_max"].dump(), "[33.3,null]") << "shortest float; absent is null";
  EXPECT_EQ(parsed["worst_heads"][0]["value"], "Infinity");
  EXPECT_EQ(parsed["recent_decisions"][0]["acted"], false);
  EXPECT_EQ(parsed["allow"][0], "qk_clip");
}

TEST(Json, StaysOneLineOfValidJsonWhateverTheNames) {
  v1::RunSummary run;
  run.set_state("a\nb\"\xff");
  const std::string line = Json(run);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(line)["state"], "a\nb\"\ufffd");
}

TEST(Json, AStrangersEnumeratorDoesNotWrapIntoAKnownOne) {
  EXPECT_STREQ(Token(static_cast<v1::Mode>(257)), "");
  EXPECT_STREQ(Token(static_cast<v1::InterventionKind>(-255)), "");
  EXPECT_STREQ(Token(v1::ACT), "act");
  EXPECT_STREQ(Token(v1::WARMUP_EXTENSION), "warmup_extension");
}

TEST(Json, PointsKeepAllDigits) {
  EXPECT_EQ(JsonPoint(-3, 0.1), R"({"step":-3,"value":0.1})");
  EXPECT_EQ(JsonPoint(4, -INFINITY), R"({"step":4,"value":"-Infinity"})");
}

TEST(Json, AnAttemptOfAnotherLengthIsNone) { EXPECT_EQ(AttemptHex("short"), ""); }

}  // namespace
}  // namespace gyrostat::ctl
