// Local mode: the client clips at the boundary that measured, and tells in its next report. Also what holds when local
// and remote clips mix.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "client/src/actuator.h"
#include "unit/client/trainer_double.h"

namespace gyrostat::client {
namespace {

using model::AckOutcome;

TEST(LocalClips, AreAppliedAtTheBoundaryThatMeasuredAndToldInTheNextReport) {
  TrainerDouble t;
  t.Step({60, 20, 20, 20, 20, 20, 20, 20});
  t.daemon.Send(t.Local(30, 1));
  EXPECT_EQ(t.Apply(), 0) << "the boundary that turns it on has had its local turn";
  ASSERT_EQ(t.daemon.acks().size(), 1u);
  EXPECT_EQ(t.daemon.acks()[0].outcome, AckOutcome::kApplied);
  EXPECT_EQ(t.daemon.acks()[0].applied.size(), 0u);

  t.Step({60, 20, 20, 45, 20, 20, 20, 20});
  const auto order = t.Poll();
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->local, 1);
  EXPECT_EQ(order->q_count, 2u);
  EXPECT_EQ(order->basis_boundary, 2u);
  t.Ack(*order, GYRO_APPLIED);
  EXPECT_EQ(t.actuator.ledger().At(0, 0), TicksOf(2.0));
  EXPECT_EQ(t.actuator.ledger().At(0, 3), TicksOf(1.5));
  EXPECT_FALSE(t.Poll().has_value()) << "once a boundary";

  t.Step({20});
  const model::LocalClips clips = t.daemon.reports().back().local_clips;
  EXPECT_EQ(clips.boundary, 2u);
  EXPECT_EQ(clips.ledger_version_before, 0u);
  EXPECT_EQ(clips.ledger_version_after, 1u);
  EXPECT_EQ(clips.applied.head, (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(clips.applied.ticks, (std::vector<int64_t>{TicksOf(2.0), TicksOf(1.5)}));
  EXPECT_EQ(t.daemon.acks().size(), 1u) << "local clips are no acks";
}

TEST(LocalClips, LeaveHeadsAloneThatAreNotFiniteOrAbsentOrAtTau) {
  TrainerDouble t;
  t.daemon.Send(t.Local(30, 1));
  t.Step({20});
  t.Apply();
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  t.Step({nan, inf, model::kAbsent, 30, -inf, 29, 0, -60});
  EXPECT_FALSE(t.Poll().has_value());
}

TEST(LocalClips, WithoutAMasterNothingInsideTheDeadBandIsClipped) {
  Settings settings = SmallModel();
  settings.model.master_fp32 = false;
  TrainerDouble t(settings);
  t.daemon.Send(t.Local(30, 1));
  t.Step({20});
  t.Apply();
  t.Step({30.5f});  // Below 1.02 tau.
  EXPECT_FALSE(t.Poll().has_value());
  t.Step({30.7f});
  EXPECT_TRUE(t.Poll().has_value());
}

TEST(LocalClips, GoOnWhileTheDaemonIsAway) {
  TrainerDouble t;
  t.daemon.Send(t.Local(30, 1));
  t.Step({20});
  t.Apply();
  t.daemon.GoDown();
  t.Step({60});
  EXPECT_EQ(t.Apply(), 1);
  t.Step({60});
  EXPECT_EQ(t.Apply(), 1);
  EXPECT_EQ(t.actuator.ledger().At(1, 3), 2 * TicksOf(2.0));
  t.daemon.GoUp();
  t.sender.Turn();
  const model::Hello hello = t.daemon.hellos().back();
  EXPECT_EQ(hello.ledger_version, 2u);
  EXPECT_EQ(hello.ledger.size(), 8u);
}

TEST(LocalClips, MixWithRemoteOrdersOfTheSameBoundary) {
  TrainerDouble t;
  t.daemon.Send(t.Local(30, 1));
  t.Step({20});
  t.Apply();
  t.Step({60});
  t.daemon.Send(t.Clip(2, 60, 20, 0, 1, 2));  // A lower tau: asks for ln 3 where local asks for ln 2.
  t.sender.Turn();
  EXPECT_EQ(t.Apply(), 2);
  EXPECT_EQ(t.actuator.ledger().At(0, 1), TicksOf(3.0));
  EXPECT_EQ(t.actuator.ledger().At(0, 0), TicksOf(2.0));
  EXPECT_EQ(t.daemon.acks().back().outcome, AckOutcome::kApplied);
  EXPECT_EQ(t.daemon.acks().back().applied.ticks, (std::vector<int64_t>{TicksOf(3.0) - TicksOf(2.0)}));
}

TEST(LocalClips, StopWithTauZeroAndAreRefusedBelowTauMin) {
  TrainerDouble t(WithTauMin());
  t.daemon.Send(t.Local(9, 1));
  t.Step({20});
  t.Apply();
  EXPECT_EQ(t.daemon.acks().back().reason, "tau is 9, below this job's tau_min of 10");
  t.daemon.Send(t.Local(30, 2));
  t.Apply();
  EXPECT_TRUE(t.actuator.local_mode());
  t.daemon.Send(t.Local(0, 3));
  t.Apply();
  EXPECT_FALSE(t.actuator.local_mode());
  EXPECT_EQ(t.daemon.acks().back().reason, "local clipping is off");
}

TEST(LocalClips, ARefusalOfTheTrainerEndsLocalModeAndSaysSo) {
  TrainerDouble t;
  t.daemon.Send(t.Local(30, 1));
  t.Step({20});
  t.Apply();
  t.Step({60});
  t.Ack(*t.Poll(), GYRO_REFUSED, "weights are sharded");
  EXPECT_FALSE(t.actuator.local_mode());
  const model::Ack ack = t.daemon.acks().back();
  EXPECT_EQ(ack.outcome, AckOutcome::kRefused);
  EXPECT_EQ(ack.reason, "weights are sharded");
  EXPECT_EQ(ack.order_id.bytes[0], 1) << "under the id of the order that turned local mode on";
  t.Step({60});
  EXPECT_FALSE(t.Poll().has_value());
}

// Whatever mixture of orders comes, in whatever order, each head ends at the largest target (protocol.md I3), the
// sender's copy agrees with the truth, and every charge is told exactly once.
TEST(Orders, ManyMixedOrdersKeepCopyAndTruthTogether) {
  TrainerDouble t;
  std::vector<std::vector<remedy::Ticks>> charged(2, std::vector<remedy::Ticks>(4, 0));
  t.daemon.Send(t.Local(50, 200));
  uint64_t x = 12345;
  const auto next = [&x](uint64_t n) {  // Knuth's MMIX generator; its high bits are good enough here.
    x = x * 6364136223846793005u + 1442695040888963407u;
    return (x >> 33) % n;
  };
  uint32_t number = 0;
  for (int step = 0; step < 150; ++step) {
    std::vector<float> maxima(8);
    for (float& m : maxima) m = static_cast<float>(20 + next(60));
    t.Step(maxima);
    for (int k = 0; k < 2; ++k) {
      const auto head = static_cast<uint32_t>(next(8));
      if (maxima[head] <= 31) continue;
      model::Order order = t.Clip(t.recorder.boundary(), maxima[head], 31, head / 4, head % 4, 1);
      std::memcpy(order.id.bytes.data(), &++number, sizeof(number));
      t.daemon.Send(order);
    }
    t.Apply();
  }
  t.Step({20});
  for (const model::Ack& ack : t.daemon.acks())
    for (size_t i = 0; i < ack.applied.size(); ++i)
      charged[ack.applied.layer[i]][ack.applied.head[i]] += ack.applied.ticks[i];
  for (const model::Report& report : t.daemon.reports())
    for (size_t i = 0; i < report.local_clips.applied.size(); ++i)
      charged[report.local_clips.applied.layer[i]][report.local_clips.applied.head[i]] +=
          report.local_clips.applied.ticks[i];
  for (uint32_t layer = 0; layer < 2; ++layer)
    for (uint32_t head = 0; head < 4; ++head) EXPECT_EQ(t.actuator.ledger().At(layer, head), charged[layer][head]);
  EXPECT_GT(t.actuator.ledger().version(), 100u);
  EXPECT_EQ(t.error(), "") << "the digests agreed at every change";
}

}  // namespace
}  // namespace gyrostat::client
