#include "client/src/agreement/leader_desk.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/rank_group.h"

namespace gyrostat::client {
namespace {

using model::AckOutcome;
using testing::RankGroup;

class Desk : public ::testing::Test {
 protected:
  explicit Desk(AgreementTerms terms = {}) : group_(2, std::move(terms)) {
    for (size_t i = 0; i < group_.maxima.size(); ++i) group_.maxima[i] = 40 + 5 * static_cast<float>(i);
    group_.Steps(3);
  }
  std::vector<model::Ack>& acks() { return group_.desk->acks; }

  RankGroup group_;
};

TEST_F(Desk, AnOrderIsAckedOnceTheRoundAfterShowsEqualRanks) {
  const model::Order order = group_.OrderFor(2, 30, {1, 6});
  group_.desk->Take(order);
  group_.Step();  // In R of 4.
  group_.Step();  // Applied at 5.
  EXPECT_EQ(group_.rank[1]->ledger().At(0, 1), remedy::LnTicks(1.5));
  group_.Step();
  EXPECT_TRUE(acks().empty());
  group_.Step();
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].order_id, order.id);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kApplied);
  EXPECT_EQ(acks()[0].boundary, 5u);
  EXPECT_EQ(acks()[0].step, 105);
  EXPECT_EQ(acks()[0].ledger_version_before, 0u);
  EXPECT_EQ(acks()[0].ledger_version_after, 1u);
  EXPECT_EQ(acks()[0].applied.ticks.size(), 2u);
  EXPECT_NE(acks()[0].state_digest, 0u);
}

TEST_F(Desk, OrdersOfTheSameTermsBecomeOneByMax) {
  group_.maxima[1] = 90;
  group_.Step();
  model::Order first = group_.OrderFor(2, 30, {1, 6}), second = group_.OrderFor(4, 30, {1, 2});
  group_.desk->Take(first);
  group_.desk->Take(second);
  group_.Steps(4);
  EXPECT_EQ(group_.rank[0]->ledger().version(), 1u);
  EXPECT_EQ(group_.rank[0]->ledger().At(0, 1), remedy::LnTicks(3));
  EXPECT_EQ(group_.rank[0]->ledger().At(0, 2), remedy::LnTicks(50.0 / 30));
  ASSERT_EQ(acks().size(), 2u);
  EXPECT_EQ(acks()[0].applied.size(), 3u);  // One tells what all of it charged.
  EXPECT_EQ(acks()[1].outcome, AckOutcome::kApplied);
  EXPECT_EQ(acks()[1].applied.size(), 0u);
}

TEST_F(Desk, OrdersOfOtherTermsTakeTurns) {
  group_.desk->Take(group_.OrderFor(2, 30, {1}));
  group_.desk->Take(group_.OrderFor(3, 35, {6}));
  group_.Steps(2);
  EXPECT_EQ(group_.rank[1]->ledger().At(1, 2), 0);
  group_.Step();
  EXPECT_EQ(group_.rank[1]->ledger().At(1, 2), remedy::LnTicks(2));
  group_.Steps(3);
  EXPECT_EQ(acks().size(), 2u);
}

TEST_F(Desk, TheEdgeOfExpiryIsTheBoundaryThatApplies) {
  model::Order order = group_.OrderFor(2, 30, {1});
  order.expires_boundary = 5;  // In R of 4, applied at 5.
  group_.desk->Take(order);
  group_.Steps(4);
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kApplied);
  order.id.bytes.fill(99);
  order.expires_boundary = 8;  // The next R is that of 8, decided at 9.
  acks().clear();
  group_.desk->Take(order);
  group_.Step();
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kExpired);
}

TEST_F(Desk, WhatIsHeldComesAgainUntilItExpires) {
  group_.ready[1] = false;
  model::Order order = group_.OrderFor(2, 30, {1});
  order.expires_boundary = 8;
  group_.desk->Take(order);
  group_.Steps(3);
  EXPECT_TRUE(acks().empty());
  group_.ready[1] = true;
  group_.Steps(2);
  EXPECT_EQ(group_.rank[1]->ledger().version(), 1u);
  group_.Steps(2);
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].boundary, 8u);
}

TEST_F(Desk, WhatIsHeldToTheEndExpires) {
  group_.ready[1] = false;
  group_.desk->Take(group_.OrderFor(2, 30, {1}));
  group_.Steps(20);
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kExpired);
}

TEST_F(Desk, ASecondDeliveryIsVoid) {
  model::Order order = group_.OrderFor(2, 30, {1});
  group_.desk->Take(order);
  group_.Steps(2);
  order.id.bytes.fill(77);
  group_.desk->Take(order);
  group_.Step();
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kVoid);
  EXPECT_EQ(acks()[0].order_id, order.id);
}

TEST_F(Desk, AnotherHistoryEndsAllOrders) {
  const model::Order first = group_.OrderFor(2, 30, {1}), second = group_.OrderFor(3, 35, {6});
  group_.desk->Take(first);
  group_.Steps(2);  // Applied, not confirmed.
  group_.desk->Take(second);
  for (auto& rank : group_.rank) rank->NewEpoch(nullptr);
  group_.desk->NewEpoch();
  group_.Steps(5);
  ASSERT_EQ(acks().size(), 2u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kForeign);
  EXPECT_EQ(acks()[1].outcome, AckOutcome::kForeign);
  group_.desk->Take(second);  // Of the old epoch.
  EXPECT_EQ(acks().back().outcome, AckOutcome::kForeign);
}

TEST_F(Desk, EachOrderThatDiesIsNamed) {
  for (uint8_t i = 1; i <= 5; ++i) {
    model::Order order = group_.OrderFor(2, 30, {1});
    order.id.bytes.fill(i);
    group_.desk->Take(order);
  }
  group_.desk->NewEpoch();
  ASSERT_EQ(acks().size(), 5u);
  for (uint8_t i = 1; i <= 5; ++i) EXPECT_EQ(acks()[i - 1].order_id.bytes[7], i);
}

TEST_F(Desk, RanksThatDifferAfterwardsMakeItAFailure) {
  group_.fails_to_apply[1] = true;
  group_.desk->Take(group_.OrderFor(2, 30, {1}));
  group_.Steps(4);
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kFailed);
  EXPECT_EQ(acks()[0].reason, "the ranks' states differ after it");
}

TEST_F(Desk, ALeaderThatLostTheRoundSaysFailed) {
  group_.desk->Take(group_.OrderFor(2, 30, {1}));
  group_.Step();
  group_.deaf = {0};
  group_.Step();
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kFailed);
  // What waits now expires: an unsure leader proposes nothing.
  group_.desk->Take(group_.OrderFor(3, 30, {2}));
  group_.Steps(20);
  ASSERT_EQ(acks().size(), 2u);
  EXPECT_EQ(acks()[1].outcome, AckOutcome::kExpired);
}

TEST_F(Desk, LocalModeIsSwitchedOnAndToldOnceConfirmed) {
  model::Order on;
  on.id.bytes.fill(50);
  on.where = model::ClipWhere::kLocal;
  on.tau = 30;
  group_.desk->Take(on);
  group_.Steps(2);
  EXPECT_EQ(group_.rank[1]->local().tau, 30);
  group_.Steps(2);
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kApplied);
  group_.Step();
  ASSERT_EQ(group_.desk->local_clips.size(), 1u);
  EXPECT_EQ(group_.desk->local_clips[0].applied.size(), 8u);
  EXPECT_EQ(group_.desk->local_clips[0].ledger_version_after, 1u);
  on.id.bytes.fill(51);
  on.tau = 0;
  group_.desk->Take(on);
  group_.Steps(2);
  EXPECT_FALSE(group_.rank[1]->local().on());
}

TEST_F(Desk, TauIsNeverRoundedBelowTheJobsOwn) {
  group_.settings.tau_min = 29.700000001;
  group_.desk->Take(group_.OrderFor(2, 29.700000001, {1}));
  group_.Steps(4);
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kApplied) << acks()[0].reason;
}

TEST_F(Desk, ARegisterOrderThatExpectsAnotherVersionIsVoid) {
  model::Order order = group_.OrderFor(2, 0, {});
  order.kind = model::InterventionKind::kLrScale;
  order.sets = {{0, 0.5f, 0}, {1, 0, 0}};
  order.expires_boundary = 30;
  order.id.bytes.fill(60);
  group_.desk->Take(order);
  order.id.bytes.fill(61);
  group_.desk->Take(order);
  group_.Steps(6);
  EXPECT_EQ(group_.rank[1]->registers().file().at(0).to, 0.5f);
  EXPECT_EQ(group_.rank[1]->registers().file().at(0).version, 1u);
  ASSERT_EQ(acks().size(), 2u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kVoid);
  EXPECT_EQ(acks()[0].reason, "lr_scale was set 1 times, the order expects 0");
  EXPECT_EQ(acks()[1].outcome, AckOutcome::kApplied);
  EXPECT_EQ(acks()[1].reason, "weight decay that is coupled to the rate shrinks with it");
}

TEST_F(Desk, TheLeadersKillSwitchAnswersWhatWaits) {
  group_.desk->Take(group_.OrderFor(2, 30, {1}));
  group_.desk->RefuseAll("a person stopped it");
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kRefused);
  EXPECT_EQ(acks()[0].reason, "a person stopped it");
  acks().clear();
  group_.desk->Take(group_.OrderFor(3, 30, {1}));
  group_.Step();
  group_.desk->RefuseAll("a person stopped it");  // In R already: R alone decides.
  EXPECT_TRUE(acks().empty());
  group_.Steps(3);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kApplied);
}

TEST_F(Desk, NoMoreThan64Wait) {
  for (uint8_t i = 0; i < 65; ++i) {
    model::Order order = group_.OrderFor(2, 30, {1});
    order.id.bytes.fill(i);
    group_.desk->Take(order);
  }
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].outcome, AckOutcome::kRefused);
}

// Room for three heads in R.
class CutDesk : public Desk {
 protected:
  CutDesk() : Desk({.layout = {.entries = 3}}) {}
};

TEST_F(CutDesk, WhatDoesNotFitFollowsAtTheNextBoundary) {
  const model::Order order = group_.OrderFor(2, 30, {0, 1, 2, 3, 4, 5, 6, 7});
  group_.desk->Take(order);
  group_.Steps(2);
  EXPECT_EQ(group_.rank[1]->ledger().Sparse().size(), 3u);
  group_.Steps(2);
  EXPECT_EQ(group_.rank[1]->ledger().Sparse().size(), 8u);
  EXPECT_EQ(group_.rank[1]->ledger().version(), 3u);
  group_.Steps(3);
  // Each part is told: the daemon's copy of the ledger follows version by version.
  ASSERT_EQ(acks().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(acks()[i].order_id, order.id);
    EXPECT_EQ(acks()[i].ledger_version_before, i);
    EXPECT_EQ(acks()[i].ledger_version_after, i + 1);
  }
}

// Two boundaries from the fill to the decision.
class LaggingDesk : public Desk {
 protected:
  LaggingDesk() : Desk({.lag = 2}) {}
};

TEST_F(LaggingDesk, ALagOfTwoShiftsTheEdgeOfExpiry) {
  model::Order order = group_.OrderFor(1, 30, {1});
  order.expires_boundary = 6;  // In R of 4, applied at 6.
  group_.desk->Take(order);
  group_.Steps(3);
  EXPECT_EQ(group_.rank[1]->ledger().version(), 1u);
  group_.Steps(3);
  ASSERT_EQ(acks().size(), 1u);
  EXPECT_EQ(acks()[0].boundary, 6u);
}

}  // namespace
}  // namespace gyrostat::client
