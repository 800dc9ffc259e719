#include "client/src/agreement/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "support/rank_group.h"

namespace gyrostat::client {
namespace {

using testing::kGroupHeads;
using testing::RankGroup;

// A clip of one head from the maxima of `basis`, as the leader would write it for R of `put_in`.
Proposal ClipOf(float measured, float tau, uint32_t what, uint32_t age) {
  Proposal p;
  p.tag = {{1, 2, 3}};
  p.kind = ProposalKind::kClip;
  p.tau = tau;
  p.split = 0.5f;
  p.entries = {{what, static_cast<float>(*Agreement::Excess(measured, tau)), age}};
  return p;
}

// Puts `p` into the R of boundary 3 and returns what was decided at boundary 4.
Action DecidedOn(RankGroup* group, const Proposal& p) {
  while (group->boundary < 2) group->Step();
  group->next = &p;
  group->Step();
  return group->Step();
}

TEST(Agreement, AllRanksApplyAtTheNextBoundary) {
  RankGroup group(4);
  group.maxima[5] = 60;
  const Proposal p = ClipOf(60, 30, 5, 1);
  const Action action = DecidedOn(&group, p);
  EXPECT_EQ(action.verdict, Verdict::kApply);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(group.rank[i]->ledger().At(1, 1), remedy::LnTicks(2));
    EXPECT_EQ(group.actions[i].verdict, Verdict::kApply);
    ASSERT_EQ(group.actions[i].plan.q.size(), 1u);
    EXPECT_EQ(group.actions[i].plan.q[0].factor, group.actions[0].plan.q[0].factor);
  }
  EXPECT_TRUE(group.IsEqual());
}

TEST(Agreement, TheForwardThatRanBeforeAClipIsReadUnderItsOwnLedger) {
  RankGroup group(2);
  group.maxima[5] = 60;
  const Proposal p = ClipOf(60, 30, 5, 1);
  DecidedOn(&group, p);  // Applied at boundary 4, whose own forward still measured 60.
  const Proposal again = ClipOf(60, 30, 5, 1);  // Basis 4.
  group.next = &again;
  group.Step();
  EXPECT_EQ(group.Step().verdict, Verdict::kVoid);
  EXPECT_EQ(group.rank[0]->ledger().At(1, 1), remedy::LnTicks(2));
}

TEST(Agreement, OneRankThatIsNotReadyHoldsAll) {
  RankGroup group(3);
  group.maxima[5] = 60;
  group.ready[2] = false;
  const Action action = DecidedOn(&group, ClipOf(60, 30, 5, 1));
  EXPECT_EQ(action.verdict, Verdict::kHeld);
  EXPECT_EQ(action.reason, "a rank is not ready");
  EXPECT_EQ(group.rank[0]->ledger().version(), 0u);
  group.ready[2] = true;
  const Proposal p = ClipOf(60, 30, 5, 1);
  group.next = &p;
  group.Step();
  EXPECT_EQ(group.Step().verdict, Verdict::kApply);
}

TEST(Agreement, HoldingForEverIsForEver) {
  RankGroup group(2);
  group.rank[1]->HoldForEver("weights of layer 1 are not bound");
  group.maxima[5] = 60;
  EXPECT_EQ(DecidedOn(&group, ClipOf(60, 30, 5, 1)).verdict, Verdict::kHeld);
  EXPECT_EQ(group.rank[1]->trouble(), "weights of layer 1 are not bound");
  for (auto& rank : group.rank) rank->NewEpoch(nullptr);
  group.Steps(3);
  EXPECT_EQ(group.rank[0]->trouble(), "a rank is not ready");
  EXPECT_EQ(group.rank[1]->trouble(), "weights of layer 1 are not bound");
}

TEST(Agreement, UnequalRegistersHoldAllThoughWeightsAreEqual) {
  RankGroup group(3);
  group.maxima[5] = 60;
  for (auto& rank : group.rank) rank->Observe(0, 2);
  group.rank[1]->Observe(0, 2.5f);
  const Action action = DecidedOn(&group, ClipOf(60, 30, 5, 1));
  EXPECT_EQ(action.verdict, Verdict::kHeld);
  EXPECT_EQ(action.reason, "the ranks' states differ");
}

TEST(Agreement, UnequalBoundsHoldAll) {
  RankGroup group(2);
  Settings other = group.settings;
  other.tau_min = 5;
  AgreementTerms terms = group.rank[0]->terms();
  group.rank[1] = std::make_unique<Agreement>(&other, terms, group.attempt);
  group.maxima[5] = 60;
  EXPECT_EQ(DecidedOn(&group, ClipOf(60, 30, 5, 1)).reason, "the ranks' states differ");
}

TEST(Agreement, RanksThatWouldJudgeARayDifferentlyHold) {
  RankGroup group(2);
  group.Steps(3);
  EXPECT_EQ(group.rank[0]->trouble(), "");
  Settings other = group.settings;
  other.model.schedule_peak = 1e-3;
  group.rank[1] = std::make_unique<Agreement>(&other, group.rank[0]->terms(), group.attempt);
  group.Steps(2);
  EXPECT_EQ(group.rank[0]->trouble(), "the ranks' states differ");
}

TEST(Agreement, RanksAtDifferentBoundariesHold) {
  RankGroup group(2);
  group.Steps(2);
  std::vector<float>& lanes = group.rounds[2];
  lanes[LaneLayout::kBoundary] += 1;
  group.Step();
  EXPECT_EQ(group.rank[0]->trouble(), "the ranks stand at different boundaries");
}

TEST(Agreement, WhatWasPutInBeforeAnotherHistoryDies) {
  RankGroup group(3);
  group.maxima[5] = 60;
  group.Steps(2);
  const Proposal p = ClipOf(60, 30, 5, 1);
  group.next = &p;
  group.Step();
  for (auto& rank : group.rank) EXPECT_TRUE(rank->NewEpoch(nullptr));
  EXPECT_EQ(group.Step().verdict, Verdict::kForeign);
  // Nor is what the old epoch measured a basis of the new.
  const Proposal late = ClipOf(60, 30, 5, 3);
  group.next = &late;
  group.Step();
  const Action action = group.Step();
  EXPECT_EQ(action.verdict, Verdict::kRefused);
  EXPECT_EQ(action.reason, "the maxima of boundary 2 are not known here any more");
}

TEST(Agreement, RefusesWhatIsNotRight) {
  const auto reason = [](auto change) {
    RankGroup group(2);
    group.settings.tau_min = 20;
    group.rank.clear();
    for (int i = 0; i < 2; ++i) {
      AgreementTerms terms{.layout = {.statistics = 8}};
      group.rank.push_back(std::make_unique<Agreement>(&group.settings, terms, group.attempt));
    }
    group.desk = std::make_unique<LeaderDesk>(group.rank[0].get());
    group.maxima[5] = 60;
    group.maxima[6] = 25;
    group.maxima[7] = std::nanf("");
    Proposal p = ClipOf(60, 30, 5, 1);
    change(&p);
    const Action action = DecidedOn(&group, p);
    EXPECT_EQ(action.verdict, Verdict::kRefused);
    EXPECT_EQ(group.rank[0]->ledger().version() + group.rank[1]->ledger().version(), 0u);
    EXPECT_EQ(group.actions[1].reason, action.reason);
    return action.reason;
  };
  EXPECT_EQ(reason([](Proposal* p) { p->entries[0].value += 1; }),
            "head L1 H1: the excess is another than basis, tau and maximum give");
  EXPECT_EQ(reason([](Proposal* p) { p->entries[0].stamp = 2, p->entries[0].value -= 1; }),
            "head L1 H1: the excess is another than basis, tau and maximum give");
  EXPECT_EQ(reason([](Proposal* p) { p->entries[0].what = 6; }),
            "head L1 H2: its maximum at the basis is not finite, or not above tau");
  EXPECT_EQ(reason([](Proposal* p) { p->entries[0].what = 7; }),
            "head L1 H3: its maximum at the basis is not finite, or not above tau");
  EXPECT_EQ(reason([](Proposal* p) { p->entries[0].what = 8; }),
            "the order names a head that the model does not have");
  EXPECT_EQ(reason([](Proposal* p) { p->entries.push_back(p->entries[0]); }),
            "head L1 H1 is out of order or named twice");
  EXPECT_EQ(reason([](Proposal* p) { p->entries.clear(); }), "the order names no head, wanted at least one");
  EXPECT_EQ(reason([](Proposal* p) { p->tau = 19; }), "tau is 19, below this job's tau_min of 20");
  EXPECT_EQ(reason([](Proposal* p) { p->split = 0.25f; }), "split is 0.25, wanted 0.5");
  EXPECT_EQ(reason([](Proposal* p) { p->entries[0].stamp = 4; }), "head L1 H1: its basis is before the first boundary");
  EXPECT_EQ(reason([](Proposal* p) {
              p->intervention = model::InterventionKind::kHalt;
              p->kind = ProposalKind::kRegisters;
            }),
            "halt is not on the job's allow-list");
}

TEST(Agreement, ABasisOfBadInputIsNone) {
  RankGroup group(2);
  group.maxima[5] = 60;
  group.usable[1] = false;
  EXPECT_EQ(DecidedOn(&group, ClipOf(60, 30, 5, 1)).reason, "the maxima of boundary 2 are not known here any more");
}

TEST(Agreement, ABasisLives64Boundaries) {
  for (const uint32_t age : {62u, 63u}) {
    RankGroup group(2);
    group.maxima[5] = 60;
    group.Steps(69);
    const Proposal p = ClipOf(60, 30, 5, age);
    group.next = &p;
    group.Step();
    EXPECT_EQ(group.Step().verdict, age == 62 ? Verdict::kApply : Verdict::kRefused) << age;
  }
}

TEST(Agreement, ARegisterIsSetOnceAndFoundChangedAfter) {
  RankGroup group(3);
  Proposal p;
  p.tag = {{4, 5, 6}};
  p.kind = ProposalKind::kRegisters;
  p.intervention = model::InterventionKind::kLrScale;
  p.entries = {{0, 0.25f, 0}, {1, 90, 0}};
  EXPECT_EQ(DecidedOn(&group, p).verdict, Verdict::kApply);
  EXPECT_EQ(group.rank[2]->registers().file().at(0).to, 0.25f);
  EXPECT_EQ(group.rank[2]->Rate(1, 5), 0.25);
  EXPECT_TRUE(group.IsEqual());
  const Proposal again = p;
  group.next = &again;
  group.Step();
  EXPECT_EQ(group.Step().verdict, Verdict::kVoid);
  Proposal outside = p;
  outside.entries = {{0, 1.5f, 1}, {1, 0, 1}};
  group.next = &outside;
  group.Step();
  EXPECT_EQ(group.Step().reason, "lr_scale is 1.5, wanted 0.00999999978 to 1");
}

TEST(Agreement, LocalModeClipsFromTheLastRoundEverywhere) {
  RankGroup group(3);
  Proposal on;
  on.tag = {{7, 7, 7}};
  on.kind = ProposalKind::kRegisters;
  on.tau = 30;
  on.split = 0.5f;
  on.entries = {{0, 30, 0}};
  EXPECT_EQ(DecidedOn(&group, on).verdict, Verdict::kApply);
  EXPECT_EQ(group.rank[1]->local().tau, 30);
  group.maxima[2] = 60;
  group.Step();
  group.maxima[2] = 10;
  const Action& action = group.Step();
  EXPECT_TRUE(action.local);
  EXPECT_EQ(action.verdict, Verdict::kNone);
  EXPECT_EQ(group.rank[2]->ledger().At(0, 2), remedy::LnTicks(2));
  EXPECT_TRUE(group.IsEqual());
  // Under the ledger of that forward: what one boundary later still shows 60 was measured before the clip.
  EXPECT_FALSE(group.Step().local);
}

TEST(Agreement, AnActionIsConfirmedByTheRoundAfter) {
  RankGroup group(2);
  group.maxima[5] = 60;
  DecidedOn(&group, ClipOf(60, 30, 5, 1));
  EXPECT_TRUE(group.rank[0]->confirmations().empty());
  group.Step();  // Reads R of the boundary that applied: alpha in it was read back before.
  EXPECT_TRUE(group.rank[0]->confirmations().empty());
  group.Step();
  ASSERT_EQ(group.rank[0]->confirmations().size(), 1u);
  EXPECT_TRUE(group.rank[0]->confirmations()[0].equal);
  EXPECT_EQ(group.rank[0]->confirmations()[0].applied_at, 4u);
  EXPECT_EQ(group.rank[0]->confirmations()[0].tag, (OrderTag{{1, 2, 3}}));
}

TEST(Agreement, ARankThatFailedToApplyIsUnsureAndHoldsAll) {
  RankGroup group(3);
  group.maxima[5] = 60;
  group.fails_to_apply[1] = true;
  DecidedOn(&group, ClipOf(60, 30, 5, 1));
  EXPECT_TRUE(group.rank[1]->unsure());
  EXPECT_EQ(group.rank[1]->trouble(), "what was agreed on could not be applied here: no memory");
  group.Steps(2);
  ASSERT_EQ(group.rank[0]->confirmations().size(), 1u);
  EXPECT_FALSE(group.rank[0]->confirmations()[0].equal);
  const Proposal p = ClipOf(60, 30, 5, 1);
  group.next = &p;
  group.Step();
  EXPECT_EQ(group.Step().verdict, Verdict::kHeld);
  // The trainer has copied the weights of one rank to the others.
  for (auto& rank : group.rank) rank->NewEpoch(nullptr);
  EXPECT_FALSE(group.rank[1]->unsure());
  group.Steps(2);
  EXPECT_EQ(group.rank[0]->trouble(), "");
}

TEST(Agreement, ACollectiveThatFailedOnOneRankLeavesItUnsure) {
  RankGroup group(3);
  group.maxima[5] = 60;
  group.Steps(2);
  const Proposal p = ClipOf(60, 30, 5, 1);
  group.next = &p;
  group.Step();
  group.deaf = {2};
  group.Step();
  EXPECT_TRUE(group.rank[2]->unsure());
  EXPECT_EQ(group.rank[2]->ledger().version(), 0u);
  EXPECT_EQ(group.rank[0]->ledger().version(), 1u);
  group.Steps(2);
  EXPECT_EQ(group.rank[0]->trouble(), "the ranks' states differ");
  EXPECT_FALSE(group.rank[0]->confirmations()[0].equal);
}

TEST(Agreement, LanesThatAreNotTheRanksOwnAreUnsure) {
  RankGroup group(2);
  group.Steps(2);
  for (float& lane : group.rounds[2]) lane = 0;
  group.Step();
  EXPECT_TRUE(group.rank[0]->unsure());
  EXPECT_EQ(group.rank[0]->trouble(), "the collective gave back another word than this rank put in");
}

TEST(Agreement, AStateThatIsLoadedIsEqualEverywhere) {
  RankGroup group(2);
  group.maxima[5] = 60;
  DecidedOn(&group, ClipOf(60, 30, 5, 1));
  RestoredState state;
  state.boundary = 4;
  state.ledger_version = group.rank[1]->ledger().version();
  state.ledger = group.rank[1]->ledger().Sparse();
  state.outcomes = group.rank[1]->Outcomes();
  ASSERT_EQ(state.outcomes.size(), 1u);
  EXPECT_EQ(state.outcomes[0].second, model::AckOutcome::kApplied);
  for (auto& rank : group.rank) ASSERT_TRUE(rank->NewEpoch(&state));
  EXPECT_EQ(group.rank[0]->ledger().At(1, 1), remedy::LnTicks(2));
  EXPECT_EQ(group.rank[0]->epoch(), 1u);
  group.Steps(3);
  EXPECT_EQ(group.rank[0]->trouble(), "");
  state.registers = {{.id = 9}};
  const uint64_t before = group.rank[0]->digest();
  EXPECT_FALSE(group.rank[0]->NewEpoch(&state));
  EXPECT_EQ(group.rank[0]->digest(), before);
}

TEST(Agreement, TheDigestOfTheLedgerIsTheSameHoweverItCameAbout) {
  RankGroup group(1);
  group.maxima[5] = 60;
  DecidedOn(&group, ClipOf(60, 30, 5, 1));
  EXPECT_EQ(LedgerHash(group.rank[0]->ledger()).value() == 0, false);
  const uint64_t incremental = group.rank[0]->digest();
  RestoredState state;
  state.ledger_version = 1;
  state.ledger = group.rank[0]->ledger().Sparse();
  RankGroup other(1);
  other.rank[0]->NewEpoch(&state);
  group.rank[0]->NewEpoch(&state);
  EXPECT_EQ(other.rank[0]->digest(), group.rank[0]->digest());
  EXPECT_NE(incremental, group.rank[0]->digest());  // Another epoch.
}

// Both ranks join again after the boundary that they stand at, as gyro_rejoin does it.
void JoinAgain(RankGroup* group, std::vector<Passage> brought) {
  model::Boundary last = 0;
  for (const Passage& each : brought) last = std::max(last, each.boundary);
  for (size_t i = 0; i < brought.size(); ++i) {
    auto renewed = std::make_unique<Agreement>(&group->settings, group->rank[i]->terms(), group->attempt);
    std::string why;
    ASSERT_TRUE(renewed->GoOn(&brought[i], 5, last, &why)) << why;
    if (i == 0) group->desk = std::make_unique<LeaderDesk>(renewed.get());
    group->rank[i] = std::move(renewed);
  }
  group->boundary = last;
}

// What is decided on an order of the first boundaries after a join.
Action DecidedAfterJoin(RankGroup* group, std::vector<Passage> brought) {
  JoinAgain(group, std::move(brought));
  group->maxima[5] = 60;
  group->Steps(2);
  const Proposal p = ClipOf(60, 30, 5, 1);
  group->next = &p;
  group->Step();
  return group->Step();
}

std::vector<Passage> Leaving(const RankGroup& group) {
  std::vector<Passage> brought;
  for (const auto& rank : group.rank) brought.push_back(rank->Leave(group.boundary));
  return brought;
}

TEST(Agreement, RanksThatJoinAgainKeepWhatTheyHaveInANewEpoch) {
  RankGroup group(2);
  group.maxima[5] = 60;
  DecidedOn(&group, ClipOf(60, 30, 5, 1));
  EXPECT_EQ(DecidedAfterJoin(&group, Leaving(group)).verdict, Verdict::kApply);
  EXPECT_EQ(group.rank[0]->epoch(), 5u);
  EXPECT_EQ(group.rank[0]->ledger().At(1, 1), 2 * remedy::LnTicks(2));
  EXPECT_TRUE(group.IsEqual());
}

TEST(Agreement, ANewRankHoldsAllUntilAStateIsLoadedThoughNothingWasEverApplied) {
  RankGroup group(2);
  group.Steps(3);
  std::vector<Passage> brought = Leaving(group);
  brought[1] = {};
  const Action action = DecidedAfterJoin(&group, std::move(brought));
  EXPECT_EQ(action.verdict, Verdict::kHeld);
  EXPECT_TRUE(group.IsEqual());  // So that the digest alone would not have held them.
  EXPECT_EQ(group.rank[1]->trouble(), "this rank is new among the others: all must load one state first");
  // A second join makes it no older.
  EXPECT_EQ(DecidedAfterJoin(&group, Leaving(group)).verdict, Verdict::kHeld);
  for (auto& rank : group.rank) rank->NewEpoch(nullptr);
  group.Steps(2);
  const Proposal p = ClipOf(60, 30, 5, 1);
  group.next = &p;
  group.Step();
  EXPECT_EQ(group.Step().verdict, Verdict::kApply);
}

TEST(Agreement, ARankThatWasUnsureIsUnsureAfterAJoin) {
  RankGroup group(2);
  group.Steps(3);
  for (auto& rank : group.rank) rank->Failed("no memory");  // Each may have changed another half of its weights.
  EXPECT_EQ(DecidedAfterJoin(&group, Leaving(group)).verdict, Verdict::kHeld);
  EXPECT_TRUE(group.rank[0]->unsure());
  EXPECT_EQ(group.rank[0]->trouble(), "what was agreed on could not be applied here: no memory");
}

TEST(Agreement, ARankThatMissedABoundaryHoldsAllUntilAStateIsLoaded) {
  RankGroup group(2);
  group.Steps(3);
  std::vector<Passage> brought = Leaving(group);
  --brought[1].boundary;
  EXPECT_EQ(DecidedAfterJoin(&group, std::move(brought)).verdict, Verdict::kHeld);
  EXPECT_EQ(group.rank[1]->trouble(),
            "this rank has missed boundary 3, which others passed: all must load one state first");
}

}  // namespace
}  // namespace gyrostat::client
