// The parts by themselves, where the whole loop does not reach: the mirror, the order book, the planner, the decision
// log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/signal.h"
#include "policy/decisions.h"
#include "policy/intents.h"
#include "policy/mirror.h"
#include "policy/order_book.h"
#include "policy/order_id.h"
#include "policy/planner.h"
#include "remedy/qk_clip.h"

namespace gyrostat::policy {
namespace {

using ::testing::HasSubstr;

TEST(Mirror, FollowsChangesInTheirOrderAndIgnoresRepeats) {
  Mirror mirror;
  mirror.Open(1, 2);
  EXPECT_TRUE(mirror.Take(0, 1, {{0}, {1}, {5}}));
  EXPECT_FALSE(mirror.Take(0, 1, {{0}, {1}, {5}}));
  EXPECT_TRUE(mirror.Take(1, 2, {{0}, {1}, {6}}));
  EXPECT_EQ(mirror.ledger().At(0, 1), 11);
  EXPECT_EQ(mirror.ledger().At(1, 0, 1), 5);
  EXPECT_EQ(mirror.doubt(), "");
}

TEST(Mirror, TakesSeveralChangesToldAsOne) {
  Mirror mirror;
  mirror.Open(1, 2);
  EXPECT_TRUE(mirror.Take(0, 3, {{0}, {1}, {5}}));
  EXPECT_EQ(mirror.ledger().version(), 3u);
  EXPECT_EQ(mirror.ledger().At(0, 1), 5);
  EXPECT_EQ(mirror.doubt(), "");
}

TEST(Mirror, IsInDoubtAfterAGapUntilAHello) {
  Mirror mirror;
  mirror.Open(1, 2);
  EXPECT_TRUE(mirror.Take(2, 3, {{0}, {1}, {5}}));
  EXPECT_EQ(mirror.ledger().version(), 3u);
  EXPECT_THAT(mirror.doubt(), HasSubstr("stood at version 0 when the job told of the change from 2 to 3"));
  EXPECT_TRUE(mirror.Take(3, 4, {{0}, {1}, {5}}));
  EXPECT_NE(mirror.doubt(), "");
  mirror.Settle(4, {{0}, {1}, {100}});
  EXPECT_EQ(mirror.doubt(), "");
  EXPECT_EQ(mirror.ledger().At(0, 1), 100);
}

TEST(Mirror, IsInDoubtAboutWhatDoesNotFit) {
  Mirror mirror;
  mirror.Open(1, 2);
  EXPECT_FALSE(mirror.Take(0, 1, {{0}, {2}, {5}}));
  EXPECT_THAT(mirror.doubt(), HasSubstr("does not fit its model"));
  mirror.Settle(7, {{3}, {0}, {1}});
  EXPECT_EQ(mirror.doubt(), "the job's hello tells a clip ledger that does not fit its model");
  mirror.Settle(7, {});
  EXPECT_FALSE(mirror.Take(7, 9, {{0}, {0}, {-1}}));
  EXPECT_THAT(mirror.doubt(), HasSubstr("from version 7 to 9"));
}

TEST(Mirror, KeepsItsHistoryWhenTheHelloTellsNothingNew) {
  Mirror mirror;
  mirror.Open(1, 1);
  ASSERT_TRUE(mirror.Take(0, 1, {{0}, {0}, {5}}));
  mirror.Settle(1, {{0}, {0}, {5}});
  EXPECT_EQ(mirror.ledger().At(0, 0, 0), 0);
  mirror.Settle(1, {{0}, {0}, {6}});
  EXPECT_EQ(mirror.ledger().At(0, 0, 0), std::nullopt);
  EXPECT_EQ(mirror.ledger().At(0, 0), 6);
}

model::Order OrderOf(uint8_t number, model::Boundary basis, uint32_t head, remedy::Ticks target) {
  model::Order order;
  order.id.bytes[0] = number;
  order.basis = basis;
  order.expires_boundary = basis + 16;
  order.entries = {{0, head, 0, target}};
  return order;
}

TEST(OrderBook, KnowsTheLargestTargetThatIsOnItsWay) {
  OrderBook book;
  book.Open(1, 2);
  book.Add(OrderOf(1, 10, 0, 50), 1);
  book.Add(OrderOf(2, 11, 0, 70), 1);
  book.Add(OrderOf(3, 12, 1, 20), 1);
  EXPECT_EQ(book.Targets(), (std::vector<remedy::Ticks>{70, 20}));
  ASSERT_TRUE(book.Settle(OrderOf(2, 11, 0, 70).id, OrderBook::Told::kByAck));
  EXPECT_EQ(book.Targets(), (std::vector<remedy::Ticks>{50, 20}));
  const std::vector<model::Order> out = book.Out();
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].basis, 10u);
}

TEST(OrderBook, TellsTheFirstWordFromTheSecond) {
  OrderBook book;
  book.Open(1, 2);
  book.Add(OrderOf(1, 10, 0, 50), 4);
  auto settled = book.Settle(OrderOf(1, 10, 0, 50).id, OrderBook::Told::kByHello);
  ASSERT_TRUE(settled);
  EXPECT_EQ(settled->intent, 4u);
  EXPECT_TRUE(settled->first);
  settled = book.Settle(OrderOf(1, 10, 0, 50).id, OrderBook::Told::kByAck);
  EXPECT_FALSE(settled->first);
  EXPECT_TRUE(settled->detailed);
  settled = book.Settle(OrderOf(1, 10, 0, 50).id, OrderBook::Told::kByAck);
  EXPECT_FALSE(settled->first);
  EXPECT_FALSE(settled->detailed);
  EXPECT_FALSE(book.Settle(OrderOf(9, 10, 0, 50).id, OrderBook::Told::kByAck));
}

TEST(OrderBook, CountsAWordThatComesAfterNobodyExpectedOne) {
  OrderBook book;
  book.Open(1, 2);
  book.Add(OrderOf(1, 10, 0, 50), 4);
  EXPECT_TRUE(book.Overdue(42).empty());
  ASSERT_EQ(book.Overdue(43).size(), 1u);
  book.Settle(OrderOf(1, 10, 0, 50).id, OrderBook::Told::kByNobody);
  const auto settled = book.Settle(OrderOf(1, 10, 0, 50).id, OrderBook::Told::kByAck);
  EXPECT_TRUE(settled->first);
  EXPECT_TRUE(settled->current);
}

TEST(OrderBook, RemembersThatAnOrderBelongsToAnotherHistory) {
  OrderBook book;
  book.Open(1, 2);
  book.Add(OrderOf(1, 10, 0, 50), 4);
  book.Open(1, 2);
  EXPECT_TRUE(book.Out().empty());
  EXPECT_EQ(book.Targets(), (std::vector<remedy::Ticks>{0, 0}));
  const auto settled = book.Settle(OrderOf(1, 10, 0, 50).id, OrderBook::Told::kByAck);
  ASSERT_TRUE(settled);
  EXPECT_TRUE(settled->first);
  EXPECT_FALSE(settled->current);
}

TEST(OrderBook, ReachesFourTimesTheMedianDelayBetween16And64) {
  OrderBook book;
  EXPECT_EQ(book.Delay(), std::nullopt);
  EXPECT_EQ(book.Reach(), 16u);
  book.TakeDelay(2);
  EXPECT_EQ(book.Reach(), 16u);
  book.TakeDelay(9);
  EXPECT_EQ(book.Delay(), 5.5);
  EXPECT_EQ(book.Reach(), 22u);
  for (int i = 0; i < 15; ++i) book.TakeDelay(1000);
  EXPECT_EQ(book.Reach(), 64u);
}

TEST(DelayTally, GivesTheMedian) {
  DelayTally tally;
  EXPECT_EQ(tally.Median(), std::nullopt);
  tally.Add(0);
  EXPECT_EQ(tally.Median(), 0);
  tally.Add(3);
  EXPECT_EQ(tally.Median(), 1.5);
  tally.Add(1);
  EXPECT_EQ(tally.Median(), 1);
  for (int i = 0; i < 4; ++i) tally.Add(500);
  EXPECT_EQ(tally.Median(), 64) << "64 or more";
}

TEST(LookAt, SeesTheWorstFiniteHeadAndSkipsTheAbsent) {
  const std::vector<float> maxima = {model::kAbsent, 31, NAN, 95, 99.5, -4};
  const Look look = LookAt(maxima, 2, 30, 96);
  EXPECT_EQ(look.measured, 5u);
  EXPECT_EQ(look.nonfinite, 1u);
  EXPECT_EQ(look.first_nonfinite.layer, 1u);
  EXPECT_EQ(look.above, 3u);
  EXPECT_EQ(look.flagged, 1u);
  EXPECT_EQ(look.worst.layer, 2u);
  EXPECT_EQ(look.worst.head, 0u);
  EXPECT_EQ(look.worst.max, 99.5);
  EXPECT_FALSE(look.identical);
}

TEST(LookAt, HasAWorstHeadEvenWhereAllAreNegative) {
  const Look look = LookAt(std::vector<float>{-5, -3, -4}, 3, 30, 30);
  EXPECT_EQ(look.worst.head, 1u);
  EXPECT_EQ(look.above, 0u);
}

TEST(LookAt, SuspectsFourEqualHeadsButNotThree) {
  EXPECT_TRUE(LookAt(std::vector<float>{7, 7, 7, 7}, 2, 30, 30).identical);
  EXPECT_TRUE(LookAt(std::vector<float>{7, 7, model::kAbsent, 7, 7}, 5, 30, 30).identical);
  EXPECT_FALSE(LookAt(std::vector<float>{7, 7, 7}, 3, 30, 30).identical);
  EXPECT_FALSE(LookAt(std::vector<float>{7, 7, 7, std::nextafterf(7, 8)}, 2, 30, 30).identical);
}

TEST(PlanEntries, NamesOnlyWhatGoesBeyondTheLedgerAndTheOrdersOnTheirWay) {
  remedy::ClipLedger now(1, 4);
  ASSERT_TRUE(now.Apply({{0}, {1}, {remedy::LnTicks(2)}}));
  const std::vector<remedy::Ticks> before = {0, 0, 0, 0}, on_its_way = {0, 0, remedy::LnTicks(2), 0};
  const PlanBasis basis{.tau = 30, .threshold = 30, .at_forward = &before, .on_its_way = &on_its_way, .now = &now};
  const auto entries = PlanEntries(std::vector<float>{60, 60, 60, 30}, basis);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].head, 0u);
  EXPECT_EQ(PlanEntries(std::vector<float>{29, 61, 61, 31}, basis).size(), 3u);
}

TEST(DecisionLog, SaysAnswersThatChangeAndObstaclesThatRead) {
  DecisionLog log;
  std::vector<model::Decision> out;
  log.Say(1, Why::kHeldBack, "10 more to wait", 1, &out);
  log.Say(2, Why::kHeldBack, "9 more to wait", 1, &out);
  EXPECT_EQ(out.size(), 1u);
  log.Say(3, Why::kObstacle, "one", 1, &out);
  log.Say(4, Why::kObstacle, "one", 1, &out);
  log.Say(5, Why::kObstacle, "another", 1, &out);
  EXPECT_EQ(out.size(), 3u);
  log.Say(6, Why::kOrdered, "yes", 1, &out);
  log.Say(7, Why::kOrdered, "yes", 100, &out);
  EXPECT_EQ(out.size(), 4u);
  EXPECT_TRUE(out.back().acted);
  log.Forget();
  log.Say(8, Why::kOrdered, "yes", 1, &out);
  EXPECT_EQ(out.size(), 5u);
}

TEST(MakeOrderId, DependsOnRunAttemptAndCounter) {
  model::AttemptId attempt;
  const model::OrderId id = MakeOrderId("r", attempt, 0);
  EXPECT_EQ(id, MakeOrderId("r", attempt, 0));
  EXPECT_NE(id, MakeOrderId("s", attempt, 0));
  EXPECT_NE(id, MakeOrderId("r", attempt, 1));
  attempt.bytes[15] = 1;
  EXPECT_NE(id, MakeOrderId("r", attempt, 0));
  EXPECT_FALSE(id.IsZero());
}

}  // namespace
}  // namespace gyrostat::policy
