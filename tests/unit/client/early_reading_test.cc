// The leader reads R_b within step b + 1, to report: what leaves then, what does not, and that nobody decides
// otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gyrostat/gyrostat.h"
#include "model/intervention.h"
#include "model/report.h"
#include "support/fake_transport.h"
#include "support/lcg.h"
#include "support/thread_job.h"

namespace gyrostat::client {
namespace {

using testing::kAllHeads;
using testing::kHeads;
using testing::kLayers;
using testing::kRanks;
using testing::Shown;
using testing::ThreadJob;

double LossAt(model::Boundary boundary) { return 2 + 0.25 * static_cast<double>(boundary); }

// A report that is all that its boundary measured, on all ranks.
void ExpectWhole(const ThreadJob& job, const model::Report& report) {
  EXPECT_EQ(report.Scalar(model::Signal::kLoss), LossAt(report.boundary)) << report.boundary;
  const auto maxima = report.Array(model::Signal::kAttnLogitMax);
  ASSERT_EQ(maxima.size(), kAllHeads) << report.boundary;
  for (uint32_t h = 0; h < kAllHeads; ++h) EXPECT_EQ(maxima[h], job.history.at(report.boundary).maxima[h]) << h;
}

TEST(EarlyReading, TheReportLeavesWithinTheNextStepOnceTheRoundIsThere) {
  const std::vector<std::pair<const char*, std::function<void(ThreadJob*)>>> calls = {
      {"progress", [](ThreadJob* job) { EXPECT_EQ(gyro_progress(job->clients[0]), GYRO_OK); }},
      {"scalar", [](ThreadJob* job) { gyro_record_scalar(job->clients[0], "lr_seen", 1); }},
      {"array",
       [](ThreadJob* job) { gyro_record_array(job->clients[0], "layer_grad_norm", job->measured[0].data(), kLayers); }},
      {"maxima",
       [](ThreadJob* job) {
         gyro_record_attn_logit_max(job->clients[0], job->measured[0].data(), kAllHeads, GYRO_LOGIT_EXACT);
       }},
      {"layer",
       [](ThreadJob* job) {
         gyro_record_layer_attn_logit_max(job->clients[0], 1, job->measured[0].data(), kHeads, GYRO_LOGIT_EXACT);
       }},
      {"rate",
       [](ThreadJob* job) {
         double rate = 0;
         gyro_learning_rate(job->clients[0], 1e-3, &rate);
         EXPECT_EQ(rate, 1e-3);
       }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    ThreadJob job;
    job.Step();
    job.Train();
    job.Begin();
    gyro_record_scalar(job.clients[0], "before", 7);
    call(&job);
    job.Turn();
    EXPECT_EQ(job.Reports().size(), 0u) << "the round is not there";
    job.network.there = true;
    call(&job);
    job.Turn();
    ASSERT_EQ(job.Reports().size(), 1u);
    EXPECT_EQ(job.Reports()[0].boundary, 1u);
    ExpectWhole(job, job.Reports()[0]);
    const uint32_t asked = job.network.asked[0];
    job.Record();
    job.End();
    job.Turn();
    EXPECT_EQ(job.Reports().size(), 1u) << "once";
    EXPECT_EQ(job.network.asked[0], asked) << "it is not asked for what it has said";
    EXPECT_EQ(job.network.waits[0], 2u) << "one of a MAX, one of a SUM";
    job.Apply();
    // The report that was under way meanwhile is what it would have been.
    job.Step();
    ASSERT_EQ(job.Reports().size(), 2u);
    EXPECT_EQ(job.Reports()[1].boundary, 2u);
    ExpectWhole(job, job.Reports()[1]);
    EXPECT_EQ(job.Reports()[1].user.at(0), (std::pair<std::string, double>("before", 7)));
  }
}

TEST(EarlyReading, BetweenABoundaryAndTheNextStepToo) {
  ThreadJob job;
  job.Step();
  EXPECT_EQ(gyro_progress(job.clients[0]), GYRO_OK);
  job.network.there = true;  // While the next forward runs; the loop begins its report after it.
  EXPECT_EQ(gyro_progress(job.clients[0]), GYRO_OK);
  job.Turn();
  ASSERT_EQ(job.Reports().size(), 1u);
  ExpectWhole(job, job.Reports()[0]);
  for (int i = 0; i < 3; ++i) job.Step();
  ASSERT_EQ(job.Reports().size(), 3u);
  for (const model::Report& report : job.Reports()) ExpectWhole(job, report);
}

TEST(EarlyReading, WhereTheRoundIsNotThereTheReportLeavesAtTheBoundary) {
  ThreadJob job;
  job.Step();
  job.Train();
  job.Begin();
  job.Record();
  gyro_progress(job.clients[0]);
  job.Turn();
  EXPECT_EQ(job.Reports().size(), 0u);
  EXPECT_EQ(job.network.waits[0], 0u);
  job.End();
  job.Turn();
  ASSERT_EQ(job.Reports().size(), 1u);
  ExpectWhole(job, job.Reports()[0]);
}

TEST(EarlyReading, OnlyTheLeaderAsksAndOnlyACollectiveThatCanBeAsked) {
  ThreadJob job;
  job.clients[1]->lockstep->HasSender(job.clients[1]->Here());  // As a rank has that led before others joined.
  for (int i = 0; i < 3; ++i) {
    job.Step();
    job.network.there = true;
    for (gyro_client* each : job.clients) EXPECT_EQ(gyro_progress(each), GYRO_OK);
  }
  EXPECT_GT(job.network.asked[0], 0u);
  EXPECT_EQ(job.network.asked[1] + job.network.asked[2], 0u);
  ThreadJob old(false);
  old.Step();
  old.Train();
  old.network.there = true;
  EXPECT_EQ(gyro_progress(old.clients[0]), GYRO_OK);
  old.Turn();
  EXPECT_EQ(old.Reports().size(), 0u);
  EXPECT_EQ(old.network.asked[0], 0u);
}

TEST(EarlyReading, OfARoundThatFailsNothingIsToldBeforeTheBoundary) {
  ThreadJob job;
  job.Step();
  job.Train();
  job.Begin();
  job.Record();
  job.network.there = true;
  job.network.fails[0][0] = true;
  gyro_progress(job.clients[0]);
  gyro_progress(job.clients[0]);
  job.Turn();
  EXPECT_EQ(job.Reports().size(), 0u);
  EXPECT_EQ(job.network.waits[0], 2u) << "it has failed: nothing is left to wait for";
  job.End();
  EXPECT_EQ(job.status[0], GYRO_UNSURE);
  EXPECT_EQ(job.status[1], GYRO_OK);
  EXPECT_EQ(job.network.waits[0], 2u);
  job.Turn();
  ASSERT_EQ(job.Reports().size(), 1u);
  EXPECT_EQ(job.Reports()[0].Array(model::Signal::kAttnLogitMax).size(), 0u) << "nobody knows the others'";
}

TEST(EarlyReading, WhereOnlyTheSumFailsTheReportLeavesWithoutIt) {
  ThreadJob job;
  job.Step();
  job.network.there = true;
  job.network.fails[0][1] = true;
  gyro_progress(job.clients[0]);
  job.Turn();
  ASSERT_EQ(job.Reports().size(), 1u);
  ExpectWhole(job, job.Reports()[0]);
  job.Step();
  EXPECT_EQ(job.status[0], GYRO_OK);
}

TEST(EarlyReading, WhatLeftWithinTheStepIsNotSentAgainAtTheEnd) {
  for (const bool early : {false, true}) {
    ThreadJob job;
    job.Step();
    job.network.there = early;
    job.Train();
    job.Begin();
    job.Record();
    gyro_close(std::exchange(job.clients[0], nullptr), 0);
    job.Turn();
    ASSERT_EQ(job.Reports().size(), 1u);
    EXPECT_EQ(job.Reports()[0].Array(model::Signal::kAttnLogitMax).size(), early ? kAllHeads : 0u);
  }
}

// The ring holds the frame that waits for its round and the one that is recorded; a sender without a core leaves no
// room for more.
TEST(EarlyReading, AFullRingDropsTheNewestReportAndMixesNone) {
  ThreadJob job(true, 2);
  uint32_t dropped = 0;
  for (int i = 0; i < 40; ++i) {
    job.Train();
    job.network.there = i % 3 != 0;
    if (i % 2 == 0) gyro_progress(job.clients[0]);
    if (i % 4 < 2) job.Turn();
    const gyro_status begun = gyro_step_begin(job.clients[0], static_cast<int64_t>(job.boundary));
    dropped += begun == GYRO_DROPPED ? 1 : 0;
    for (uint32_t rank = 1; rank < kRanks; ++rank) gyro_step_begin(job.clients[rank], job.boundary);
    gyro_progress(job.clients[0]);
    job.Record();
    job.End();
    job.Apply();
  }
  job.Turn();
  const auto reports = job.Reports();
  EXPECT_GT(dropped, 3u);
  const uint32_t waiting = job.clients[0]->recorder.held() != nullptr ? 1 : 0;  // For its round.
  EXPECT_EQ(reports.size() + dropped + waiting, job.boundary);
  for (const model::Report& report : reports) ExpectWhole(job, report);
  for (size_t i = 1; i < reports.size(); ++i) EXPECT_LT(reports[i - 1].boundary, reports[i].boundary);
}

// Boundaries from the forward that measured to the clip, in a job whose logits grow without end.
std::vector<model::Boundary> DelaysOf(bool early, float* peak) {
  ThreadJob job;
  for (int i = 0; i < 60; ++i) {
    job.Train();
    for (const float maximum : job.history[job.boundary].maxima) *peak = std::max(*peak, maximum);
    job.network.there = early;
    gyro_progress(job.clients[0]);
    job.Answer();
    job.Begin();
    job.Record();
    job.End();
    job.Turn();  // The daemon answers at once, and not sooner.
    job.Apply();
  }
  std::vector<model::Boundary> delays;
  for (const model::Ack& ack : job.daemon.fake().acks())
    if (ack.outcome == model::AckOutcome::kApplied && ack.applied.size() > 0)
      delays.push_back(ack.boundary - job.daemon.BasisOf(ack.order_id));
  for (uint32_t rank = 1; rank < kRanks; ++rank) EXPECT_EQ(job.weights[rank], job.weights[0]);
  return delays;
}

TEST(EarlyReading, AnOrderIsAppliedTwoBoundariesAfterWhatItAnswers) {
  float late_peak = 0, peak = 0;
  const std::vector<model::Boundary> late = DelaysOf(false, &late_peak), early = DelaysOf(true, &peak);
  // In each of them nearly every report is answered, though its forward ran under the clip of the boundary before: what
  // its R confirms is told before it.
  EXPECT_GT(late.size(), 25u);
  EXPECT_GE(early.size(), late.size());
  EXPECT_EQ(std::count(late.begin(), late.end(), 3u), static_cast<int>(late.size()));
  EXPECT_EQ(std::count(early.begin(), early.end(), 2u), static_cast<int>(early.size()));
  EXPECT_LT(peak, late_peak);
}

TEST(EarlyReading, WhatARoundConfirmsIsToldBeforeTheReportThatItCompletes) {
  ThreadJob job;
  while (job.clients[0]->lockstep->agreement().ledger().version() == 0) {
    ASSERT_LT(job.boundary, 30u);
    job.Train();
    job.network.there = true;
    gyro_progress(job.clients[0]);
    job.Answer();
    job.Begin();
    job.Record();
    job.End();
    job.Apply();
  }
  // Applied at this boundary; R of the next shows all ranks at the new version, and its report is of that version.
  const model::Boundary applied = job.boundary;
  job.Step();
  job.network.there = true;
  EXPECT_EQ(job.daemon.fake().acks().size(), 0u);
  gyro_progress(job.clients[0]);
  job.Turn();
  ASSERT_EQ(job.daemon.fake().acks().size(), 1u);
  const model::Ack ack = job.daemon.fake().acks()[0];
  EXPECT_EQ(ack.outcome, model::AckOutcome::kApplied);
  EXPECT_EQ(ack.boundary, applied);
  EXPECT_EQ(ack.ledger_version_after, 1u);
  EXPECT_NE(ack.state_digest, 0u);
  EXPECT_EQ(job.Reports().back().boundary, applied + 1);
  EXPECT_EQ(job.Reports().back().ledger_version, 1u);
  const std::string messages = job.daemon.fake().order_of_messages();
  EXPECT_EQ(messages.substr(messages.size() - 2), "ar");
  job.Step();
  EXPECT_EQ(job.daemon.fake().acks().size(), 1u) << "once";
}

struct Told {
  std::vector<Shown> shown;
  std::map<model::OrderId, std::pair<model::AckOutcome, model::Boundary>> acks;
  std::map<model::Boundary, std::vector<float>> maxima;  // By boundary: what was reported.
  uint64_t early = 0;  // Reports that left before their boundary's successor.
};

// A job in which all goes wrong that can, by `seed`; orders come when they would come without early reading.
Told Live(uint64_t seed, bool early) {
  Told told;
  testing::Lcg what(seed), when(seed + 1000);  // When R is there and asked for is another story for each.
  ThreadJob job;
  testing::FakeDaemon& orders = job.daemon.fake();
  uint8_t sent = 0;
  bool unsure = false;
  model::Boundary begun = 0;  // The last before this epoch.
  for (int i = 0; i < 120; ++i) {
    const auto maybe_ask = [&] {
      job.network.there |= early && when.Below(3) == 0;
      const uint64_t before = job.clients[0]->recorder.frames_committed();
      if (when.Below(2) == 0) gyro_progress(job.clients[0]);
      told.early += job.clients[0]->recorder.frames_committed() - before;
    };
    job.Train();
    maybe_ask();
    const bool skips = what.Below(15) == 0;  // The leader's step is begun twice.
    job.Begin();
    maybe_ask();
    if (skips) gyro_step_begin(job.clients[0], static_cast<int64_t>(job.boundary));
    job.Record();
    maybe_ask();
    job.End();
    job.Turn();
    const model::Boundary back = 1 + what.Below(3);
    if (what.Below(2) == 0 && job.boundary > begun + back) job.Order(job.boundary - back, ++sent, &orders);
    job.Turn();
    if (what.Below(20) == 0) gyro_hold(job.clients[what.Below(kRanks)], "no");
    if (what.Below(6) == 0)
      for (gyro_client* each : job.clients) gyro_hold(each, nullptr);
    job.Apply();
    for (uint32_t rank = 0; rank < kRanks; ++rank) told.shown.push_back(job.Show(rank));
    if (what.Below(25) == 0) job.network.fails[what.Below(kRanks)][0] = unsure = true;
    if (what.Below(10) == 0) job.network.fails[0][1] = true;
    maybe_ask();
    const uint32_t history = what.Below(unsure ? 4 : 30);
    if (history == 0) job.Reset(), unsure = false;
    if (history == 1) job.Rejoin();
    if (history < 2) begun = job.boundary;
    job.Turn();
  }
  for (const model::Ack& ack : orders.acks()) told.acks[ack.order_id] = {ack.outcome, ack.boundary};
  for (const model::Report& report : orders.reports()) {
    const auto maxima = report.Array(model::Signal::kAttnLogitMax);
    told.maxima[report.boundary].assign(maxima.begin(), maxima.end());
  }
  return told;
}

TEST(EarlyReading, NoRankDecidesOtherwise) {
  uint64_t early = 0, applied = 0, unsure = 0, epochs = 0, sooner = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Told without = Live(seed, false), with = Live(seed, true);
    ASSERT_EQ(without.early, 0u);
    ASSERT_EQ(with.shown.size(), without.shown.size());
    for (size_t i = 0; i < with.shown.size(); ++i)
      ASSERT_EQ(with.shown[i], without.shown[i]) << "seed " << seed << " boundary " << i / kRanks + 1;
    for (const auto& [id, told] : with.acks) {
      const auto other = without.acks.find(id);
      if (other != without.acks.end() && other->second == told) continue;
      // The weights got another history, or the job ended, before anybody else had read what confirms it.
      EXPECT_EQ(told.first, model::AckOutcome::kApplied) << "seed " << seed;
      ++sooner;
      if (other == without.acks.end()) continue;
      EXPECT_EQ(other->second.first, model::AckOutcome::kForeign) << "seed " << seed;
    }
    ASSERT_GE(with.acks.size(), without.acks.size()) << seed;
    ASSERT_GE(with.maxima.size(), without.maxima.size()) << seed;  // The last may have left.
    for (const auto& [boundary, maxima] : without.maxima) {
      if (maxima.empty()) continue;  // Lost where the ranks joined again before it was read.
      ASSERT_EQ(with.maxima.at(boundary), maxima) << "seed " << seed << " boundary " << boundary;
    }
    early += with.early;
    for (const auto& [id, outcome] : with.acks) applied += outcome.first == model::AckOutcome::kApplied ? 1 : 0;
    for (const Shown& shown : with.shown) unsure += shown.status == GYRO_UNSURE ? 1 : 0;
    epochs += with.shown.back().epoch;
  }
  EXPECT_GT(early, 1000u);
  EXPECT_GT(applied, 100u);
  EXPECT_GT(unsure, 100u);
  EXPECT_GT(epochs, 40u);
  EXPECT_LT(sooner, applied / 10);
}

}  // namespace
}  // namespace gyrostat::client
