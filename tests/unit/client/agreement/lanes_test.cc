#include "client/src/agreement/lanes.h"

#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <cstring>
#include <random>

#include "model/signal.h"

namespace gyrostat::client {
namespace {

using ::testing::ElementsAre;

constexpr LaneLayout kLayout{.entries = 64, .statistics = 5};

std::vector<float> Written(const RankWord& word) {
  std::vector<float> lanes(kLayout.size(), -1);
  EXPECT_TRUE(WriteWord(kLayout, word, lanes));
  return lanes;
}

std::vector<float> Max(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> max(a.size());
  for (size_t i = 0; i < a.size(); ++i) max[i] = std::max(a[i], b[i]);
  return max;
}

Round Read(const std::vector<float>& lanes) {
  Round round;
  ReadRound(kLayout, lanes, &round);
  return round;
}

Proposal SomeClip() {
  Proposal p;
  p.tag = {{0xffffff, 0, 0x123456}};
  p.kind = ProposalKind::kClip;
  p.variant = model::ClipVariant::kGroupMin;
  p.tau = 29.7f;
  p.split = 0.5f;
  p.entries = {{3, 2414435, 1}, {0xfffffe, 1, 63}};
  return p;
}

TEST(Lanes, TakesTheRoomOfTheProtocol) {
  EXPECT_EQ(LaneLayout{}.statistics_at(), 22u + 3 * 340);
  EXPECT_EQ((LaneLayout{.entries = 2, .statistics = 7}.size()), 22u + 6 + 7);
}

TEST(Lanes, EqualWordsAreReadAsEqual) {
  for (const uint64_t digest : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{0x8000'0000'0000'0001}}) {
    const std::vector<float> one = Written({.digest = digest, .boundary = 0x1'0000'0005});
    const Round round = Read(Max(one, one));
    EXPECT_TRUE(round.digests_equal);
    EXPECT_TRUE(round.boundaries_equal);
    EXPECT_EQ(round.digest, digest);
    EXPECT_EQ(round.boundary, 5u);  // Mod 2^32.
    EXPECT_FALSE(round.not_ready || round.bad_input || round.malformed);
  }
}

TEST(Lanes, EachSingleBitThatDiffersIsSeen) {
  const std::vector<float> base = Written({.digest = 0x0123'4567'89ab'cdef, .boundary = 77});
  for (int bit = 0; bit < 64; ++bit) {
    const std::vector<float> other = Written({.digest = 0x0123'4567'89ab'cdef ^ uint64_t{1} << bit, .boundary = 77});
    EXPECT_FALSE(Read(Max(base, other)).digests_equal) << bit;
    EXPECT_TRUE(Read(Max(base, other)).boundaries_equal);
  }
  for (int bit = 0; bit < 32; ++bit)
    EXPECT_FALSE(Read(Max(base, Written({.digest = 0x0123'4567'89ab'cdef, .boundary = 77 ^ uint64_t{1} << bit})))
                     .boundaries_equal);
}

TEST(Lanes, OneRankThatIsNotReadySpeaksForAll) {
  const std::vector<float> yes = Written({.digest = 1}), no = Written({.digest = 1, .not_ready = true});
  EXPECT_TRUE(Read(Max(yes, no)).not_ready);
  EXPECT_TRUE(Read(Max(yes, Written({.digest = 1, .bad_input = true}))).bad_input);
}

TEST(Lanes, TheLeadersOrderPassesTheMaxBitForBit) {
  const Proposal order = SomeClip();
  const Round round = Read(Max(Written({.digest = 9}), Written({.digest = 9, .proposal = &order})));
  EXPECT_FALSE(round.malformed);
  EXPECT_EQ(round.proposal, order);
}

TEST(Lanes, AnEmptyOrderAreaIsNoOrder) {
  const Round round = Read(Written({}));
  EXPECT_EQ(round.proposal.kind, ProposalKind::kNone);
  EXPECT_TRUE(round.proposal.entries.empty());
}

TEST(Lanes, WhatDoesNotFitIsNotWritten) {
  const auto refused = [](auto change) {
    Proposal order = SomeClip();
    change(&order);
    std::vector<float> lanes(kLayout.size());
    const bool fits = WriteWord(kLayout, {.digest = 3, .proposal = &order}, lanes);
    EXPECT_EQ(Read(lanes).proposal.kind, ProposalKind::kNone);
    return !fits;
  };
  EXPECT_TRUE(refused([](Proposal* p) { p->entries.resize(65); }));
  EXPECT_TRUE(refused([](Proposal* p) { p->entries[0].what = kLaneIntegerMax; }));
  EXPECT_TRUE(refused([](Proposal* p) { p->entries[0].value = -1; }));
  EXPECT_TRUE(refused([](Proposal* p) { p->entries[0].value = std::numeric_limits<float>::infinity(); }));
  EXPECT_TRUE(refused([](Proposal* p) { p->tau = std::nanf(""); }));
  EXPECT_TRUE(refused([](Proposal* p) { p->ramp = kLaneIntegerMax; }));
}

TEST(Lanes, LanesThatNobodyWritesAreMalformed) {
  const Proposal order = SomeClip();
  const std::vector<float> good = Written({.proposal = &order});
  for (size_t i = LaneLayout::kOrder; i < LaneLayout::kEntries + 3; ++i)
    for (const float wrong : {-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
      std::vector<float> lanes = good;
      lanes[i] = wrong;
      EXPECT_TRUE(Read(lanes).malformed) << i << " " << wrong;
      EXPECT_EQ(Read(lanes).proposal.kind, ProposalKind::kNone);
    }
  std::vector<float> too_many = good;
  too_many[LaneLayout::kOrder + 7] = 65;
  EXPECT_TRUE(Read(too_many).malformed);
}

TEST(Lanes, AnythingCanBeRead) {
  std::mt19937 random(5);
  std::vector<float> lanes(kLayout.size());
  for (int i = 0; i < 2000; ++i) {
    for (float& lane : lanes) {
      const auto bits = static_cast<uint32_t>(random());
      std::memcpy(&lane, &bits, sizeof(lane));
    }
    EXPECT_FALSE(Read(lanes).digests_equal);
  }
}

TEST(Lanes, AStatisticThatIsBrokenWins) {
  EXPECT_EQ(ToLane(std::nanf("")), FLT_MAX);
  EXPECT_EQ(ToLane(std::numeric_limits<float>::infinity()), FLT_MAX);
  EXPECT_EQ(ToLane(-std::numeric_limits<float>::infinity()), -FLT_MAX);
  EXPECT_EQ(ToLane(-3.5f), -3.5f);
  EXPECT_TRUE(std::isnan(FromLane(FLT_MAX)));
  EXPECT_EQ(FromLane(-FLT_MAX), model::kAbsent);
  EXPECT_EQ(FromLane(31.25f), 31.25f);
}

TEST(OrderTag, IsTheBeginningOfTheId) {
  model::OrderId id;
  for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<uint8_t>(200 + i);
  const OrderTag tag = OrderTag::Of(id);
  EXPECT_THAT(tag.pieces, ElementsAre(0xcac9c8u, 0xcdcccbu, 0xd0cfceu));
  EXPECT_EQ(OrderTag::Of(tag.AsId()), tag);
  EXPECT_EQ(tag.AsId().bytes[8], 208);
  EXPECT_EQ(tag.AsId().bytes[9], 0);
}

}  // namespace
}  // namespace gyrostat::client
