#include "ctl/watch_screen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

namespace gyrostat::ctl {
namespace {

constexpr int64_t kNow = 1767225600000;

v1::RunView View(int64_t step, double loss) {
  v1::RunView view;
  view.mutable_summary()->set_run("gpt");
  view.mutable_summary()->set_state("live");
  view.mutable_summary()->set_mode(v1::ACT);
  view.mutable_summary()->set_step(step);
  view.mutable_summary()->set_last_report_at_ms(kNow);
  const std::pair<const char*, double> scalars[] = {
      {"loss", loss}, {"grad_norm", 1.5}, {"learning_rate", 3e-4}, {"spike_score_loss", 0.4}};
  for (const auto& [signal, value] : scalars) {
    auto* scalar = view.add_scalars();
    scalar->set_signal(signal);
    scalar->set_value(value);
  }
  for (uint32_t i = 0; i < 8; ++i) {
    auto* head = view.add_worst_heads();
    head->set_layer(i);
    head->set_head(i);
    head->set_value(static_cast<float>(40 - i));
  }
  view.set_heads_over_tau(8);
  view.set_tau(30);
  return view;
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

Style Terminal() {
  Style style;
  style.columns = 80;
  return style;
}

TEST(WatchScreen, IsOneCalmPage) {
  WatchScreen screen;
  screen.Add(View(1, 4));
  screen.Add(View(2, 3));
  EXPECT_EQ(screen.Render(Terminal(), 24, kNow, "", "q ends; "),
            "gpt  live  mode act  step 2  last report just now\n"
            "loss          3           █▁\n"
            "grad norm     1.5         ▁▁\n"
            "learning rate 0.0003      ▁▁\n"
            "spikes, loss  0.4 %       ▁▁\n"
            "spikes, norm  -           \n"
            "max logit     40          ▁▁  8 heads over 30\n"
            "interventions under way: 0\n"
            "open findings: 0\n"
            "worst heads   L0H0 40  L1H1 39  L2H2 38  L3H3 37  L4H4 36  L5H5 35  L6H6 34\n"
            "q ends; gyrostatctl show gpt tells more\n");
}

TEST(WatchScreen, BeginsItsCurvesWithThePast) {
  WatchScreen screen;
  for (int i = 0; i < 300; ++i) screen.AddPast("loss", i);
  screen.AddPast("no_such_signal", 1);
  screen.Add(View(2, 400));
  const std::string row = Lines(screen.Render(Terminal(), 24, kNow))[1];
  EXPECT_EQ(Columns(row), 14 + 12 + 52u) << row;
  EXPECT_TRUE(row.ends_with("█")) << row;
}

v1::RunView WithHeads(int64_t step, uint32_t layers, uint32_t heads) {
  v1::RunView view = View(step, 3);
  view.mutable_model()->set_layers(layers);
  view.mutable_model()->set_heads(heads);
  for (uint32_t i = 0; i < layers * heads; ++i) view.add_head_attn_logit_max(static_cast<float>(i % 31));
  return view;
}

TEST(WatchScreen, DrawsTheHeadsInTheRoomThatIsLeft) {
  WatchScreen screen;
  screen.Add(WithHeads(1, 128, 128));
  auto lines = Lines(screen.Render(Terminal(), 24, kNow));
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_EQ(lines[9], "max logit, 128 layers down, 128 heads across; a cell: the largest of 11 x 2");
  EXPECT_TRUE(lines[22].starts_with("0 [ `:-=+*#] 30 = tau   worst L0H30 30   ! over tau: 0 heads")) << lines[22];
  screen.Add(View(2, 3));  // A report without heads.
  EXPECT_EQ(Lines(screen.Render(Terminal(), 24, kNow))[9], lines[9]);
  WatchScreen small;
  small.Add(WithHeads(1, 4, 8));
  lines = Lines(small.Render(Terminal(), 24, kNow));
  EXPECT_EQ(lines.size(), 7 + 2 + 6 + 1u);
  EXPECT_EQ(lines[9], "max logit, 4 layers down, 8 heads across");
}

TEST(WatchScreen, TellsTheEpisodeItsCauseAndSinceWhenAsLongAsItIsNews) {
  WatchScreen screen;
  v1::RunView view = View(2, 3);
  view.mutable_episode()->set_headline("Attention logits run away, first in layer 2, head 5, since step 93.");
  view.mutable_episode()->set_advice(std::string(300, 'a'));
  view.mutable_episode()->set_step_begin(93);
  view.mutable_episode()->set_findings(3);
  auto* cause = view.mutable_episode()->add_causes();
  cause->set_cause("attention_logits");
  cause->set_weight(0.716);
  screen.Add(view);
  const auto lines = Lines(screen.Render(Terminal(), 24, kNow));
  ASSERT_GT(lines.size(), 10u);
  EXPECT_EQ(lines[7], "Attention logits run away, first in layer 2, head 5, since step 93.");
  EXPECT_EQ(lines[8], "  likely attention_logits (72 %), since step 93, 3 findings");
  EXPECT_EQ(lines[9], "  " + std::string(77, 'a') + "…");
  EXPECT_EQ(lines[10], "interventions under way: 0");
  view.mutable_episode()->set_closed(true);
  screen.Add(view);
  EXPECT_EQ(screen.Render(Terminal(), 24, kNow).find("run away"), std::string::npos);
}

TEST(WatchScreen, SaysWhatToTypeForWhatWaits) {
  WatchScreen screen("gyrostatctl --address 127.0.0.1:9");
  v1::RunView view = WithHeads(1, 128, 128);
  for (int i = 0; i < 9; ++i) {
    auto* each = view.add_open_interventions();
    each->set_id("gpt/" + std::to_string(i));
    each->set_kind(v1::QK_CLIP);
    each->set_state(i == 3 ? "proposed" : "sent");
    each->set_reason(std::string(100, 'r'));
  }
  screen.Add(view);
  const auto lines = Lines(screen.Render(Terminal(), 24, kNow));
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_EQ(lines[7], "waits for you (or reject ID --reason WHY):");
  EXPECT_TRUE(lines[8].starts_with("  gyrostatctl --address 127.0.0.1:9 approve gpt/3   qk_clip: rrr")) << lines[8];
  EXPECT_EQ(lines[9], "interventions under way: 8");
  EXPECT_NE(screen.Line(kNow).find("waits: gyrostatctl --address 127.0.0.1:9 approve gpt/3"), std::string::npos);
}

TEST(WatchScreen, SaysALookInOneLine) {
  WatchScreen screen;
  screen.Add(View(7, 4));
  EXPECT_EQ(screen.Line(kNow), "2026-01-01T00:00:00.000Z  gpt  live  mode act  step 7  loss 4  grad norm 1.5  "
                               "learning rate 0.0003  max logit 40 (L0H0, 8 heads over 30)  0 open findings");
}

TEST(WatchScreen, FitsAnyWindowHoweverMuchIsOpen) {
  WatchScreen screen;
  v1::RunView view = View(1, 4);
  view.mutable_episode()->set_headline(std::string(300, 'h'));
  view.mutable_episode()->set_advice(std::string(300, 'a'));
  for (int i = 0; i < 50; ++i) {
    view.add_open_findings()->set_message(std::string(300, 'm'));
    view.add_open_interventions()->set_reason(std::string(300, 'r'));
    view.add_open_interventions()->set_state("proposed");
  }
  for (int i = 0; i < 64 * 64; ++i) view.add_head_attn_logit_max(static_cast<float>(i));
  view.mutable_model()->set_layers(64);
  screen.Add(view);
  for (const size_t rows : {1u, 5u, 12u, 16u, 23u, 60u, 200u}) {
    for (const size_t columns : {20u, 80u, 200u}) {
      Style style;
      style.columns = columns;
      const auto lines = Lines(screen.Render(style, rows, kNow));
      EXPECT_LE(lines.size(), rows);
      for (const std::string& line : lines) EXPECT_LE(Columns(line), columns) << line;
    }
  }
  const std::string page = screen.Render(Terminal(), 23, kNow);
  EXPECT_NE(page.find("open findings: 50"), std::string::npos);
  EXPECT_NE(page.find("interventions under way: 50"), std::string::npos);
  EXPECT_NE(page.find(" more\n"), std::string::npos);
}

TEST(WatchScreen, PutsTheWorstFindingFirst) {
  WatchScreen screen;
  v1::RunView view = View(1, 4);
  view.add_open_findings()->set_severity("info");
  view.add_open_findings()->set_severity("critical");
  screen.Add(view);
  const std::string page = screen.Render(Terminal(), 23, kNow);
  EXPECT_LT(page.find("critical"), page.find("info "));
}

TEST(WatchScreen, GivesInterventionsTheRoomThatFindingsLeave) {
  WatchScreen screen;
  v1::RunView view = View(1, 4);
  for (int i = 0; i < 9; ++i) view.add_open_interventions()->set_id("gpt/" + std::to_string(i));
  screen.Add(view);
  const std::string page = screen.Render(Terminal(), 23, kNow);
  EXPECT_NE(page.find("gpt/8"), std::string::npos);
}

TEST(WatchScreen, ARepeatedStepAddsNothingToTheCurve) {
  WatchScreen screen;
  for (int i = 0; i < 5; ++i) screen.Add(View(7, 4));
  EXPECT_NE(screen.Render(Terminal(), 23, kNow).find("\nloss          4           ▁\n"), std::string::npos);
}

TEST(WatchScreen, ShowsTroubleWithoutLosingThePicture) {
  WatchScreen screen;
  screen.Add(View(7, 4));
  const std::string page = screen.Render(Terminal(), 23, kNow, "No daemon answers");
  EXPECT_NE(page.find("No daemon answers\n"), std::string::npos);
  EXPECT_NE(page.find("step 7"), std::string::npos);
}

TEST(WatchScreen, EscapesWhatARunCallsItself) {
  WatchScreen screen;
  v1::RunView view = View(7, 4);
  view.mutable_summary()->set_run("evil\x1b[2J");
  view.add_open_findings()->set_message("a\nb");
  screen.Add(view);
  const std::string page = screen.Render(Terminal(), 23, kNow);
  EXPECT_EQ(page.find('\x1b'), std::string::npos);
  EXPECT_NE(page.find("a\\x0ab"), std::string::npos);
}

}  // namespace
}  // namespace gyrostat::ctl
