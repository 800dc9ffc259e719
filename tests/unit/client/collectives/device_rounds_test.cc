#include "client/collectives/device_rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/fake_nccl.h"

namespace gyrostat::collectives {
namespace {

using testing::FakeNccl;
using testing::FakeStream;
using Calls = std::vector<std::string>;
using std::chrono::milliseconds;

constexpr int kRanks = 4;
constexpr milliseconds kLong(120000);

gyro_nccl_id NewId() {
  gyro_nccl_id id;
  EXPECT_EQ(FakeNccl::Table().unique_id(&id), 0);
  return id;
}

struct Rank {
  Rank(const gyro_nccl_id& id, int rank, int size, bool sums, size_t lanes_max = 4096) {
    const DeviceRoundsOptions options = {
        .rank = rank, .size = size, .sums = sums, .id = &id, .stream = &stream, .lanes_max = lanes_max};
    rounds = DeviceRounds::Open(FakeNccl::Table(), options, &error);
    FakeNccl::Calls();
  }
  bool Both(Reduction kind, std::vector<float>* lanes) {
    return rounds->Begin(kind, lanes->data(), lanes->size()) && rounds->Wait(kind, lanes->data(), lanes->size());
  }

  FakeStream stream;
  std::string error;
  std::unique_ptr<DeviceRounds> rounds;
};

void OnThreads(int ranks, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST(DeviceRounds, ReduceOverRanksAndLaunchMaxAndSumAsOneGroup) {
  const int before = FakeNccl::Outstanding();
  const gyro_nccl_id id = NewId();
  OnThreads(kRanks, [&](int r) {
    Rank rank(id, r, kRanks, true);
    ASSERT_NE(rank.rounds, nullptr) << rank.error;
    for (int round = 0; round < 30; ++round) {
      std::vector<float> max = {static_cast<float>(r), -static_cast<float>(r), static_cast<float>(round)};
      std::vector<float> sum = {1, static_cast<float>(r)};
      ASSERT_TRUE(rank.rounds->Begin(Reduction::kMax, max.data(), 3));
      EXPECT_EQ(FakeNccl::Calls(), Calls());  // Staged: nothing is launched before the SUM.
      ASSERT_TRUE(rank.rounds->Begin(Reduction::kSum, sum.data(), 2));
      EXPECT_EQ(FakeNccl::Calls(), (Calls{"copy>", "copy>", "group(", "max 3", "sum 2", ")group", "copy<", "copy<",
                                          "record"}));
      ASSERT_TRUE(rank.rounds->Wait(Reduction::kMax, max.data(), 3)) << rank.rounds->error();
      ASSERT_TRUE(rank.rounds->Wait(Reduction::kSum, sum.data(), 2));
      for (const std::string& call : FakeNccl::Calls()) EXPECT_TRUE(call == "query" || call == "error?") << call;
      EXPECT_EQ(max, (std::vector<float>{3, 0, static_cast<float>(round)}));
      EXPECT_EQ(sum, (std::vector<float>{4, 6}));
    }
    EXPECT_TRUE(rank.rounds->Finish(kLong));
  });
  EXPECT_EQ(FakeNccl::Outstanding(), before);
}

TEST(DeviceRounds, AMaxThatIsWaitedForAloneIsLaunchedThen) {
  const gyro_nccl_id id = NewId();
  OnThreads(2, [&](int r) {
    Rank rank(id, r, 2, true);
    std::vector<float> lanes = {static_cast<float>(r)};
    ASSERT_TRUE(rank.rounds->Begin(Reduction::kMax, lanes.data(), 1));
    ASSERT_TRUE(rank.rounds->Wait(Reduction::kMax, lanes.data(), 1));
    EXPECT_EQ(lanes[0], 1);
  });
}

// What must hold for training to keep its pace: a round is begun while kernels are queued before it, and it is over
// although the whole next step is queued behind it and has not run.
TEST(DeviceRounds, NeitherBeginningNorWaitingDrainsTheStream) {
  const gyro_nccl_id id = NewId();
  OnThreads(2, [&](int r) {
    Rank rank(id, r, 2, false);
    std::vector<float> lanes = {static_cast<float>(r), 5};
    bool before = false, after = false;
    rank.stream.Close();
    rank.stream.Queue([&] { before = true; });
    ASSERT_TRUE(rank.rounds->Begin(Reduction::kMax, lanes.data(), 2));
    EXPECT_EQ(FakeNccl::Calls(), (Calls{"copy>", "group(", "max 2", ")group", "copy<", "record"}));
    EXPECT_FALSE(before);  // It returned although nothing of the stream has run.
    lanes = {7, 7};        // Nor does it look at the lanes any more.
    rank.stream.Open();
    rank.stream.Close();  // The next step: it does not run.
    rank.stream.Queue([&] { after = true; });
    ASSERT_TRUE(rank.rounds->Wait(Reduction::kMax, lanes.data(), 2));
    EXPECT_TRUE(before);
    EXPECT_FALSE(after);
    EXPECT_EQ(lanes, (std::vector<float>{1, 5}));
    rank.stream.Open();
    rank.stream.Drain();
    EXPECT_TRUE(after);
  });
}

TEST(DeviceRounds, AreDoneOnceTheEventHasPassed) {
  const gyro_nccl_id id = NewId();
  Rank rank(id, 0, 1, true);
  EXPECT_TRUE(rank.rounds->Done());
  EXPECT_EQ(FakeNccl::Calls(), Calls());  // There is nothing to ask for.
  float max = 3, sum = 4;
  rank.stream.Close();
  ASSERT_TRUE(rank.rounds->Begin(Reduction::kMax, &max, 1));
  EXPECT_FALSE(rank.rounds->Done()) << "it is staged only";
  EXPECT_EQ(FakeNccl::Calls(), Calls());
  ASSERT_TRUE(rank.rounds->Begin(Reduction::kSum, &sum, 1));
  FakeNccl::Calls();
  EXPECT_FALSE(rank.rounds->Done());
  EXPECT_EQ(FakeNccl::Calls(), Calls{"query"});
  rank.stream.Open();
  rank.stream.Drain();
  FakeNccl::FailNext("cudaEventQuery", 1);
  EXPECT_FALSE(rank.rounds->Done()) << "what fails is for the wait to find";
  EXPECT_TRUE(rank.rounds->Done());
  ASSERT_TRUE(rank.rounds->Wait(Reduction::kMax, &max, 1)) << rank.rounds->error();
  ASSERT_TRUE(rank.rounds->Wait(Reduction::kSum, &sum, 1));
  FakeNccl::FailNext("ncclGroupStart", 1);
  ASSERT_TRUE(rank.rounds->Begin(Reduction::kMax, &max, 1));
  EXPECT_FALSE(rank.rounds->Begin(Reduction::kSum, &sum, 1));
  EXPECT_TRUE(rank.rounds->Done()) << "it failed: no wait blocks";
  EXPECT_FALSE(rank.rounds->Wait(Reduction::kMax, &max, 1));
}

TEST(DeviceRounds, AskingSpoilsNoCaptureOfTheTrainingThread) {
  const gyro_nccl_id id = NewId();
  Rank rank(id, 0, 1, false);
  float lane = 3;
  ASSERT_TRUE(rank.rounds->Begin(Reduction::kMax, &lane, 1));
  rank.stream.Drain();
  FakeNccl::Capture(true);
  EXPECT_TRUE(rank.rounds->Done());
  EXPECT_TRUE(rank.rounds->Wait(Reduction::kMax, &lane, 1));
  EXPECT_FALSE(FakeNccl::CaptureIsSpoilt());
  FakeNccl::Table().event_query(nullptr);
  EXPECT_TRUE(FakeNccl::CaptureIsSpoilt()) << "the thread's own mode is as it was";
  FakeNccl::Capture(false);
}

TEST(DeviceRounds, APeerThatDiesFailsTheRoundAndFreesTheStream) {
  const int before = FakeNccl::Outstanding();
  const gyro_nccl_id id = NewId();
  std::vector<std::unique_ptr<Rank>> ranks(3);
  OnThreads(3, [&](int r) { ranks[static_cast<size_t>(r)] = std::make_unique<Rank>(id, r, 3, false); });
  std::thread killer([&] { FakeNccl::Kill(id, 2); });  // Rank 2 never begins.
  OnThreads(2, [&](int r) {
    Rank& rank = *ranks[static_cast<size_t>(r)];
    std::vector<float> lanes = {1};
    ASSERT_TRUE(rank.rounds->Begin(Reduction::kMax, lanes.data(), 1));
    EXPECT_FALSE(rank.rounds->Wait(Reduction::kMax, lanes.data(), 1));
    EXPECT_EQ(rank.rounds->error(), "an all-reduce failed: a remote process is gone");
    rank.stream.Drain();  // The kernel that waited for the dead has ended.
    FakeNccl::Calls();
    EXPECT_FALSE(rank.rounds->Begin(Reduction::kMax, lanes.data(), 1));
    EXPECT_EQ(FakeNccl::Calls(), Calls());  // Nothing is launched any more.
    EXPECT_TRUE(rank.rounds->Finish(kLong));
  });
  killer.join();
  ranks.clear();
  EXPECT_EQ(FakeNccl::Outstanding(), before);
}

TEST(DeviceRounds, ACommunicatorOfTheJobsIsLeftAlone) {
  const int before = FakeNccl::Outstanding();
  FakeNccl::Calls();  // What threads of other tests have called on this one.
  const gyro_nccl_id id = NewId();
  void* communicator = nullptr;
  ASSERT_EQ(FakeNccl::Table().init_rank(&communicator, 1, id, 0), 0);
  {
    FakeStream stream;
    std::string error;
    auto rounds = DeviceRounds::Open(
        FakeNccl::Table(), {.communicator = communicator, .stream = &stream, .lanes_max = 8}, &error);
    ASSERT_NE(rounds, nullptr) << error;
    float lane = 4;
    ASSERT_TRUE(rounds->Begin(Reduction::kMax, &lane, 1));
    ASSERT_TRUE(rounds->Wait(Reduction::kMax, &lane, 1));
    FakeNccl::FailNext("ncclGroupEnd", 1);
    EXPECT_FALSE(rounds->Begin(Reduction::kMax, &lane, 1));
    EXPECT_EQ(rounds->error(), "ncclGroupEnd failed: the fake refused");
    EXPECT_TRUE(rounds->Finish(kLong));
  }
  const Calls calls = FakeNccl::Calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "abort") + std::count(calls.begin(), calls.end(), "destroy"), 0);
  FakeNccl::Table().destroy(communicator);
  EXPECT_EQ(FakeNccl::Outstanding(), before);
}

TEST(DeviceRounds, EveryCallThatFailsIsNamedAndNothingLeaks) {
  const int before = FakeNccl::Outstanding();
  for (const char* call : {"cudaHostAlloc", "cudaMalloc", "cudaEventCreateWithFlags", "ncclCommInitRank"}) {
    FakeNccl::FailNext(call, 2);
    const gyro_nccl_id id = NewId();
    const Rank rank(id, 0, 1, true);
    EXPECT_EQ(rank.rounds, nullptr);
    EXPECT_EQ(rank.error.rfind(std::string(call) + " failed: ", 0), 0u) << rank.error;
  }
  for (const char* call : {"cudaMemcpyAsync", "ncclGroupStart", "ncclAllReduce", "ncclGroupEnd", "cudaEventRecord",
                           "cudaEventQuery", "ncclCommGetAsyncError"}) {
    const gyro_nccl_id id = NewId();
    Rank rank(id, 0, 1, false);
    FakeNccl::FailNext(call, 2);
    std::vector<float> lanes = {1, 2};
    EXPECT_FALSE(rank.Both(Reduction::kMax, &lanes)) << call;
    EXPECT_EQ(rank.rounds->error().rfind(call, 0), 0u) << rank.rounds->error();
    EXPECT_EQ(lanes, (std::vector<float>{1, 2}));
    const Calls calls = FakeNccl::Calls();
    EXPECT_EQ(std::count(calls.begin(), calls.end(), "abort"), 1) << call;
    EXPECT_EQ(std::count(calls.begin(), calls.end(), "group("), std::count(calls.begin(), calls.end(), ")group") +
              (std::string(call) == "ncclGroupStart" ? 1 : 0)) << call;
    EXPECT_EQ(rank.rounds->Finish(kLong), std::string(call) != "cudaEventRecord");
  }
  // Without an event nobody knows when the stream is done with them: two buffers and the event itself.
  EXPECT_EQ(FakeNccl::Outstanding(), before + 3);
}

TEST(DeviceRounds, WhatIsOutOfTurnOrTooLargeIsRefused) {
  const gyro_nccl_id id = NewId();
  Rank rank(id, 0, 1, false, 4);
  float lanes[5] = {1, 2, 3, 4, 5};
  EXPECT_FALSE(rank.rounds->Wait(Reduction::kMax, lanes, 1));
  EXPECT_EQ(rank.rounds->error(), "a MAX was waited for and not begun");
  EXPECT_FALSE(rank.rounds->Begin(Reduction::kSum, lanes, 1));
  EXPECT_EQ(rank.rounds->error(), "a SUM was begun, and sums is 0");
  ASSERT_TRUE(rank.rounds->Begin(Reduction::kMax, lanes, 4));
  EXPECT_FALSE(rank.rounds->Begin(Reduction::kMax, lanes, 4));
  EXPECT_EQ(rank.rounds->error(), "a MAX was begun before the last one was waited for");
  EXPECT_FALSE(rank.rounds->Wait(Reduction::kMax, lanes, 3));
  EXPECT_EQ(rank.rounds->error(), "a MAX of 4 lanes was waited for with 3");
  EXPECT_FALSE(rank.rounds->Begin(Reduction::kMax, lanes, 5));
  EXPECT_EQ(rank.rounds->error(), "a MAX has 5 lanes, wanted at most lanes_max, 4");
}

}  // namespace
}  // namespace gyrostat::collectives
