#include "engine/board.h"

#include <gtest/gtest.h>

namespace gyrostat::engine {
namespace {

std::shared_ptr<const RunState> View(const std::string& run, model::Step step) {
  RunState view;
  view.run = run;
  view.step = step;
  return std::make_shared<const RunState>(view);
}

TEST(Board, TakesNamesUpToTheLimit) {
  Board board;
  EXPECT_EQ(board.TakeName("a", 2), Board::Claim::kNew);
  EXPECT_EQ(board.TakeName("a", 2), Board::Claim::kKnown);
  EXPECT_EQ(board.TakeName("b", 2), Board::Claim::kNew);
  EXPECT_EQ(board.TakeName("c", 2), Board::Claim::kFull);
  board.DropName("b");
  EXPECT_EQ(board.TakeName("c", 2), Board::Claim::kNew);
}

TEST(Board, CountsRunsThatHaveEndedApart) {
  Board board;
  for (int i = 0; i < 16; ++i) {
    const std::string name = "ended-" + std::to_string(i);
    EXPECT_EQ(board.TakeName(name, 2), Board::Claim::kNew) << i;
    RunState view;
    view.run = name;
    view.life = RunLife::kEnded;
    board.Publish(std::make_shared<const RunState>(view));
  }
  EXPECT_EQ(board.TakeName("a", 2), Board::Claim::kNew);
  EXPECT_EQ(board.TakeName("b", 2), Board::Claim::kNew);
  EXPECT_EQ(board.TakeName("c", 2), Board::Claim::kFull);
  EXPECT_EQ(board.TakeName("ended-3", 2), Board::Claim::kKnown);
  board.DropName("b");
  board.Publish(View("a", 1));
  RunState last;
  last.run = "b";
  last.life = RunLife::kEnded;
  board.Publish(std::make_shared<const RunState>(last));
  EXPECT_EQ(board.TakeName("c", 2), Board::Claim::kFull) << "all of them have a bound too";
}

TEST(Board, KeepsANameThatHasAView) {
  Board board;
  board.Publish(View("a", 1));
  board.DropName("a");
  EXPECT_TRUE(board.HasName("a"));
}

TEST(Board, ShowsTheNewestViewAndLeavesOldOnesToTheirHolders) {
  Board board;
  board.TakeName("b", 9);
  board.Publish(View("a", 1));
  const auto held = board.Find("a");
  board.Publish(View("a", 2));
  EXPECT_EQ(held->step, 1);
  EXPECT_EQ(board.Find("a")->step, 2);
  EXPECT_EQ(board.Find("b"), nullptr);
  EXPECT_EQ(board.All().size(), 1u);
}

}  // namespace
}  // namespace gyrostat::engine
