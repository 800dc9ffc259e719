// A job whose ranks are forked processes of one machine, and its collective: a MAX and a SUM over lanes in shared
// memory, by two barriers each. What a real backend does over a network, this does by waiting in turn.
//
// Each rank's callbacks are called on one thread. The board is made before the ranks fork.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "gyrostat/gyrostat.h"

namespace gyrostat::testing {

template <int kRanks, size_t kLanesMax = 8192>
struct SharedBoard {
  struct Round {
    std::atomic<uint32_t> begun[kRanks];
    float lanes[kRanks][kLanesMax];
  };
  std::atomic<uint32_t> arrived, turn;
  Round max, sum;

  void Meet(uint32_t members) {
    const uint32_t before = turn.load();
    if (arrived.fetch_add(1) + 1 == members) {
      arrived.store(0);
      turn.fetch_add(1);
    } else {
      while (turn.load() == before) sched_yield();
    }
  }
};

// Zeroed memory that forked children share.
template <class Board>
std::unique_ptr<Board, void (*)(Board*)> NewSharedBoard() {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return {new (memory) Board(), [](Board* board) { munmap(board, sizeof(Board)); }};
}

template <int kRanks, size_t kLanesMax = 8192>
struct SharedPort {
  using Board = SharedBoard<kRanks, kLanesMax>;
  Board* board;
  int rank;
  int members = kRanks;  // Ranks 0 to members - 1 take part.

  // With or without a SUM. The port outlives the client.
  gyro_collective Collective(uint32_t replica, bool sums) {
    gyro_collective collective{};
    collective.struct_size = sizeof(collective);
    collective.context = this;
    collective.max_begin = [](void* port, float* lanes, size_t count) { return Begin(port, false, lanes, count); };
    collective.max_wait = [](void* port, float* lanes, size_t count) { return Wait(port, false, lanes, count); };
    collective.replica = replica;
    if (!sums) return collective;
    collective.sum_begin = [](void* port, float* lanes, size_t count) { return Begin(port, true, lanes, count); };
    collective.sum_wait = [](void* port, float* lanes, size_t count) { return Wait(port, true, lanes, count); };
    return collective;
  }

 private:
  static int Begin(void* context, bool sum, float* lanes, size_t count) {
    const SharedPort& port = *static_cast<SharedPort*>(context);
    if (count > kLanesMax) return 1;
    typename Board::Round& round = sum ? port.board->sum : port.board->max;
    round.begun[port.rank].fetch_add(1);
    std::memcpy(round.lanes[port.rank], lanes, count * sizeof(float));
    return 0;
  }
  static int Wait(void* context, bool sum, float* lanes, size_t count) {
    const SharedPort& port = *static_cast<SharedPort*>(context);
    const typename Board::Round& round = sum ? port.board->sum : port.board->max;
    const auto members = static_cast<uint32_t>(port.members);
    port.board->Meet(members);
    for (size_t i = 0; i < count; ++i) {
      lanes[i] = round.lanes[0][i];
      for (uint32_t rank = 1; rank < members; ++rank)
        lanes[i] = sum ? lanes[i] + round.lanes[rank][i] : std::max(lanes[i], round.lanes[rank][i]);
    }
    port.board->Meet(members);  // Nobody writes the next before all have read this.
    return 0;
  }
};

// Runs `train(board, rank)` in `ranks` processes, and returns what they left on the board in shared memory.
template <class Board, class Train>
std::unique_ptr<Board, void (*)(Board*)> RunProcesses(int ranks, const Train& train) {
  auto board = NewSharedBoard<Board>();
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    alarm(600);  // A rank that fails must not leave the others waiting for ever.
    train(board.get(), rank);
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  return board;
}

}  // namespace gyrostat::testing
