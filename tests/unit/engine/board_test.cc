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
