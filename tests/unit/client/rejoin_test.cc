// Ranks that come and go while the job's processes live: four ranks, three, and four again.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "gyrostat/gyrostat.h"
#include "model/intervention.h"
#include "support/fake_transport.h"
#include "support/paths.h"
#include "support/rank_processes.h"

namespace gyrostat::client {
namespace {

constexpr int kRanks = 4;
constexpr int kShrinks = 30, kGrows = 60, kLoads = 75, kSteps = 110;  // Boundaries after which that happens.

struct Seen {
  float alpha, scale;
  uint32_t applied, epoch;
  uint64_t boundary;
};
struct Board {
  testing::SharedBoard<kRanks> collective;
  Seen seen[kRanks][kSteps + 1];
  uint32_t unsure[kRanks];
  std::atomic<uint32_t> grow;  // Ranks that are about to join again, so that the newcomer opens then.
  uint8_t state[65536];
  std::atomic<uint64_t> state_size;
  uint32_t hello_world[4], hello_epoch[4];
  int outcomes[8];
  char trouble[kRanks][GYRO_REASON_BYTES];
};

// One rank in its process.
class Rank {
 public:
  Rank(Board* board, int rank) : board_(board), rank_(rank) {
    if (rank == 0) daemon_ = std::make_unique<testing::FakeDaemon>();
  }

  void Open(int members) {
    Become(members);
    gyro_options options;
    gyro_options_init(&options);
    options.address = "fake:1";
    options.run = "elastic";
    options.allow = "deepnorm_alpha,lr_scale";
    options.transport = testing::kFakeTransport;
    options.rank = static_cast<uint32_t>(rank_);
    options.world_size = static_cast<uint32_t>(members);
    options.collective = &collective_;
    options.model.layers = 2;
    options.model.heads = 4;
    options.model.norm_placement = "post";
    if (gyro_open(&options, &client_) != GYRO_OK) _exit(2);
  }
  void Rejoin(int members) {
    Become(members);
    if (gyro_rejoin(client_, &collective_, static_cast<uint32_t>(rank_), static_cast<uint32_t>(members)) != GYRO_OK)
      _exit(3);
  }
  void Step(int step) {
    gyro_step_begin(client_, step);
    gyro_record_scalar(client_, "loss", 2);
    if (gyro_step_end(client_) == GYRO_UNSURE) ++board_->unsure[rank_];
    gyro_order order{};
    order.struct_size = sizeof(order);
    while (gyro_poll(client_, &order) == GYRO_OK) {
      gyro_ack(client_, order.id, GYRO_APPLIED, nullptr);
      ++applied_;
    }
    Seen& seen = board_->seen[rank_][step];
    gyro_register_value(client_, GYRO_REGISTER_ALPHA, &seen.alpha);
    gyro_register_value(client_, GYRO_REGISTER_LR_SCALE, &seen.scale);
    const gyro_client_stats stats = Stats();
    seen.applied = applied_;
    seen.epoch = stats.epoch;
    seen.boundary = stats.boundary;
    std::memcpy(board_->trouble[rank_], stats.last_error, sizeof(stats.last_error));
  }
  // Of the leader: what its daemon orders now.
  void Order(model::InterventionKind kind, std::vector<model::RegisterSet> sets, uint32_t ramp, uint64_t lives) {
    if (rank_ != 0) return;
    const gyro_client_stats stats = Stats();
    daemon_->Wait([&stats](const auto& d) { return !d.hellos().empty() && d.hellos().back().epoch == stats.epoch; });
    model::Order order;
    order.id.bytes.fill(static_cast<uint8_t>(++sent_));
    order.run = "elastic";
    order.attempt = daemon_->hellos()[0].attempt;
    order.epoch = stats.epoch;
    order.kind = kind;
    order.expires_boundary = stats.boundary + lives;
    order.sets = std::move(sets);
    order.ramp = ramp;
    daemon_->Send(order);
    daemon_->Wait([&](const auto&) { return Stats().orders_received >= static_cast<uint64_t>(sent_); });
  }
  // What the trainer broadcasts to ranks that are new.
  void LoadOneState() {
    if (rank_ == 0) {
      const uint8_t* data = nullptr;
      size_t size = 0;
      gyro_state_save(client_, &data, &size);
      std::memcpy(board_->state, data, size);
      board_->state_size.store(size);
    }
    while (board_->state_size.load() == 0) sched_yield();
    if (gyro_state_load(client_, board_->state, board_->state_size.load()) != GYRO_OK) _exit(4);
  }
  void Close() {
    gyro_close(client_, 1000);
    if (daemon_ == nullptr) return;
    const auto hellos = daemon_->hellos();
    for (size_t i = 0; i < hellos.size() && i < 4; ++i) {
      board_->hello_world[i] = hellos[i].world_size;
      board_->hello_epoch[i] = hellos[i].epoch;
    }
    // By number; what a stream did not bring for sure is said again on the next.
    for (const model::Ack& ack : daemon_->acks())
      board_->outcomes[ack.order_id.bytes[0] % 8] = static_cast<int>(ack.outcome);
  }

 private:
  void Become(int members) {
    port_ = {.board = &board_->collective, .rank = rank_, .members = members};
    collective_ = port_.Collective(static_cast<uint32_t>(rank_), false);
  }
  gyro_client_stats Stats() const {
    gyro_client_stats stats{};
    stats.struct_size = sizeof(stats);
    gyro_stats(client_, &stats);
    return stats;
  }

  Board* board_;
  const int rank_;
  std::unique_ptr<testing::FakeDaemon> daemon_;
  testing::SharedPort<kRanks> port_{};
  gyro_collective collective_{};
  gyro_client* client_ = nullptr;
  uint32_t applied_ = 0;
  int sent_ = 0;
};

void Train(Board* board, int number) {
  using Kind = model::InterventionKind;
  const bool goes = number == kRanks - 1;  // And comes again.
  Rank rank(board, number);
  rank.Open(kRanks);
  for (int step = 1; step <= kShrinks; ++step) {
    if (step == 5) rank.Order(Kind::kDeepnormAlpha, {{64, 4, 0}, {65, 4, 0}}, 20, 60);
    if (step == kShrinks) rank.Order(Kind::kLrScale, {{0, 0.9f, 0}, {1, 0, 0}}, 0, 60);  // Dies in R.
    rank.Step(step);
  }
  if (goes) {
    rank.Close();
    while (board->grow.load() < kRanks - 1) sched_yield();
    rank.Open(kRanks);
  } else {
    rank.Rejoin(kRanks - 1);
    for (int step = kShrinks + 1; step <= kGrows; ++step) {
      if (step == kShrinks + 2) rank.Order(Kind::kLrScale, {{0, 0.5f, 0}, {1, 0, 0}}, 0, 60);
      rank.Step(step);
    }
    board->grow.fetch_add(1);
    rank.Rejoin(kRanks);
  }
  for (int step = kGrows + 1; step <= kSteps; ++step) {
    if (step == kGrows + 2) rank.Order(Kind::kLrScale, {{0, 0.25f, 1}, {1, 0, 1}}, 0, 8);
    if (step == kLoads + 5) rank.Order(Kind::kLrScale, {{0, 0.125f, 1}, {1, 0, 1}}, 0, 60);
    rank.Step(step);
    if (step == kLoads) rank.LoadOneState();
  }
  rank.Close();
}

TEST(Rejoin, ARankThatGoesAndOneThatComesLeaveAllEqual) {
  const auto board = testing::RunProcesses<Board>(kRanks, &Train);
  for (int step = 1; step <= kSteps; ++step)
    for (int rank = 1; rank < kRanks - 1; ++rank)
      ASSERT_EQ(std::memcmp(&board->seen[rank][step], &board->seen[0][step], sizeof(Seen)), 0) << rank << " " << step;
  const Seen* seen = board->seen[1];
  EXPECT_EQ(seen[kShrinks].applied, 1u);
  EXPECT_EQ(seen[kShrinks].alpha, 4);
  // Three of them: registers stay, orders of before die, new ones are agreed on.
  EXPECT_EQ(seen[kShrinks + 1].epoch, 1u);
  EXPECT_EQ(seen[kShrinks + 1].boundary, kShrinks + 1u);
  EXPECT_EQ(seen[kGrows].alpha, 4);
  EXPECT_EQ(seen[kGrows].scale, 0.5f);
  EXPECT_EQ(seen[kGrows].applied, 2u);
  // Four again: the newcomer stands elsewhere, so that nothing is applied until all have one state.
  EXPECT_EQ(board->seen[3][kGrows + 1].epoch, 2u);
  EXPECT_EQ(board->seen[3][kGrows + 1].boundary, kGrows + 1u);
  EXPECT_EQ(board->seen[3][kLoads].alpha, 1);
  EXPECT_EQ(seen[kLoads].applied, 2u);
  EXPECT_EQ(seen[kSteps].applied, 3u);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(board->seen[rank][kSteps].alpha, 4);
    EXPECT_EQ(board->seen[rank][kSteps].scale, 0.125f);
    EXPECT_EQ(board->seen[rank][kSteps].epoch, 3u);
    EXPECT_EQ(board->unsure[rank], 0u);
  }
}

TEST(Rejoin, TheDaemonIsToldWhoTakesPart) {
  const auto board = testing::RunProcesses<Board>(kRanks, &Train);
  const uint32_t worlds[] = {4, 3, 4, 4};
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(board->hello_world[i], worlds[i]) << i;
    EXPECT_EQ(board->hello_epoch[i], i);
  }
  using model::AckOutcome;
  const AckOutcome outcomes[] = {AckOutcome::kApplied, AckOutcome::kForeign, AckOutcome::kApplied,
                                 AckOutcome::kExpired, AckOutcome::kApplied};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(board->outcomes[i + 1], static_cast<int>(outcomes[i])) << i;
}

}  // namespace
}  // namespace gyrostat::client
