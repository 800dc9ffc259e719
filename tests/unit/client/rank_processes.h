// Ranks in processes of their own, and an all-reduce MAX between them in shared memory.
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

namespace gyrostat::testing {

// Lives in shared memory; zeros are a valid beginning. One collective at a time.
template <int kRanks>
struct SharedMax {
  static constexpr size_t kLanesMax = 4096;
  std::atomic<uint32_t> arrived, round;
  std::atomic<uint32_t> collectives[kRanks];
  float lanes[kRanks][kLanesMax];

  void Meet(uint32_t members) {
    const uint32_t before = round.load();
    if (arrived.fetch_add(1) + 1 == members) {
      arrived.store(0);
      round.fetch_add(1);
    } else {
      while (round.load() == before) sched_yield();
    }
  }
};

// What one rank gives to gyro_collective as its context.
template <int kRanks>
struct MaxPort {
  SharedMax<kRanks>* shared;
  int rank;
  int members = kRanks;  // Ranks 0 to members - 1 take part.

  static int Begin(void* context, float* lanes, size_t count) {
    const MaxPort& port = *static_cast<MaxPort*>(context);
    if (count > SharedMax<kRanks>::kLanesMax) return 1;
    port.shared->collectives[port.rank].fetch_add(1);
    std::memcpy(port.shared->lanes[port.rank], lanes, count * sizeof(float));
    return 0;
  }
  static int Wait(void* context, float* lanes, size_t count) {
    const MaxPort& port = *static_cast<MaxPort*>(context);
    const auto members = static_cast<uint32_t>(port.members);
    port.shared->Meet(members);
    for (size_t i = 0; i < count; ++i)
      for (uint32_t each = 0; each < members; ++each) lanes[i] = std::max(lanes[i], port.shared->lanes[each][i]);
    port.shared->Meet(members);  // Nobody writes the next before all have read this.
    return 0;
  }
};

// Runs `train(board, rank)` in `ranks` processes, and returns what they left on the board in shared memory.
template <class Board, class Train>
std::unique_ptr<Board, void (*)(Board*)> RunProcesses(int ranks, const Train& train) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::unique_ptr<Board, void (*)(Board*)> board(new (memory) Board(), [](Board* b) { munmap(b, sizeof(Board)); });
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    alarm(50);  // A rank that fails must not leave the others waiting for ever.
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
