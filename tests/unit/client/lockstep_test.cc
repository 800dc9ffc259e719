// Ranks in processes of their own that agree through the C ABI, over a collective in shared memory, with a daemon that
// orders what a right one would.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "gyrostat/gyrostat.h"
#include "support/rank_processes.h"
#include "support/right_daemon.h"

namespace gyrostat::client {
namespace {

constexpr int kRanks = 4, kSteps = 60, kHeads = 8;

// What the processes share. Zeroed memory is a valid beginning.
struct Board {
  testing::SharedBoard<kRanks> collective;
  // Per rank and step: the weights after the boundary; orders that were applied; the last status of step_end.
  uint32_t weights[kRanks][kSteps + 1][kHeads];
  uint32_t applied[kRanks], unsure[kRanks], applied_after_trouble[kRanks];
  float highest[kRanks];
  char trouble[kRanks][GYRO_REASON_BYTES];
};

struct Behaviour {
  int refuses_rank = -1;  // This rank's trainer refuses its third order.
  bool resets = false;    // All ranks roll back in the middle.
  bool leaves_a_hole = false;  // One row is nobody's.
};

void Train(Board* board, int rank, const Behaviour& behaviour) {
  testing::SharedPort<kRanks> port{.board = &board->collective, .rank = rank};
  // All of it, written as shards: two layers of four query and four key heads.
  gyro_shard shards[] = {{0, 0, 0, 4}, {0, 1, 0, 4}, {1, 0, 0, 4}, {1, 1, 0, 4}};
  if (behaviour.leaves_a_hole && rank == 3) shards[2].row_end = 3;
  gyro_collective collective = port.Collective(static_cast<uint32_t>(rank), false);
  collective.shards = shards, collective.shard_count = 4;
  const gyro_options options = testing::RightDaemon::Options(rank, kRanks, &collective);
  std::unique_ptr<testing::RightDaemon> daemon;
  if (rank == 0) daemon = std::make_unique<testing::RightDaemon>();
  gyro_client* client = nullptr;
  if (gyro_open(&options, &client) != GYRO_OK) _exit(2);
  std::vector<float> w(kHeads, 4);
  uint32_t orders = 0;
  for (int step = 1; step <= kSteps; ++step) {
    std::vector<float> maxima(kHeads);
    for (int h = 0; h < kHeads; ++h) {
      // Another batch on each rank: only all of them together know the maximum.
      maxima[h] = w[h] * w[h] * (1 - 0.01f * static_cast<float>((step + rank + h) % kRanks));
      board->highest[rank] = std::max(board->highest[rank], maxima[h]);
      w[h] *= 1.02f + 0.001f * static_cast<float>(h);
    }
    gyro_step_begin(client, step);
    gyro_record_attn_logit_max(client, maxima.data(), maxima.size(), GYRO_LOGIT_UNKNOWN);
    if (gyro_step_end(client) == GYRO_UNSURE) ++board->unsure[rank];
    gyro_order order{};
    order.struct_size = sizeof(order);
    if (daemon != nullptr && step > 1) daemon->Answer(static_cast<model::Boundary>(step - 1));
    while (gyro_poll(client, &order) == GYRO_OK) {
      if (rank == behaviour.refuses_rank && orders == 2) {
        gyro_ack(client, order.id, GYRO_REFUSED, "no");
        ++orders;
        continue;
      }
      for (uint32_t i = 0; i < order.q_count; ++i) w[order.q[i].layer * 4 + order.q[i].head] *= order.q[i].factor;
      gyro_ack(client, order.id, GYRO_APPLIED, nullptr);
      ++board->applied[rank];
      if (++orders > 3) ++board->applied_after_trouble[rank];
    }
    for (int h = 0; h < kHeads; ++h) board->weights[rank][step][h] = std::bit_cast<uint32_t>(w[h]);
    if (behaviour.resets && step == kSteps / 2) {
      w.assign(kHeads, 4);
      gyro_reset(client);
    }
  }
  gyro_client_stats stats{};
  stats.struct_size = sizeof(stats);
  gyro_stats(client, &stats);
  std::memcpy(board->trouble[rank], stats.last_error, sizeof(stats.last_error));
  gyro_close(client, 200);
}

// Runs all ranks and returns what they left; the caller looks.
auto RunRanks(const Behaviour& behaviour) {
  return testing::RunProcesses<Board>(kRanks, [&](Board* board, int rank) { Train(board, rank, behaviour); });
}

void ExpectEqualWeights(const Board& board) {
  for (int step = 1; step <= kSteps; ++step)
    for (int rank = 1; rank < kRanks; ++rank)
      for (int h = 0; h < kHeads; ++h)
        ASSERT_EQ(board.weights[rank][step][h], board.weights[0][step][h]) << step << " " << rank << " " << h;
}

TEST(Lockstep, ProcessesApplyTheSameOrdersAtTheSameBoundaries) {
  const auto board = RunRanks({});
  ExpectEqualWeights(*board);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_GT(board->applied[rank], 5u);
    EXPECT_EQ(board->applied[rank], board->applied[0]);
    EXPECT_EQ(board->collective.max.begun[rank].load(), board->collective.max.begun[0].load());
    EXPECT_EQ(board->collective.max.begun[rank].load(), kSteps + 1u);  // One a boundary, and the join.
    EXPECT_EQ(board->unsure[rank], 0u);
  }
  // Growth of 4 to 6 % a step over the loop's delay; without clips it would be 16 exp(0.04 * 60) = 176.
  EXPECT_LT(board->highest[0], 45);
}

TEST(Lockstep, ATrainerThatRefusesStopsAllOrdering) {
  const auto board = RunRanks({.refuses_rank = 2});
  EXPECT_GT(board->unsure[2], 10u);
  EXPECT_EQ(board->unsure[1], 0u);
  EXPECT_EQ(board->applied[2], 2u);
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(board->applied[rank], 3u);
    EXPECT_EQ(board->applied_after_trouble[rank], 0u);
  }
}

TEST(Lockstep, ARowThatNobodyOwnsKeepsAllRanksFromActing) {
  const auto board = RunRanks({.leaves_a_hole = true});
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(board->applied[rank], 0u);
    EXPECT_STREQ(board->trouble[rank], "nothing is applied: the ranks of replica 3 own 15 rows of query and key heads, "
                                       "wanted each of 16 once");
  }
}

TEST(Lockstep, ARollbackOnAllRanksGoesOn) {
  const auto board = RunRanks({.resets = true});
  ExpectEqualWeights(*board);
  EXPECT_GT(board->applied[1], 5u);
  EXPECT_EQ(board->unsure[3], 0u);
}

}  // namespace
}  // namespace gyrostat::client
