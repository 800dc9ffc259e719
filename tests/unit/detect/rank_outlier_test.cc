#include "detect/rank_outlier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/lcg.h"
#include "unit/detect/feed.h"
#include "unit/detect/resume.h"

namespace gyrostat::detect {
namespace {

using model::Signal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<Detector> Make() { return std::make_unique<RankOutlier>(RankOutlierOptions()); }

struct Slot {
  float rank, loss, norm, time_ms, checksum;
};
using Change = std::function<void(int step, std::vector<Slot>*)>;

// Eight ranks that agree but for noise, changed by `change`.
std::vector<model::Finding> Say(int count, const Change& change) {
  return ExpectResumable(Make, Reports(count, [&](int step, model::Report* r) {
    testing::Lcg random(static_cast<uint64_t>(step));
    std::vector<Slot> slots;
    for (int rank = 0; rank < 8; ++rank)
      slots.push_back({static_cast<float>(rank), static_cast<float>(2.5 + 0.05 * random.Normal()),
                       static_cast<float>(std::exp(0.2 * random.Normal())),
                       static_cast<float>(500 + 10 * random.Normal()), static_cast<float>(1000 + step)});
    change(step, &slots);
    for (const Slot& s : slots)
      for (const float v : {s.rank, s.loss, s.norm, s.time_ms, s.checksum})
        r->MutableArray(Signal::kRankDigest).push_back(v);
  }));
}

TEST(RankOutlier, RanksThatAgreeAreFine) {
  EXPECT_THAT(Say(2000, [](int, std::vector<Slot>*) {}), IsEmpty());
}

TEST(RankOutlier, NamesTheRankWhoseLossIsFarInMostReports) {
  const auto said = Say(60, [](int step, std::vector<Slot>* slots) {
    if (step >= 10 && step % 5 != 0) (*slots)[5].loss = 4;
  });
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].rank, 5u);
  EXPECT_EQ(said[0].severity, model::Severity::kWarning);
  EXPECT_EQ(said[0].value, 4);
  EXPECT_NEAR(said[0].expected, 2.5, 0.1);
  EXPECT_LT(said[0].step_detected, 26);
}

TEST(RankOutlier, OneBadBatchARankAndSpikesThatAllSeeAreNoise) {
  EXPECT_THAT(Say(400, [](int step, std::vector<Slot>* slots) {
    if (step % 16 == 3) (*slots)[static_cast<size_t>(step / 16) % 8].loss = 9;
    if (step % 16 == 7) (*slots)[2].norm = 40;
    if (step % 50 > 44)
      for (Slot& s : *slots) s.loss += 5, s.norm *= 30;
  }), IsEmpty());
}

TEST(RankOutlier, ARankThatIsNotFiniteWhileOthersAre) {
  const auto said = Say(40, [](int step, std::vector<Slot>* slots) {
    if (step >= 10) (*slots)[7].norm = std::numeric_limits<float>::infinity();
  });
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].rank, 7u);
  EXPECT_THAT(Say(40, [](int, std::vector<Slot>* slots) {
    for (Slot& s : *slots) s.loss = std::numeric_limits<float>::quiet_NaN();
  }), IsEmpty());
}

TEST(RankOutlier, ASlowRankIsInformation) {
  const auto said = Say(60, [](int, std::vector<Slot>* slots) { (*slots)[1].time_ms = 800; });
  ASSERT_THAT(Brief(said), ElementsAre(HasSubstr("info")));
  EXPECT_EQ(said[0].rank, 1u);
}

// Steps of a fraction of a millisecond are as long as the processor that ranks share lets them be.
TEST(RankOutlier, AFractionOfAMillisecondHoldsNobodyUp) {
  EXPECT_THAT(Say(200, [](int, std::vector<Slot>* slots) {
    for (Slot& s : *slots) s.time_ms = 0.2f;
    (*slots)[1].time_ms = 0.7f;
  }), IsEmpty());
}

TEST(RankOutlier, WeightsThatDifferAreCriticalAtTheSecondReport) {
  const auto said = Say(60, [](int step, std::vector<Slot>* slots) {
    if (step >= 10 && step < 20) (*slots)[6].checksum += 1;
  });
  ASSERT_THAT(Brief(said), ElementsAre("warning 10.. open", "critical 10.. open", "critical 10..19 healed"));
  EXPECT_EQ(said[1].rank, 6u);
}

TEST(RankOutlier, SlotsMayRotateAndLackValues) {
  const auto said = Say(200, [](int step, std::vector<Slot>* slots) {
    for (Slot& s : *slots) {
      s.rank += static_cast<float>(step % 4) * 8;  // 32 ranks, 8 slots.
      if (s.rank == 21) s.loss = 5;
      if (s.rank == 3) s.loss = model::kAbsent, s.checksum = model::kAbsent, s.time_ms = model::kAbsent;
    }
  });
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].rank, 21u);
}

TEST(RankOutlier, ADigestOfAnotherShapeIsLeftAlone) {
  Feed feed(Make());
  feed.Array(Signal::kRankDigest, {1, 2, 3});
  feed.Array(Signal::kRankDigest, {0, 2.5f, 1, 500, 7});
  feed.Array(Signal::kRankDigest, std::vector<float>(10, model::kAbsent));
  EXPECT_THAT(feed.said, IsEmpty());
}

}  // namespace
}  // namespace gyrostat::detect
