#include "ctl/render.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gyrostat::ctl {
namespace {

constexpr int64_t kNow = 1767225600000;

TEST(RenderRuns, IsOneLineForEachRun) {
  v1::ListRunsResponse runs;
  EXPECT_EQ(RenderRuns(runs, {}, kNow), "No run has reported to this daemon yet.\n");
  auto* run = runs.add_runs();
  run->set_run("gpt-small");
  run->set_state("live");
  run->set_mode(v1::ACT);
  run->set_step(1234);
  run->set_ranks(1);
  run->set_last_report_at_ms(kNow - 4000);
  run->set_findings_open(2);
  run->set_attempts(1);
  run = runs.add_runs();
  run->set_run("b");
  run->set_state("ended");
  run->set_mode(v1::OBSERVE);
  EXPECT_EQ(RenderRuns(runs, {}, kNow),
            "RUN        STATE  MODE     STEP  RANKS  LAST REPORT  FINDINGS  PENDING  ATTEMPTS\n"
            "gpt-small  live   act      1234      1  4 s ago             2        0         1\n"
            "b          ended  observe     0      0  never               0        0         0\n");
}

TEST(RenderFindings, SaysWhereSinceWhenAndTheSentence) {
  Findings findings;
  EXPECT_EQ(RenderFindings(findings, {}), "No findings.\n");
  auto* finding = findings.Add();
  finding->set_id(7);
  finding->set_severity("critical");
  finding->set_detector("attn_logit");
  finding->set_signal("attn_logit_max");
  finding->set_layer(2);
  finding->set_head(5);
  finding->set_step_begin(100);
  finding->set_value(133.7);
  finding->set_expected(30);
  finding->set_message("layer 2 head 5 is over tau.\nforged line");
  EXPECT_EQ(RenderFindings(findings, {}),
            "ID  SEVERITY  DETECTOR    SIGNAL          WHERE           STEPS  VALUE  EXPECTED  STATE\n"
            " 7  critical  attn_logit  attn_logit_max  layer 2 head 5  100-   133.7        30  open\n"
            "    layer 2 head 5 is over tau.\\x0aforged line\n");
  finding->set_step_end(120);
  finding->set_healed(false);
  EXPECT_NE(RenderFindings(findings, {}).find("100-120"), std::string::npos);
  EXPECT_NE(RenderFindings(findings, {}).find("not healed"), std::string::npos);
  finding->set_healed(true);
  EXPECT_EQ(RenderFindings(findings, {}).find("not healed"), std::string::npos);
}

TEST(RenderInterventions, ShowsOrdersDelayAndReason) {
  Interventions interventions;
  EXPECT_EQ(RenderInterventions(interventions, {}), "No interventions.\n");
  auto* intent = interventions.Add();
  intent->set_id("gpt/1");
  intent->set_kind(v1::QK_CLIP);
  intent->set_state("judged");
  intent->set_outcome("effective");
  intent->set_mode(v1::ACT);
  intent->set_author("policy");
  intent->set_step_proposed(90);
  intent->set_step_applied(91);
  intent->set_orders(12);
  intent->set_orders_applied(11);
  intent->set_heads(4);
  intent->set_median_delay_boundaries(1);
  intent->set_reason("4 heads over tau 30");
  EXPECT_EQ(RenderInterventions(interventions, {}),
            "ID     KIND     STATE   OUTCOME    MODE  AUTHOR  PROPOSED  APPLIED  ORDERS  HEADS  DELAY\n"
            "gpt/1  qk_clip  judged  effective  act   policy        90       91   11/12      4      1\n"
            "    4 heads over tau 30\n");
}

v1::RunView View() {
  v1::RunView view;
  view.mutable_summary()->set_run("gpt");
  view.mutable_summary()->set_state("live");
  view.mutable_summary()->set_mode(v1::ADVISE);
  view.mutable_summary()->set_step(10);
  view.mutable_summary()->set_ranks(1);
  view.mutable_summary()->set_attempts(1);
  view.mutable_summary()->set_last_report_at_ms(kNow - 1000);
  view.mutable_model()->set_layers(2);
  view.mutable_model()->set_heads(4);
  view.mutable_model()->set_kv_heads(2);
  view.mutable_model()->set_norm_placement("pre");
  view.mutable_model()->set_norm_kind("layernorm");
  view.mutable_attn_logit()->set_kind(v1::AttnLogitInfo::EXACT);
  view.mutable_attn_logit()->set_scaled(true);
  auto* loss = view.add_scalars();
  loss->set_signal("loss");
  loss->set_value(2.5);
  view.add_layer_attn_logit_max(10);
  view.add_layer_attn_logit_max(40);
  auto* worst = view.add_worst_heads();
  worst->set_layer(1);
  worst->set_head(3);
  worst->set_value(40);
  view.set_heads_over_tau(1);
  view.set_tau(30);
  auto* decision = view.add_recent_decisions();
  decision->set_step(9);
  decision->set_kind(v1::QK_CLIP);
  decision->set_reason("Mode is advise: waits for approval.");
  view.set_reports_total(11);
  return view;
}

TEST(RenderView, TellsEverythingAboutARun) {
  EXPECT_EQ(RenderView(View(), {}, kNow),
            "run             gpt\n"
            "state           live, last report 1 s ago\n"
            "mode            advise\n"
            "step            10\n"
            "attempt          (of 1)\n"
            "ranks           1\n"
            "model           2 layers, 4 heads on 2 key heads, pre layernorm\n"
            "logits          exact, scaled\n"
            "job allows      nothing: the job lets no one change it\n"
            "reports         11, 0 dropped\n"
            "\nNewest signals\n"
            "loss            2.5\n"
            "\nAttention logits\n"
            "by layer        ▁█  0..1\n"
            "over tau        1 head over 30\n"
            "layer  head  max\n"
            "    1     3   40\n"
            "\nOpen findings\n"
            "No findings.\n"
            "\nOpen interventions\n"
            "No interventions.\n"
            "\nRecent decisions\n"
            "STEP  KIND     ACTED\n"
            "   9  qk_clip  no\n"
            "    Mode is advise: waits for approval.\n");
}

TEST(RenderView, SaysWhatIsMissing) {
  const std::string text = RenderView(v1::RunView(), {}, kNow);
  EXPECT_NE(text.find("model           not declared"), std::string::npos);
  EXPECT_NE(text.find("logits          not measured"), std::string::npos);
  EXPECT_NE(text.find("last report never"), std::string::npos);
}

TEST(RenderSeriesSummary, CountsAndSpansValues) {
  EXPECT_EQ(RenderSeriesSummary("loss", {}, {}), "No values of loss in these steps.\n");
  const SeriesPoint points[] = {{1, 3}, {2, NAN}, {5, 1}, {6, 2}};
  EXPECT_EQ(RenderSeriesSummary("loss", points, {}),
            "signal          loss\n"
            "steps           1..6, 4 values, 1 not finite\n"
            "range           1 .. 3, median 2\n"
            "last            2\n"
            "shape           █x▁▅\n");
}

TEST(Place, NamesOnlyWhatIsMeant) {
  v1::Finding finding;
  EXPECT_EQ(Place(finding), "");
  finding.set_rank(0);
  EXPECT_EQ(Place(finding), "rank 0");
  finding.set_layer(0);
  EXPECT_EQ(Place(finding), "layer 0 rank 0");
}

}  // namespace
}  // namespace gyrostat::ctl
