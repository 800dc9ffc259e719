// Ranks in processes of their own agree on orders of other kinds than qk_clip: alpha on its ramp, a ray, a scale, a
// step to skip, and what a kill switch on one of them does to all.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gyrostat/gyrostat.h"
#include "model/intervention.h"
#include "support/fake_transport.h"
#include "support/paths.h"
#include "support/rank_processes.h"

namespace gyrostat::client {
namespace {

using model::InterventionKind;

constexpr int kRanks = 4, kSteps = 100, kAcks = 8;

// Of one rank at one step.
struct Seen {
  float alpha, beta, skip;
  double rate;
  uint32_t applied;  // Orders until then.
};
struct Board {
  testing::SharedBoard<kRanks> collective;
  Seen seen[kRanks][kSteps + 1];
  uint32_t unsure[kRanks];
  int outcomes[kAcks];
  char reasons[kAcks][GYRO_REASON_BYTES];
  char trouble[kRanks][GYRO_REASON_BYTES];
};

gyro_options OptionsOf(int rank, const gyro_collective* collective) {
  gyro_options options;
  gyro_options_init(&options);
  options.address = "fake:1";
  options.run = "lockstep";
  options.allow = "deepnorm_alpha, warmup_extension, lr_scale, skip_step";
  options.transport = testing::kFakeTransport;
  options.rank = static_cast<uint32_t>(rank);
  options.world_size = kRanks;
  options.collective = collective;
  options.model.layers = 2;
  options.model.heads = 4;
  options.model.norm_placement = "post";
  options.model.deepnorm_beta = 1;
  options.model.schedule_kind = "linear";
  options.model.schedule_peak = 1e-3;
  options.model.warmup_steps = 40;
  options.model.total_steps = 1000;
  return options;
}

double Base(int step) { return step < 40 ? 1e-3 * step / 40 : 1e-3; }

// What the daemon orders and when; what a trainer does besides.
struct Script {
  struct Ordered {
    int step;
    InterventionKind kind;
    std::vector<model::RegisterSet> sets;
    uint32_t ramp = 0;
    int lives = 60;
  };
  std::vector<Ordered> orders;
  std::function<void(gyro_client*, int rank, int step)> meddle = [](gyro_client*, int, int) {};
};

void Order(testing::FakeDaemon* daemon, const Script::Ordered& ordered, uint8_t number) {
  model::Order order;
  order.id.bytes.fill(number);
  order.run = "lockstep";
  order.attempt = daemon->hellos()[0].attempt;
  order.kind = ordered.kind;
  order.basis = static_cast<model::Boundary>(ordered.step);
  order.expires_boundary = static_cast<model::Boundary>(ordered.step + ordered.lives);
  order.sets = ordered.sets;
  order.ramp = ordered.ramp;
  daemon->Send(order);
}

// Reads alpha out of the library, gives it to the model, and says what the model shows.
void SetAlpha(gyro_client* client, Seen* model) {
  gyro_register_value(client, GYRO_REGISTER_ALPHA + 1, &model->alpha);
  gyro_observe(client, GYRO_REGISTER_ALPHA + 1, model->alpha);
  gyro_register_value(client, GYRO_REGISTER_SKIP_BOUNDARY, &model->skip);
}

// One boundary: as a trainer's loop has it.
void Step(gyro_client* client, int step, Seen* seen, uint32_t* unsure) {
  gyro_learning_rate(client, Base(step), &seen->rate);
  gyro_step_begin(client, step);
  gyro_record_scalar(client, "loss", 2);
  if (gyro_step_end(client) == GYRO_UNSURE) ++*unsure;
  SetAlpha(client, seen);
  gyro_order order{};
  order.struct_size = sizeof(order);
  while (gyro_poll(client, &order) == GYRO_OK) {
    for (uint32_t i = 0; i < order.register_count; ++i)
      if (order.registers[i].id == GYRO_REGISTER_BETA) seen->beta *= order.registers[i].value / order.registers[i].from;
    gyro_ack(client, order.id, GYRO_APPLIED, nullptr);
    ++seen->applied;
    SetAlpha(client, seen);
  }
}

void Train(Board* board, int rank, const Script& script) {
  testing::SharedPort<kRanks> port{.board = &board->collective, .rank = rank};
  const gyro_collective collective = port.Collective(static_cast<uint32_t>(rank), false);
  const gyro_options options = OptionsOf(rank, &collective);
  std::unique_ptr<testing::FakeDaemon> daemon;
  if (rank == 0) daemon = std::make_unique<testing::FakeDaemon>();
  gyro_client* client = nullptr;
  if (gyro_open(&options, &client) != GYRO_OK) _exit(2);
  Seen now{1, 1, 0, 0, 0};
  uint8_t sent = 0;
  for (int step = 1; step <= kSteps; ++step) {
    // The leader's sender has taken all before this step, so that orders are on their way.
    if (daemon != nullptr && step > 2)
      daemon->Wait([step](const auto& d) {
        return !d.reports().empty() && d.reports().back().boundary + 2 >= static_cast<model::Boundary>(step);
      });
    for (const Script::Ordered& ordered : script.orders)
      if (daemon != nullptr && ordered.step == step) Order(daemon.get(), ordered, ++sent);
    script.meddle(client, rank, step);
    Step(client, step, &now, &board->unsure[rank]);
    board->seen[rank][step] = now;
  }
  gyro_client_stats stats{};
  stats.struct_size = sizeof(stats);
  gyro_stats(client, &stats);
  std::memcpy(board->trouble[rank], stats.last_error, sizeof(stats.last_error));
  gyro_close(client, 1000);
  if (daemon == nullptr) return;
  const auto acks = daemon->acks();
  for (size_t i = 0; i < acks.size() && i < kAcks; ++i) {
    board->outcomes[i] = static_cast<int>(acks[i].outcome);
    acks[i].reason.copy(board->reasons[i], GYRO_REASON_BYTES - 1);
  }
}

auto RunRanks(const Script& script) {
  return testing::RunProcesses<Board>(kRanks, [&](Board* board, int rank) { Train(board, rank, script); });
}

void ExpectEqualRanks(const Board& board) {
  for (int step = 1; step <= kSteps; ++step)
    for (int rank = 1; rank < kRanks; ++rank)
      ASSERT_EQ(std::memcmp(&board.seen[rank][step], &board.seen[0][step], sizeof(Seen)), 0) << rank << " " << step;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(board.collective.max.begun[rank].load(), kSteps + 1u) << "one a boundary, and the join";
    EXPECT_EQ(board.unsure[rank], 0u);
    EXPECT_STREQ(board.trouble[rank], "");
  }
}

TEST(LockstepOrders, AlphaMovesOnItsRampEverywhere) {
  const auto board = RunRanks(
      {.orders = {{5, InterventionKind::kDeepnormAlpha, {{64, 2, 0}, {65, 4, 0}, {1088, 0.5f, 0}}, 20}}});
  ExpectEqualRanks(*board);
  const Seen* seen = board->seen[3];
  EXPECT_EQ(seen[5].alpha, 1);
  EXPECT_EQ(seen[kSteps].alpha, 4);
  EXPECT_EQ(seen[kSteps].beta, 0.5f);
  EXPECT_EQ(seen[kSteps].applied, 1u);
  int moving = 0;
  for (int step = 1; step < kSteps; ++step) {
    EXPECT_LE(seen[step].alpha, seen[step + 1].alpha);
    moving += seen[step].alpha < seen[step + 1].alpha;
    if (seen[step].alpha < seen[step + 1].alpha) {
      EXPECT_NEAR(seen[step + 1].alpha / seen[step].alpha, 1.0718, 1e-4) << "4^(1/20)";
    }
  }
  EXPECT_EQ(moving, 20);
  EXPECT_EQ(board->outcomes[0], static_cast<int>(model::AckOutcome::kApplied));
  EXPECT_STREQ(board->reasons[0], "alpha and beta are part of the checkpoint from now on");
}

TEST(LockstepOrders, ARayAndAScaleBendTheRateEverywhere) {
  // The line of a warm-up of 240 steps, and a half of it until boundary 80.
  const std::vector<model::RegisterSet> line = {{16, 2e-5f, 0}, {17, 4.17e-6f, 0}, {18, 5, 0},
                                                {19, 240, 0},   {20, 0, 0},        {21, 1, 0}};
  const auto board = RunRanks({.orders = {{5, InterventionKind::kWarmupExtension, line},
                                          {30, InterventionKind::kLrScale, {{0, 0.5f, 0}, {1, 80, 0}}},
                                          {40, InterventionKind::kSkipStep, {{3, 95, 0}}}}});
  ExpectEqualRanks(*board);
  const Seen* seen = board->seen[2];
  EXPECT_EQ(seen[kSteps].applied, 3u);
  EXPECT_EQ(seen[5].rate, Base(5));
  const auto ray = [](int step) { return 2e-5 + 4.17e-6 * (step - 5); };
  EXPECT_NEAR(seen[80].rate, ray(80) / 2, 1e-9);
  EXPECT_NEAR(seen[81].rate, ray(81), 1e-9);
  EXPECT_EQ(seen[kSteps].skip, 95);
}

TEST(LockstepOrders, OneRanksKillSwitchHoldsAll) {
  Script script{.orders = {{5, InterventionKind::kLrScale, {{0, 0.5f, 0}, {1, 0, 0}}, 0, 200},
                           {45, InterventionKind::kSkipStep, {{3, 95, 0}}, 0, 10}}};
  script.meddle = [](gyro_client* client, int rank, int step) {
    if (rank == 2 && step == 3) gyro_hold(client, "layer 1 was replaced");
    if (rank == 2 && step == 30) gyro_hold(client, nullptr);
    if (rank == 0 && step == 44) gyro_hold(client, "a person says stop");
  };
  const auto board = RunRanks(script);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(board->unsure[rank], 0u);
    EXPECT_EQ(board->seen[rank][30].applied, 0u) << "no rank acts alone";
    EXPECT_EQ(board->seen[rank][43].applied, 1u) << "what was held comes again";
    EXPECT_EQ(board->seen[rank][kSteps].applied, 1u);
  }
  EXPECT_EQ(board->outcomes[1], static_cast<int>(model::AckOutcome::kRefused));
  EXPECT_STREQ(board->reasons[1], "a person says stop");
}

TEST(LockstepOrders, ARankWithAnotherAlphaHoldsAll) {
  Script script{.orders = {{20, InterventionKind::kLrScale, {{0, 0.5f, 0}, {1, 0, 0}}, 0, 10}}};
  script.meddle = [](gyro_client* client, int rank, int) {
    if (rank == 1) gyro_observe(client, GYRO_REGISTER_ALPHA, 1.01f);
  };
  const auto board = RunRanks(script);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(board->seen[rank][kSteps].applied, 0u);
    EXPECT_STREQ(board->trouble[rank], "nothing is applied: the ranks' states differ");
  }
  EXPECT_EQ(board->outcomes[0], static_cast<int>(model::AckOutcome::kExpired));
}

}  // namespace
}  // namespace gyrostat::client
