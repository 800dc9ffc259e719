#include "notify/hook_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/notify/notices.h"

namespace gyrostat::notify {
namespace {

using base::Milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::NoticeOf;
using Verdict = HookQueue::Verdict;

constexpr HookQueue::Timing kTiming{Milliseconds(2000), Milliseconds(1000), Milliseconds(60'000)};

base::MonotonicTime At(int64_t ms) { return base::MonotonicTime(Milliseconds(ms)); }

post::PostResult Result(int status, Milliseconds retry_after = Milliseconds(0)) { return {status, "", retry_after}; }

Webhook Hook(uint32_t queue_max = 256) {
  Webhook hook;
  hook.name = "h";
  hook.queue_max = queue_max;
  return hook;
}

std::vector<std::string> Subjects(const std::vector<Notice>& notices) {
  std::vector<std::string> subjects;
  for (const Notice& each : notices) subjects.push_back(each.run + ":" + each.subject.substr(8));
  return subjects;
}

TEST(HookQueue, GathersFromTheFirstNoticeOn) {
  HookQueue queue(Hook(), kTiming, 1);
  EXPECT_EQ(queue.DueAt(false), std::nullopt);
  queue.Push(NoticeOf(1), At(0));
  queue.Push(NoticeOf(2), At(1999));
  EXPECT_EQ(queue.DueAt(false), At(2000));
  EXPECT_THAT(queue.Next(At(1999), false), IsEmpty());
  EXPECT_THAT(Subjects(queue.Next(At(2000), false)), ElementsAre("run:1", "run:2"));
  EXPECT_EQ(queue.DueAt(false), std::nullopt) << "one message at a time";
  EXPECT_THAT(queue.Next(At(9000), false), IsEmpty());
}

TEST(HookQueue, DoesNotGatherInAHurry) {
  HookQueue queue(Hook(), kTiming, 1);
  queue.Push(NoticeOf(1), At(5));
  EXPECT_EQ(queue.Next(At(5), true).size(), 1u);
}

TEST(HookQueue, MakesAStormOneMessage) {
  HookQueue queue(Hook(1000), kTiming, 1);
  for (uint64_t id = 1; id <= 500; ++id) queue.Push(NoticeOf(id), At(static_cast<int64_t>(id)));
  EXPECT_EQ(queue.Next(At(2001), false).size(), 500u);
}

TEST(HookQueue, KeepsRunsApartInOrder) {
  HookQueue queue(Hook(), kTiming, 1);
  queue.Push(NoticeOf(1, Kind::kFindingRaised, "a"), At(0));
  queue.Push(NoticeOf(2, Kind::kFindingRaised, "b"), At(1));
  queue.Push(NoticeOf(3, Kind::kFindingResolved, "a"), At(2));
  EXPECT_THAT(Subjects(queue.Next(At(3000), false)), ElementsAre("a:1", "a:3"));
  EXPECT_EQ(queue.Answered(Result(200), At(3001)), Verdict::kTaken);
  EXPECT_THAT(Subjects(queue.Next(At(3001), false)), ElementsAre("b:2")) << "it has waited long enough";
}

TEST(HookQueue, GivesGrafanaOneKindAtATime) {
  Webhook hook = Hook();
  hook.format = Format::kGrafana;
  HookQueue queue(hook, kTiming, 1);
  queue.Push(NoticeOf(1, Kind::kFindingRaised), At(0));
  queue.Push(NoticeOf(1, Kind::kFindingResolved), At(0));
  queue.Push(NoticeOf(2, Kind::kFindingRaised), At(0));
  EXPECT_THAT(Subjects(queue.Next(At(2000), false)), ElementsAre("run:1", "run:2"));
}

TEST(HookQueue, DropsTheOldestAndSaysSoOnceTaken) {
  HookQueue queue(Hook(8), kTiming, 1);
  for (uint64_t id = 1; id <= 11; ++id) queue.Push(NoticeOf(id), At(0));
  EXPECT_EQ(queue.size(), 8u);
  EXPECT_EQ(queue.TakeDropped(), 3u);
  EXPECT_EQ(queue.TakeDropped(), 0u) << "each drop is counted once";
  EXPECT_EQ(queue.dropped(), 3u);
  const auto message = queue.Next(At(2000), false);
  EXPECT_EQ(message.front().subject, "finding/4");
  queue.Push(NoticeOf(12), At(2000));
  EXPECT_EQ(queue.size(), 9u) << "what is under way makes no newer notice go";
  queue.Answered(Result(500), At(2001));
  EXPECT_EQ(queue.size(), 8u);
  EXPECT_EQ(queue.TakeDropped(), 1u);
  EXPECT_EQ(queue.Next(At(60'000), false).back().subject, "finding/12");
  queue.Answered(Result(204), At(60'001));
  EXPECT_EQ(queue.dropped(), 0u) << "the message has told it";
}

TEST(HookQueue, TriesAgainOnlyWhereThatMayHelp) {
  for (const int status : {0, 408, 429, 500, 503}) {
    HookQueue queue(Hook(), kTiming, 1);
    queue.Push(NoticeOf(1), At(0));
    queue.Next(At(2000), false);
    EXPECT_EQ(queue.Answered(Result(status), At(2000)), Verdict::kAgain) << status;
    EXPECT_EQ(queue.size(), 1u);
  }
  for (const int status : {301, 307, 400, 401, 403, 404, 410, 422}) {
    HookQueue queue(Hook(), kTiming, 1);
    queue.Push(NoticeOf(1), At(0));
    queue.Next(At(2000), false);
    EXPECT_EQ(queue.Answered(Result(status), At(2000)), Verdict::kGivenUp) << status;
    EXPECT_EQ(queue.size(), 0u);
  }
}

// Every wait lies within a quarter of its share, and none is above the limit by more.
TEST(HookQueue, WaitsLongerEachTimeUpToItsLimit) {
  HookQueue queue(Hook(), kTiming, 7);
  queue.Push(NoticeOf(1), At(0));
  int64_t now = 2000;
  for (const int64_t wait : {1000, 2000, 4000, 8000, 16'000, 32'000, 60'000, 60'000}) {
    ASSERT_EQ(queue.Next(At(now), false).size(), 1u);
    queue.Answered(Result(503), At(now));
    const int64_t due = queue.DueAt(false)->time_since_epoch() / Milliseconds(1);
    EXPECT_GE(due - now, wait * 3 / 4);
    EXPECT_LE(due - now, wait * 5 / 4);
    EXPECT_THAT(queue.Next(At(due - 1), true), IsEmpty()) << "a hurry is no reason to press a server";
    now = due;
  }
  queue.Next(At(now), false);
  queue.Answered(Result(200), At(now));
  queue.Push(NoticeOf(2), At(now));
  EXPECT_EQ(queue.DueAt(false), At(now + 2000)) << "forgotten once taken";
}

TEST(HookQueue, WaitsAsLongAsTheServerAsks) {
  HookQueue queue(Hook(), kTiming, 1);
  queue.Push(NoticeOf(1), At(0));
  queue.Next(At(2000), false);
  queue.Answered(Result(429, Milliseconds(17'000)), At(2000));
  EXPECT_EQ(queue.DueAt(false), At(19'000));
}

TEST(HookQueue, LetsWhatCameMeanwhileRideAlong) {
  HookQueue queue(Hook(), kTiming, 1);
  queue.Push(NoticeOf(1), At(0));
  queue.Next(At(2000), false);
  queue.Push(NoticeOf(2), At(2500));
  queue.Answered(Result(0), At(3000));
  EXPECT_THAT(Subjects(queue.Next(*queue.DueAt(false), false)), ElementsAre("run:1", "run:2"));
}

TEST(HookQueue, SurvivesAsBytesWithWhatIsUnderWay) {
  HookQueue queue(Hook(8), kTiming, 1);
  for (uint64_t id = 1; id <= 9; ++id) queue.Push(NoticeOf(id), At(0));
  queue.Next(At(2000), false);
  queue.Push(NoticeOf(10), At(2000));
  HookQueue next(Hook(16), kTiming, 1);
  ASSERT_TRUE(next.Load(queue.Save(), At(50)));
  EXPECT_EQ(next.size(), 9u);
  EXPECT_EQ(next.dropped(), 1u);
  EXPECT_EQ(next.TakeDropped(), 0u) << "the other life has counted it";
  EXPECT_EQ(next.DueAt(false), At(2050));
  const auto message = next.Next(At(2050), false);
  EXPECT_EQ(message.front().Id(), "finding/2/finding_raised");
  EXPECT_EQ(message.front().finding->message, NoticeOf(2).finding->message);
}

TEST(HookQueue, IsEmptyAfterForeignBytes) {
  HookQueue queue(Hook(), kTiming, 1);
  queue.Push(NoticeOf(1), At(0));
  const std::string bytes = queue.Save();
  for (size_t cut = 0; cut < bytes.size(); cut += 7) {
    HookQueue other(Hook(), kTiming, 1);
    other.Load(bytes.substr(0, cut), At(0));  // Never crashes.
  }
  EXPECT_FALSE(queue.Load("not ours at all", At(0)));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(HookQueue, PutsBackWhatIsUnderWayWhenItsWebhookChanges) {
  HookQueue queue(Hook(), kTiming, 1);
  queue.Push(NoticeOf(1), At(0));
  queue.Next(At(2000), false);
  Webhook other = Hook();
  other.format = Format::kSlack;
  queue.Configure(other, kTiming);
  EXPECT_FALSE(queue.under_way());
  EXPECT_EQ(queue.Next(At(2000), false).size(), 1u);
}

}  // namespace
}  // namespace gyrostat::notify
