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
  EXPECT_EQ(screen.Render(Terminal(), 23, kNow),
            "gpt  live  mode act  step 2  last report just now\n"
            "\n"
            "loss          3           █▁\n"
            "grad norm     1.5         ▁▁\n"
            "learning rate 0.0003      spike score  loss 0.4 %  grad norm -\n"
            "max logit     40          ▁▁\n"
            "over tau      8 heads over 30\n"
            "worst heads   L0H0 40  L1H1 39  L2H2 38  L3H3 37  L4H4 36  L5H5 35  L6H6 34\n"
            "\n"
            "open findings: 0\n"
            "\n"
            "open interventions: 0\n"
            "Ctrl-C ends; gyrostatctl show gpt tells more\n");
}

TEST(WatchScreen, TellsTheEpisodeInTwoLinesAsLongAsItIsNews) {
  WatchScreen screen;
  v1::RunView view = View(2, 3);
  view.mutable_episode()->set_headline("Attention logits run away, first in layer 2, head 5, since step 93.");
  view.mutable_episode()->set_advice(std::string(300, 'a'));
  screen.Add(view);
  const auto lines = Lines(screen.Render(Terminal(), 23, kNow));
  ASSERT_GT(lines.size(), 10u);
  EXPECT_EQ(lines[9], "Attention logits run away, first in layer 2, head 5, since step 93.");
  EXPECT_EQ(lines[10], "  " + std::string(77, 'a') + "…");
  EXPECT_EQ(lines[11], "open findings: 0");
  view.mutable_episode()->set_closed(true);
  screen.Add(view);
  EXPECT_EQ(screen.Render(Terminal(), 23, kNow).find("run away"), std::string::npos);
}

TEST(WatchScreen, FitsAnyWindowHoweverMuchIsOpen) {
  WatchScreen screen;
  v1::RunView view = View(1, 4);
  view.mutable_episode()->set_headline(std::string(300, 'h'));
  view.mutable_episode()->set_advice(std::string(300, 'a'));
  for (int i = 0; i < 50; ++i) {
    view.add_open_findings()->set_message(std::string(300, 'm'));
    view.add_open_interventions()->set_reason(std::string(300, 'r'));
  }
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
  EXPECT_NE(page.find("open interventions: 50"), std::string::npos);
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
  EXPECT_NE(screen.Render(Terminal(), 23, kNow).find("loss          4           ▁\n"), std::string::npos);
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
