// The collective of a job whose ranks are forked processes of one machine: a MAX and a SUM over lanes in shared memory,
// by two barriers each. What a real backend does over a network, this does by waiting in turn.
//
// Each rank's callbacks are called on one thread. The board is made before the ranks fork.
#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

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

  void Meet() {
    const uint32_t before = turn.load();
    if (arrived.fetch_add(1) + 1 == kRanks) {
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
    port.board->Meet();
    for (size_t i = 0; i < count; ++i) {
      lanes[i] = round.lanes[0][i];
      for (int rank = 1; rank < kRanks; ++rank)
        lanes[i] = sum ? lanes[i] + round.lanes[rank][i] : std::max(lanes[i], round.lanes[rank][i]);
    }
    port.board->Meet();  // Nobody writes the next before all have read this.
    return 0;
  }
};

}  // namespace gyrostat::testing
