// Orders from the daemon to the weights: what is let through, what the ledger becomes, what the daemon hears.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/src/actuator.h"
#include "client/src/clip_mirror.h"
#include "unit/client/trainer_double.h"

namespace gyrostat::client {
namespace {

using model::AckOutcome;

TEST(Orders, ARightOrderIsHandedOutAndMovesTheLedger) {
  TrainerDouble t;
  t.Step({20, 60, 20, 20, 20, 20, 20, 20});
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  t.sender.Turn();
  const auto order = t.Poll();
  ASSERT_TRUE(order.has_value());
  EXPECT_STREQ(order->kind, "qk_clip");
  EXPECT_STREQ(order->intent_id, "test/1");
  EXPECT_EQ(order->local, 0);
  EXPECT_EQ(order->tau, 30);
  EXPECT_EQ(order->basis_boundary, 1u);
  ASSERT_EQ(order->q_count, 1u);
  ASSERT_EQ(order->k_count, 1u);
  EXPECT_EQ(order->q[0].layer, 0u);
  EXPECT_EQ(order->q[0].head, 1u);
  EXPECT_NEAR(order->q[0].factor * order->k[0].factor, 0.5, 1e-5) << "gamma = tau / S, half to each side";
  EXPECT_EQ(t.actuator.ledger().version(), 0u) << "only the ack moves the ledger";

  t.Ack(*order, GYRO_APPLIED);
  EXPECT_EQ(t.actuator.ledger().version(), 1u);
  EXPECT_EQ(t.actuator.ledger().At(0, 1), TicksOf(2.0));
  ASSERT_EQ(t.daemon.acks().size(), 1u);
  const model::Ack ack = t.daemon.acks()[0];
  EXPECT_EQ(ack.outcome, AckOutcome::kApplied);
  EXPECT_EQ(ack.boundary, 1u);
  EXPECT_EQ(ack.step, 1);
  EXPECT_EQ(ack.ledger_version_before, 0u);
  EXPECT_EQ(ack.ledger_version_after, 1u);
  EXPECT_EQ(ack.applied.layer, (std::vector<uint32_t>{0}));
  EXPECT_EQ(ack.applied.head, (std::vector<uint32_t>{1}));
  EXPECT_EQ(ack.applied.ticks, (std::vector<int64_t>{TicksOf(2.0)}));
  EXPECT_NE(ack.state_digest, 0u);
  EXPECT_FALSE(t.Poll().has_value());
}

TEST(Orders, TheNextReportCarriesTheLedgerOfItsOwnForward) {
  TrainerDouble t;
  t.Step({60});
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  EXPECT_EQ(t.Apply(), 1);
  t.Step({30});
  ASSERT_EQ(t.daemon.reports().size(), 2u);
  EXPECT_EQ(t.daemon.reports()[0].ledger_version, 0u);
  EXPECT_EQ(t.daemon.reports()[1].ledger_version, 1u);
  EXPECT_EQ(t.daemon.order_of_messages(), "hrar") << "the ack of a boundary comes before the next report";
}

TEST(Orders, TheSameTargetAgainIsVoidAndAnOlderOneToo) {
  TrainerDouble t;
  t.Step({60});
  model::Order first = t.Clip(1, 60, 30, 0, 1, 1), again = t.Clip(1, 60, 30, 0, 1, 2);
  model::Order smaller = t.Clip(1, 60, 40, 0, 1, 3);
  t.daemon.Send(first);
  t.daemon.Send(again);
  t.daemon.Send(smaller);
  EXPECT_EQ(t.Apply(), 1);
  ASSERT_EQ(t.daemon.acks().size(), 3u);
  EXPECT_EQ(t.daemon.acks()[1].outcome, AckOutcome::kVoid);
  EXPECT_EQ(t.daemon.acks()[2].outcome, AckOutcome::kVoid);
  EXPECT_EQ(t.daemon.acks()[2].reason, "every head already stands at or beyond its target");
  EXPECT_EQ(t.actuator.ledger().At(0, 1), TicksOf(2.0));
}

TEST(Orders, ALateOrderAddsOnlyWhatIsMissing) {
  TrainerDouble t;
  t.Step({60});
  t.Step({90});
  model::Order newer = t.Clip(2, 90, 30, 0, 1, 2);  // ln 3
  model::Order older = t.Clip(1, 60, 30, 0, 1, 1);  // ln 2
  t.daemon.Send(older);
  t.daemon.Send(newer);
  EXPECT_EQ(t.Apply(), 2);
  EXPECT_EQ(t.actuator.ledger().At(0, 1), TicksOf(3.0)) << "a join, not a product";
}

TEST(Orders, AnOrderIsJudgedUnderTheLedgerOfItsBasis) {
  TrainerDouble t;
  t.Step({60});
  const model::Order second_order = t.Clip(1, 60, 30, 1, 0, 9);
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  EXPECT_EQ(t.Apply(), 1);
  t.Step({60});
  t.daemon.Send(second_order);  // Computed before the first was applied, by the ledger of boundary 1.
  EXPECT_EQ(t.Apply(), 1);
  EXPECT_EQ(t.actuator.ledger().version(), 2u);
}

struct Wrong {
  const char* name;
  void (*spoil)(TrainerDouble*, model::Order*);
  AckOutcome outcome;
  const char* reason;
};

class WrongOrders : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongOrders, AreAnsweredAndNeverHandedOut) {
  TrainerDouble t(WithTauMin());
  t.Step({60});
  model::Order order = t.Clip(1, 60, 30, 0, 1, 1);
  GetParam().spoil(&t, &order);
  t.daemon.Send(order);
  EXPECT_EQ(t.Apply(), 0);
  ASSERT_EQ(t.daemon.acks().size(), 1u);
  EXPECT_EQ(t.daemon.acks()[0].outcome, GetParam().outcome);
  EXPECT_EQ(t.daemon.acks()[0].reason, GetParam().reason);
  EXPECT_EQ(t.daemon.acks()[0].order_id, order.id);
  EXPECT_EQ(t.actuator.ledger().version(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongOrders,
    ::testing::Values(
        Wrong{"ForeignRun", [](TrainerDouble*, model::Order* o) { o->run = "other"; }, AckOutcome::kForeign,
              "the order is for run other, this is run test"},
        Wrong{"ForeignAttempt", [](TrainerDouble*, model::Order* o) { o->attempt.bytes.fill(0xab); },
              AckOutcome::kForeign,
              "the order is for attempt abababababababababababababababab, this is attempt "
              "00112233445566778899aabbccddeeff"},
        Wrong{"ForeignEpoch", [](TrainerDouble*, model::Order* o) { o->epoch = 1; }, AckOutcome::kForeign,
              "the order is for epoch 1, the job is in epoch 0"},
        Wrong{"Expired", [](TrainerDouble*, model::Order* o) { o->expires_boundary = 0; }, AckOutcome::kExpired,
              "boundary 1 is past the order's last boundary 0"},
        Wrong{"UnknownBasis", [](TrainerDouble*, model::Order* o) { o->basis = 2; }, AckOutcome::kRefused,
              "the maxima of boundary 2 are not known here any more"},
        Wrong{"AnotherMaximum", [](TrainerDouble*, model::Order* o) { o->entries[0].reported_max = 61; },
              AckOutcome::kRefused, "head L0 H1: the order says a maximum of 61, wanted the measured 60"},
        Wrong{"BelowTauMin",
              [](TrainerDouble*, model::Order* o) {
                o->tau = 9;
                o->entries[0].target_ticks = *remedy::ClipTarget(60, 9, 0);
              },
              AckOutcome::kRefused, "tau is 9, below this job's tau_min of 10"},
        Wrong{"AnotherKind", [](TrainerDouble*, model::Order* o) { o->kind = model::InterventionKind::kLrScale; },
              AckOutcome::kRefused, "lr_scale is not on the job's allow-list, which has qk_clip"},
        Wrong{"AnUnknownKind", [](TrainerDouble*, model::Order* o) { o->kind = model::InterventionKind{255}; },
              AckOutcome::kRefused,
              "an order of a kind unknown here is not on the job's allow-list, which has qk_clip"},
        Wrong{"HeadOutOfRange", [](TrainerDouble*, model::Order* o) { o->entries[0].head = 4; }, AckOutcome::kRefused,
              "head L0 H4 is foreign, wanted layers below 2 and heads below 4"}),
    [](const ::testing::TestParamInfo<Wrong>& each) { return each.param.name; });

TEST(Orders, TauMinItselfIsAccepted) {
  TrainerDouble t(WithTauMin());
  t.Step({60});
  t.daemon.Send(t.Clip(1, 60, 10, 0, 1, 1));
  EXPECT_EQ(t.Apply(), 1);
}

// What the job did not permit, or what this client cannot do safely, by its settings.
std::string RefusalWith(Settings settings) {
  TrainerDouble t(std::move(settings));
  t.Step({60});
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  EXPECT_EQ(t.Apply(), 0);
  const auto acks = t.daemon.acks();
  EXPECT_EQ(acks.size(), 1u);
  if (acks.empty()) return "";
  EXPECT_EQ(acks[0].outcome, AckOutcome::kRefused);
  return acks[0].reason;
}

TEST(Orders, NothingIsDoneThatTheJobDidNotAllow) {
  Settings settings = SmallModel();
  settings.allow = {};
  settings.allow_qk_clip = false;
  EXPECT_EQ(RefusalWith(settings), "qk_clip is not on the job's allow-list, which has nothing");
}

TEST(Orders, MoreThanOneRankNeedsAgreement) {
  Settings settings = SmallModel();
  settings.world_size = 8;
  EXPECT_EQ(RefusalWith(settings),
            "qk_clip needs agreement of ranks, and this client has none for its world of 8 ranks");
}

TEST(Orders, LowerBoundsAndUnscaledMaximaAreNoBasis) {
  Settings settings = SmallModel();
  settings.attn_logit.kind = model::LogitKind::kSampledLower;
  EXPECT_EQ(RefusalWith(settings), "the attention maxima are of kind sampled_lower, wanted exact or lse_upper");
  settings = SmallModel();
  settings.attn_logit.scaled = false;
  EXPECT_EQ(RefusalWith(settings), "the attention maxima are unscaled, wanted what the softmax sees");
}

TEST(Orders, APerHeadQkNormTakesOneFactorForTheLayer) {
  Settings settings = SmallModel();
  settings.model.qk_norm = model::QkNorm::kPerHead;
  EXPECT_NE(RefusalWith(settings).find("wanted layer_gain"), std::string::npos) << "not from an order that means rows";
  TrainerDouble t(settings);
  t.Step({60});
  model::Order order = t.Clip(1, 60, 30, 1, 3, 1);
  order.variant = model::ClipVariant::kLayerGain;
  t.daemon.Send(order);
  t.sender.Turn();
  const auto polled = t.Poll();
  ASSERT_TRUE(polled.has_value());
  EXPECT_EQ(polled->q_count, 4u);
  ASSERT_EQ(polled->k_count, 1u);
  EXPECT_EQ(polled->k[0].head, 0u);
  t.Ack(*polled, GYRO_APPLIED);
  EXPECT_EQ(t.daemon.acks()[0].applied.head, (std::vector<uint32_t>{0, 1, 2, 3}));
}

TEST(Orders, GroupMinChargesTheWholeGroup) {
  Settings settings = SmallModel();
  settings.model.attention = model::Attention::kGqa;
  settings.model.kv_heads = 2;
  TrainerDouble t(settings);
  t.Step({60});
  model::Order order = t.Clip(1, 60, 30, 1, 3, 1);
  order.variant = model::ClipVariant::kGroupMin;
  t.daemon.Send(order);
  t.sender.Turn();
  const auto polled = t.Poll();
  ASSERT_TRUE(polled.has_value());
  EXPECT_EQ(polled->q_count, 2u);
  ASSERT_EQ(polled->k_count, 1u);
  EXPECT_EQ(polled->k[0].head, 1u) << "key heads are counted on their own";
  t.Ack(*polled, GYRO_APPLIED);
  EXPECT_EQ(t.daemon.acks()[0].applied.head, (std::vector<uint32_t>{2, 3}));
}

TEST(Orders, ExpiryCountsBoundariesToTheVeryEdge) {
  for (const auto& [extra_steps, outcome] :
       std::vector<std::pair<int, AckOutcome>>{{15, AckOutcome::kApplied}, {16, AckOutcome::kExpired}}) {
    TrainerDouble t;
    t.Step({60});
    model::Order order = t.Clip(1, 60, 30, 0, 1, 1);
    order.expires_boundary = 16;
    t.daemon.Send(order);
    t.sender.Turn();  // The sender lets it through at boundary 1; the training thread polls later.
    for (int i = 0; i < extra_steps; ++i) t.Step({60});
    EXPECT_EQ(t.Apply(), outcome == AckOutcome::kApplied ? 1 : 0);
    ASSERT_EQ(t.daemon.acks().size(), 1u);
    EXPECT_EQ(t.daemon.acks()[0].outcome, outcome) << "after " << 1 + extra_steps << " boundaries";
  }
}

TEST(Orders, AMeasurementIsABasisFor64Boundaries) {
  for (const auto& [steps_after, known] : std::vector<std::pair<int, bool>>{{63, true}, {64, false}}) {
    TrainerDouble t;
    t.Step({60});
    for (int i = 0; i < steps_after; ++i) t.Step({20});
    model::Order order = t.Clip(1, 60, 30, 0, 1, 1);
    order.expires_boundary = 1000;
    t.daemon.Send(order);
    EXPECT_EQ(t.Apply(), known ? 1 : 0) << steps_after;
  }
}

TEST(Orders, TheTrainersRefusalIsToldWithItsReason) {
  TrainerDouble t;
  t.Step({60});
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  t.sender.Turn();
  t.Ack(*t.Poll(), GYRO_REFUSED, "the projection is frozen");
  ASSERT_EQ(t.daemon.acks().size(), 1u);
  EXPECT_EQ(t.daemon.acks()[0].outcome, AckOutcome::kRefused);
  EXPECT_EQ(t.daemon.acks()[0].reason, "the projection is frozen");
  EXPECT_EQ(t.actuator.ledger().version(), 0u);
}

TEST(Orders, AFailureEndsAllOrderingOfTheEpoch) {
  TrainerDouble t;
  t.Step({60});
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  t.daemon.Send(t.Clip(1, 60, 30, 0, 2, 2));  // Passed on already when the first fails.
  t.sender.Turn();
  t.Ack(*t.Poll(), GYRO_FAILED, "out of memory half way");
  EXPECT_EQ(t.error(),
            "an order failed while it was applied: no more orders are taken before weights and state are restored");
  EXPECT_EQ(t.Apply(), 0);
  t.daemon.Send(t.Clip(1, 60, 30, 0, 3, 3));
  EXPECT_EQ(t.Apply(), 0);
  const auto acks = t.daemon.acks();
  ASSERT_EQ(acks.size(), 3u);
  EXPECT_EQ(acks[0].outcome, AckOutcome::kFailed);
  EXPECT_EQ(acks[0].reason, "out of memory half way");
  for (int i : {1, 2}) {
    EXPECT_EQ(acks[i].outcome, AckOutcome::kRefused);
    EXPECT_EQ(acks[i].reason,
              "an earlier order failed: no more orders are taken before weights and state are restored");
  }
}

TEST(Orders, AfterAFailureANewEpochTakesOrdersAgain) {
  TrainerDouble t;
  t.Step({60});
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  t.sender.Turn();
  t.Ack(*t.Poll(), GYRO_FAILED, "torn");
  EXPECT_EQ(t.actuator.NewEpoch(t.Here(), nullptr), GYRO_OK);  // The trainer has restored its weights.
  EXPECT_EQ(t.Apply(), 0);
  t.Step({60});
  t.daemon.Send(t.Clip(2, 60, 30, 0, 2, 2));
  EXPECT_EQ(t.Apply(), 1);
  EXPECT_EQ(t.daemon.acks().back().outcome, AckOutcome::kApplied) << t.daemon.acks().back().reason;
}

TEST(Orders, AnOrderWithoutAnAckBeforeTheNextStepHasFailed) {
  TrainerDouble t;
  t.Step({60});
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  t.sender.Turn();
  ASSERT_TRUE(t.Poll().has_value());
  gyro_order second{};
  second.struct_size = sizeof(second);
  EXPECT_EQ(t.actuator.Poll(t.Here(), &second), GYRO_STATE) << "one at a time";
  t.Step({60});
  ASSERT_EQ(t.daemon.acks().size(), 1u);
  EXPECT_EQ(t.daemon.acks()[0].outcome, AckOutcome::kFailed);
  EXPECT_EQ(t.daemon.acks()[0].reason, "the next step began without an ack: what became of the weights is not known");
}

TEST(Orders, AnAckOfAnUnknownIdIsAStateError) {
  TrainerDouble t;
  t.Step({60});
  gyro_order order{};
  EXPECT_EQ(t.Ack(order, GYRO_APPLIED), GYRO_STATE);
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  t.sender.Turn();
  ASSERT_TRUE(t.Poll().has_value());
  EXPECT_EQ(t.Ack(order, GYRO_APPLIED), GYRO_STATE) << "an id of zeros is not the open order's";
}

TEST(Orders, TheSameOrderTwiceIsAnsweredTwiceAndAppliedOnce) {
  TrainerDouble t;
  t.Step({60});
  const model::Order order = t.Clip(1, 60, 30, 0, 1, 1);
  t.daemon.Send(order);
  t.daemon.Send(order);  // Before the first is answered: one is enough.
  EXPECT_EQ(t.Apply(), 1);
  EXPECT_EQ(t.daemon.acks().size(), 1u);
  t.daemon.Send(order);  // After: its ack may have been lost.
  EXPECT_EQ(t.Apply(), 0);
  ASSERT_EQ(t.daemon.acks().size(), 2u);
  EXPECT_EQ(t.daemon.acks()[1].outcome, AckOutcome::kApplied);
  EXPECT_EQ(t.daemon.acks()[1].order_id, order.id);
  EXPECT_EQ(t.actuator.ledger().version(), 1u);
}

TEST(Orders, MoreThanFitWaitForNoPoll) {
  TrainerDouble t;
  t.Step({60});
  for (size_t i = 0; i < kOrdersQueued + 1; ++i) t.daemon.Send(t.Clip(1, 60, 30, 0, 1, static_cast<uint8_t>(i + 1)));
  for (int i = 0; i < 3; ++i) t.sender.Turn();
  ASSERT_EQ(t.daemon.acks().size(), 1u);
  EXPECT_EQ(t.daemon.acks()[0].outcome, AckOutcome::kRefused);
  EXPECT_EQ(t.daemon.acks()[0].reason, "64 orders wait already for the trainer to poll them");
}

TEST(Orders, ANewEpochVoidsWhatWasOpenAndStartsFromZero) {
  TrainerDouble t;
  t.Step({60});
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  EXPECT_EQ(t.Apply(), 1);
  t.daemon.Send(t.Clip(1, 60, 30, 0, 2, 2));
  t.daemon.Send(t.Clip(1, 60, 30, 0, 3, 3));
  t.sender.Turn();
  ASSERT_TRUE(t.Poll().has_value());
  EXPECT_EQ(t.actuator.NewEpoch(t.Here(), nullptr), GYRO_OK);
  EXPECT_EQ(t.actuator.epoch(), 1u);
  EXPECT_EQ(t.actuator.ledger().version(), 0u);
  EXPECT_EQ(t.Apply(), 0) << "the third order is of the old epoch";
  const auto hellos = t.daemon.hellos();
  ASSERT_EQ(hellos.size(), 2u) << "a new epoch is told by the hello of a new stream";
  EXPECT_EQ(hellos[1].epoch, 1u);
  EXPECT_EQ(hellos[1].ledger.size(), 0u);
  ASSERT_GE(hellos[1].last_outcomes.size(), 2u);
  EXPECT_EQ(hellos[1].last_outcomes[0].outcome, AckOutcome::kApplied);
  EXPECT_EQ(hellos[1].last_outcomes[1].outcome, AckOutcome::kVoid);
  const auto acks = t.daemon.acks();
  EXPECT_EQ(acks.back().outcome, AckOutcome::kForeign);
  t.Step({60});
  EXPECT_EQ(t.daemon.reports().back().epoch, 1u);
  t.daemon.Send(t.Clip(2, 60, 30, 0, 1, 4));
  EXPECT_EQ(t.Apply(), 1);
}

TEST(Orders, ABasisOfTheOldEpochIsNotKnownInTheNew) {
  TrainerDouble t;
  t.Step({60});
  t.actuator.NewEpoch(t.Here(), nullptr);
  t.sender.Turn();
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  EXPECT_EQ(t.Apply(), 0);
  ASSERT_EQ(t.daemon.acks().size(), 1u);
  EXPECT_EQ(t.daemon.acks()[0].reason, "the maxima of boundary 1 are not known here any more");
}

TEST(Orders, ARestoredLedgerIsTheLedger) {
  TrainerDouble t;
  t.Step({60});
  auto state = std::make_unique<RestoredState>();
  state->ledger_version = 41;
  state->ledger.layer = {0};
  state->ledger.head = {1};
  state->ledger.ticks = {12345};
  model::OrderId old;
  old.bytes.fill(0x77);
  state->outcomes = {{old, AckOutcome::kApplied}};
  EXPECT_EQ(t.actuator.NewEpoch(t.Here(), std::move(state)), GYRO_OK);
  t.sender.Turn();
  const model::Hello hello = t.daemon.hellos().back();
  EXPECT_EQ(hello.ledger_version, 41u);
  EXPECT_EQ(hello.ledger.ticks, (std::vector<int64_t>{12345}));
  ASSERT_EQ(hello.last_outcomes.size(), 1u);
  EXPECT_EQ(hello.last_outcomes[0].order_id, old);
  t.Step({60});
  t.daemon.Send(t.Clip(2, 60, 30, 0, 1, 1));
  EXPECT_EQ(t.Apply(), 1);
  EXPECT_EQ(t.actuator.ledger().At(0, 1), 12345 + TicksOf(2.0));
  EXPECT_EQ(t.daemon.acks().back().ledger_version_after, 42u);
}

TEST(Orders, AStateThatDoesNotFitChangesNothing) {
  TrainerDouble t;
  t.Step({60});
  auto state = std::make_unique<RestoredState>();
  state->ledger.layer = {2};
  state->ledger.head = {0};
  state->ledger.ticks = {1};
  EXPECT_EQ(t.actuator.NewEpoch(t.Here(), std::move(state)), GYRO_INVALID);
  EXPECT_EQ(t.actuator.epoch(), 0u);
}

}  // namespace
}  // namespace gyrostat::client
