#include "client/src/sender.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/client/trainer_double.h"

namespace gyrostat::client {
namespace {

std::vector<uint64_t> Sequences(const testing::FakeDaemon& daemon) {
  std::vector<uint64_t> list;
  for (const model::Report& report : daemon.reports()) list.push_back(report.sequence);
  return list;
}

TEST(Sender, SaysHelloFirstAndReportsOnlyOnceWelcomed) {
  testing::FakeDaemon* daemon = nullptr;
  TrainerDouble t;
  daemon = &t.daemon;
  EXPECT_EQ(daemon->order_of_messages(), "h");
  daemon->GoDown();
  t.sender.Turn();
  daemon->AutoWelcome(false);
  daemon->GoUp();
  t.Step({20});
  t.sender.Turn();
  EXPECT_EQ(daemon->order_of_messages(), "hh");
  EXPECT_EQ(t.shared.counters.sender.connected.value(), 0u);
  daemon->Welcome(0);
  t.sender.Turn();
  EXPECT_EQ(daemon->order_of_messages(), "hhr");
  EXPECT_EQ(t.shared.counters.sender.connected.value(), 1u);
}

TEST(Sender, TheHelloTellsWhatTheJobIs) {
  Settings settings = SmallModel();
  settings.framework = "torch 1.13.1";
  settings.tau_min = 20;
  settings.grad_norm_clipped = true;
  TrainerDouble t(settings);
  const model::Hello hello = t.daemon.hellos().at(0);
  EXPECT_EQ(hello.run, "test");
  EXPECT_EQ(hello.attempt, TrainerDouble::Attempt());
  EXPECT_EQ(hello.epoch, 0u);
  EXPECT_EQ(hello.boundary, 1u);
  EXPECT_EQ(hello.allow, std::vector<std::string>{"qk_clip"});
  EXPECT_EQ(hello.tau_min, 20);
  EXPECT_EQ(hello.model, settings.model);
  EXPECT_EQ(hello.attn_logit, settings.attn_logit);
  EXPECT_EQ(hello.framework, "torch 1.13.1");
  EXPECT_EQ(hello.client_version, GYRO_VERSION);
  EXPECT_EQ(hello.grad_norm_convention, "clipped");
  EXPECT_EQ(hello.first_sequence, 1u);
}

TEST(Sender, KeepsReportsUntilTheyAreSafeAndSendsTheRestAgain) {
  TrainerDouble t;
  t.daemon.AutoAcknowledge(false);
  for (int i = 0; i < 4; ++i) t.Step({20});
  EXPECT_EQ(Sequences(t.daemon), (std::vector<uint64_t>{1, 2, 3, 4}));
  t.daemon.Acknowledge(2);
  t.sender.Turn();
  EXPECT_EQ(t.shared.counters.sender.acked.value(), 2u);
  t.daemon.GoDown();
  t.Step({20});
  t.daemon.GoUp();
  t.sender.Turn();
  EXPECT_EQ(t.daemon.hellos().back().first_sequence, 3u);
  EXPECT_EQ(t.daemon.hellos().back().boundary, 6u);
  EXPECT_EQ(Sequences(t.daemon), (std::vector<uint64_t>{1, 2, 3, 4, 3, 4, 5}));
  EXPECT_EQ(t.shared.counters.sender.reconnects.value(), 1u);
}

TEST(Sender, AWelcomeThatKnowsReportsSparesThem) {
  TrainerDouble t;
  t.daemon.AutoAcknowledge(false);
  for (int i = 0; i < 3; ++i) t.Step({20});
  t.daemon.GoDown();
  t.sender.Turn();
  t.daemon.AutoWelcome(false);
  t.daemon.GoUp();
  t.sender.Turn();
  t.daemon.Welcome(3);
  t.sender.Turn();
  EXPECT_EQ(Sequences(t.daemon), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(t.shared.counters.sender.acked.value(), 3u);
}

TEST(Sender, AnAcknowledgementOfWhatWasNeverSentCoversNothingToCome) {
  TrainerDouble t;
  t.daemon.AutoAcknowledge(false);
  t.Step({20});
  t.daemon.Acknowledge(1'000'000);
  t.sender.Turn();
  EXPECT_EQ(t.shared.counters.sender.acked.value(), 1u);
  t.Step({20});
  t.daemon.GoDown();
  t.sender.Turn();
  t.daemon.AutoWelcome(false);
  t.daemon.GoUp();
  t.sender.Turn();
  EXPECT_EQ(t.daemon.hellos().back().first_sequence, 2u);
}

TEST(Sender, DropsTheOldestWhileTheDaemonIsAwayAndReportsTheCount) {
  Settings settings = SmallModel();
  settings.unacked_reports = 3;
  TrainerDouble t(settings);
  t.daemon.GoDown();
  for (int i = 0; i < 5; ++i) t.Step({20});
  EXPECT_EQ(t.shared.counters.sender.dropped_unacked.value(), 2u);
  t.daemon.GoUp();
  t.sender.Turn();
  t.Step({20});
  EXPECT_EQ(Sequences(t.daemon), (std::vector<uint64_t>{3, 4, 5, 6}));
  EXPECT_EQ(t.daemon.reports().back().dropped_unacked, 2u);
}

TEST(Sender, AJammedTransportLosesNothing) {
  TrainerDouble t;
  t.daemon.Jam(true);
  for (int i = 0; i < 3; ++i) t.Step({20});
  EXPECT_TRUE(t.daemon.reports().empty());
  t.daemon.Jam(false);
  t.sender.Turn();
  EXPECT_EQ(Sequences(t.daemon), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(Sender, SaysWhyTheStreamBroke) {
  TrainerDouble t;
  t.daemon.GoDown("unavailable: connection refused");
  t.sender.Turn();
  EXPECT_EQ(t.error(), "unavailable: connection refused");
  EXPECT_EQ(t.shared.counters.sender.connected.value(), 0u);
}

TEST(Sender, ADaemonThatNeverWelcomesIsLeftAfterHalfAMinute) {
  TrainerDouble t;
  t.daemon.GoDown();
  t.sender.Turn();
  t.daemon.AutoWelcome(false);
  t.daemon.GoUp();
  t.sender.Turn();
  t.clock.now += base::Milliseconds(30'000);
  t.sender.Turn();
  EXPECT_EQ(t.daemon.closed(), 0);
  t.clock.now += base::Milliseconds(1);
  t.sender.Turn();
  EXPECT_EQ(t.daemon.closed(), 1);
  EXPECT_EQ(t.daemon.opened(), 2);
  EXPECT_EQ(t.error(), "the daemon answered the hello with silence");
}

TEST(Sender, AcksAreSentAgainWithTheReportsAroundThem) {
  TrainerDouble t;
  t.daemon.AutoAcknowledge(false);
  t.Step({60});
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  EXPECT_EQ(t.Apply(), 1);
  t.Step({20});
  t.daemon.GoDown();
  t.sender.Turn();
  t.daemon.GoUp();
  t.sender.Turn();
  EXPECT_EQ(t.daemon.order_of_messages(), "hrarhrar");
  const model::Hello hello = t.daemon.hellos().back();
  EXPECT_EQ(hello.ledger_version, 1u) << "the hello already stands after it";
  ASSERT_EQ(hello.last_outcomes.size(), 1u);
  EXPECT_EQ(hello.last_outcomes[0].outcome, model::AckOutcome::kApplied);
  EXPECT_EQ(hello.last_outcomes[0].applied.size(), 0u) << "a hello tells outcomes, not heads";
}

TEST(Sender, WhatOnlyAHelloCanTellOpensANewStream) {
  Settings settings = SmallModel();
  settings.unacked_reports = 3;
  TrainerDouble t(settings);
  t.daemon.AutoAcknowledge(false);
  t.Step({60});
  t.daemon.Send(t.Clip(1, 60, 30, 0, 1, 1));
  EXPECT_EQ(t.Apply(), 1);
  EXPECT_EQ(t.daemon.hellos().size(), 1u);
  for (int i = 0; i < 4; ++i) t.Step({20});  // The daemon is slow: report 1 goes, then the ack.
  EXPECT_EQ(t.daemon.hellos().size(), 2u);
  EXPECT_EQ(t.daemon.hellos().back().ledger_version, 1u);
}

TEST(Sender, GarbageFromTheDaemonHurtsNobody) {
  TrainerDouble t;
  t.daemon.SendGarbage();
  t.Step({20});
  EXPECT_EQ(t.error(), "an order of the daemon cannot be read");
  EXPECT_EQ(Sequences(t.daemon), std::vector<uint64_t>{1});
  EXPECT_EQ(t.shared.counters.sender.orders_received.value(), 0u);
}

TEST(Sender, MeasuresTheStepTimeBetweenReports) {
  TrainerDouble t;
  t.Step({20});
  t.Step({20});
  EXPECT_EQ(t.daemon.reports()[0].step_time_ms, 0) << "not known";
  EXPECT_DOUBLE_EQ(t.daemon.reports()[1].step_time_ms, 100);
}

TEST(Sender, IsSettledWhenAllIsSafeOrNobodyIsThere) {
  TrainerDouble t;
  t.daemon.AutoAcknowledge(false);
  t.sender.Turn();
  EXPECT_TRUE(t.sender.Settled());
  t.Step({20});
  EXPECT_FALSE(t.sender.Settled());
  t.daemon.Acknowledge(1);
  t.sender.Turn();
  EXPECT_TRUE(t.sender.Settled());
  t.Step({20});
  t.daemon.GoDown();
  t.sender.Turn();
  EXPECT_TRUE(t.sender.Settled()) << "waiting would bring nothing";
}

TEST(Sender, SaysGoodByeOnlyWhereItWasWelcome) {
  TrainerDouble t;
  t.sender.Turn();
  t.sender.Close(base::Milliseconds(0));
  EXPECT_EQ(t.daemon.byes(), std::vector<std::string>{"closed by the training job"});
  EXPECT_EQ(t.daemon.closed(), 1);
  TrainerDouble other;
  other.daemon.GoDown();
  other.sender.Turn();
  other.sender.Close(base::Milliseconds(0));
  EXPECT_TRUE(other.daemon.byes().empty());
}

TEST(Sender, ABadAddressIsToldAndNothingElseHappens) {
  Settings settings = SmallModel();
  settings.address = "bad";
  TrainerDouble t(settings);
  t.Step({20});
  EXPECT_EQ(t.error(), "the address is bad");
  EXPECT_TRUE(t.sender.Settled());
  t.sender.Close(base::Milliseconds(0));
}

}  // namespace
}  // namespace gyrostat::client
