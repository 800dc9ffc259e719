// Ranks in processes of their own that agree through the C ABI, over a collective in shared memory, with a daemon that
// orders what a right one would.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "gyrostat/gyrostat.h"
#include "model/intervention.h"
#include "remedy/clip_ledger.h"
#include "remedy/qk_clip.h"
#include "support/fake_transport.h"
#include "support/paths.h"

namespace gyrostat::client {
namespace {

constexpr int kRanks = 4, kSteps = 60, kHeads = 8;
constexpr size_t kLanesMax = 8192;
constexpr double kTau = 30;

// What the processes share. Zeroed memory is a valid beginning.
struct Board {
  std::atomic<uint32_t> arrived, round;
  std::atomic<uint32_t> collectives[kRanks];
  float lanes[kRanks][kLanesMax];
  // Per rank and step: the weights after the boundary; orders that were applied; the last status of step_end.
  uint32_t weights[kRanks][kSteps + 1][kHeads];
  uint32_t applied[kRanks], unsure[kRanks], applied_after_trouble[kRanks];
  float highest[kRanks];
  char trouble[kRanks][GYRO_REASON_BYTES];
};

struct Port {
  Board* board;
  int rank;

  void Meet() const {
    const uint32_t round = board->round.load();
    if (board->arrived.fetch_add(1) + 1 == kRanks) {
      board->arrived.store(0);
      board->round.fetch_add(1);
    } else {
      while (board->round.load() == round) sched_yield();
    }
  }
  static int Begin(void* context, float* lanes, size_t count) {
    const Port& port = *static_cast<Port*>(context);
    if (count > kLanesMax) return 1;
    port.board->collectives[port.rank].fetch_add(1);
    std::memcpy(port.board->lanes[port.rank], lanes, count * sizeof(float));
    return 0;
  }
  static int Wait(void* context, float* lanes, size_t count) {
    const Port& port = *static_cast<Port*>(context);
    port.Meet();
    for (size_t i = 0; i < count; ++i)
      for (const auto& each : port.board->lanes) lanes[i] = std::max(lanes[i], each[i]);
    port.Meet();  // Nobody writes the next before all have read this.
    return 0;
  }
};

gyro_options OptionsOf(int rank, const gyro_collective* collective) {
  gyro_options options;
  gyro_options_init(&options);
  options.address = "fake:1";
  options.run = "lockstep";
  options.allow = "qk_clip";
  options.transport = testing::kFakeTransport;
  options.logit_kind = GYRO_LOGIT_EXACT;
  options.rank = static_cast<uint32_t>(rank);
  options.world_size = kRanks;
  options.collective = collective;
  options.model.layers = 2;
  options.model.heads = 4;
  options.model.attention = "mha";
  options.model.qk_norm = "none";
  options.model.master_fp32 = 1;
  return options;
}

// Orders what the newest report asks for, by a copy of the ledger that follows the acks. Waits for that report.
class RightDaemon {
 public:
  void Answer(model::Boundary reported) {
    daemon_.Wait([&](const auto& d) { return !d.reports().empty() && d.reports().back().boundary >= reported; });
    const auto acks = daemon_.acks();
    for (; heard_ < acks.size(); ++heard_) mirror_.Apply(acks[heard_].applied);
    const model::Report report = daemon_.reports().back();
    const auto maxima = report.Array(model::Signal::kAttnLogitMax);
    model::Order order;
    for (uint32_t h = 0; h < maxima.size(); ++h) {
      const auto lambda = mirror_.At(report.ledger_version, h / 4, h % 4);
      const auto target = lambda ? remedy::ClipTarget(static_cast<double>(maxima[h]), kTau, *lambda) : std::nullopt;
      if (target) order.entries.push_back({h / 4, h % 4, maxima[h], *target});
    }
    if (order.entries.empty()) return;
    order.id.bytes.fill(static_cast<uint8_t>(++sent_));
    order.run = "lockstep";
    order.attempt = daemon_.hellos()[0].attempt;
    order.epoch = report.epoch;
    order.basis = report.boundary;
    order.expires_boundary = report.boundary + 16;
    order.tau = kTau;
    daemon_.Send(order);
  }

 private:
  testing::FakeDaemon daemon_;
  remedy::ClipLedger mirror_{2, 4};
  size_t heard_ = 0;
  int sent_ = 0;
};

struct Behaviour {
  int refuses_rank = -1;  // This rank's trainer refuses its third order.
  bool resets = false;    // All ranks roll back in the middle.
  bool leaves_a_hole = false;  // One row is nobody's.
};

void Train(Board* board, int rank, const Behaviour& behaviour) {
  Port port{board, rank};
  // All of it, written as shards: two layers of four query and four key heads.
  gyro_shard shards[] = {{0, 0, 0, 4}, {0, 1, 0, 4}, {1, 0, 0, 4}, {1, 1, 0, 4}};
  if (behaviour.leaves_a_hole && rank == 3) shards[2].row_end = 3;
  const gyro_collective collective = {sizeof(collective), &port, &Port::Begin, &Port::Wait,
                                      static_cast<uint32_t>(rank), shards, 4, nullptr, nullptr};
  const gyro_options options = OptionsOf(rank, &collective);
  std::unique_ptr<RightDaemon> daemon;
  if (rank == 0) daemon = std::make_unique<RightDaemon>();
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
  _exit(0);
}

// Runs all ranks and returns what they left; the caller looks.
std::unique_ptr<Board, void (*)(Board*)> RunRanks(const Behaviour& behaviour) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::unique_ptr<Board, void (*)(Board*)> board(new (memory) Board(), [](Board* b) { munmap(b, sizeof(Board)); });
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    alarm(50);  // A rank that fails must not leave the others waiting for ever.
    Train(board.get(), rank, behaviour);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  return board;
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
    EXPECT_EQ(board->collectives[rank].load(), board->collectives[0].load());
    EXPECT_EQ(board->collectives[rank].load(), kSteps + 1u);  // One a boundary, and the join.
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
