#include "client/src/agreement/join.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "support/clip_client.h"

namespace gyrostat::client {
namespace {

constexpr uint32_t kRows = 8;
using Projection = RowCover::Projection;

// Two replicas of two tensor-parallel ranks each: two layers of four heads of eight rows.
class Join : public ::testing::Test {
 protected:
  Join() {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      JoinWord& word = words_.emplace_back();
      word.layout.statistics = 8;
      word.world_size = 4;
      word.rank = rank;
      word.replica = rank / 2;
      word.digest = 0xfeed;
      word.attempt.bytes.fill(static_cast<uint8_t>(250 + rank));
      const uint64_t first = rank % 2 * 16;
      for (uint32_t layer = 0; layer < 2; ++layer)
        for (const Projection projection : {Projection::kQuery, Projection::kKey})
          word.cover.Add(layer, projection, first, first + 16);
    }
  }

  std::vector<float> Reduced() const {
    std::vector<float> max(JoinLanes(4), -1e30f), one(max.size());
    for (const JoinWord& word : words_) {
      WriteJoin(word, one);
      for (size_t i = 0; i < max.size(); ++i) max[i] = std::max(max[i], one[i]);
    }
    return max;
  }

  // All ranks must come to the same answer.
  JoinResult Result() const {
    const std::vector<float> lanes = Reduced();
    const JoinResult first = ReadJoin(words_[0], whole_, lanes);
    for (const JoinWord& word : words_) {
      const JoinResult each = ReadJoin(word, whole_, lanes);
      EXPECT_EQ(each.may_act, first.may_act);
      EXPECT_EQ(each.reason, first.reason);
      EXPECT_EQ(each.attempt, first.attempt);
    }
    return first;
  }

  const RowCover whole_ = RowCover::Whole(testing::ClipModel(2, 4), kRows);
  std::vector<JoinWord> words_;
};

TEST_F(Join, EqualRanksMayActUnderTheLeadersAttempt) {
  const JoinResult result = Result();
  EXPECT_TRUE(result.may_act) << result.reason;
  EXPECT_EQ(result.attempt, words_[0].attempt);
}

TEST_F(Join, ShardsMayCutHeads) {
  words_[0].cover = words_[1].cover = {};
  for (uint32_t layer = 0; layer < 2; ++layer)
    for (const Projection projection : {Projection::kQuery, Projection::kKey}) {
      words_[0].cover.Add(layer, projection, 0, 13);
      words_[1].cover.Add(layer, projection, 13, 32);
    }
  EXPECT_TRUE(Result().may_act) << Result().reason;
}

TEST_F(Join, ARowThatNobodyOwnsIsFound) {
  words_[3].cover = {};
  words_[3].cover.Add(0, Projection::kQuery, 16, 32);
  EXPECT_EQ(Result().reason, "the ranks of replica 1 own 80 rows of query and key heads, wanted each of 128 once");
  EXPECT_FALSE(Result().may_act);
}

TEST_F(Join, ARowThatIsOwnedTwiceIsFoundThoughTheirNumberIsRight) {
  words_[1].cover = words_[0].cover;
  EXPECT_EQ(Result().reason,
            "the ranks of replica 0 own 128 rows of query and key heads, wanted each of 128 once: some are owned twice "
            "and others by nobody");
}

TEST_F(Join, WhateverDiffersIsNamed) {
  const auto reason = [this](const std::function<void(JoinWord*)>& change) {
    const std::vector<JoinWord> before = words_;
    change(&words_[2]);
    const JoinResult result = Result();
    words_ = before;
    EXPECT_FALSE(result.may_act);
    EXPECT_EQ(result.attempt, words_[0].attempt);
    return result.reason;
  };
  EXPECT_EQ(reason([](JoinWord* w) { w->lag = 2; }), "the ranks differ in lag");
  EXPECT_EQ(reason([](JoinWord* w) { w->layout.entries = 7; }), "the ranks differ in number of entries in R");
  EXPECT_EQ(reason([](JoinWord* w) { w->digest ^= uint64_t{1} << 63; }),
            "the ranks differ in terms (allow-list, bounds or model)");
  EXPECT_EQ(reason([](JoinWord* w) { w->ready = false; }), "a rank cannot act on its weights");
}

TEST_F(Join, WhoComesLaterGoesOnWhereTheOthersStand) {
  words_[1].epoch = 3;
  words_[1].boundary = 500;
  words_[2].epoch = 2;
  words_[2].boundary = 501;
  EXPECT_TRUE(Result().may_act) << Result().reason;
  EXPECT_EQ(Result().epoch, 3u);
  EXPECT_EQ(Result().boundary, 501u);
  words_[2].boundary = kLaneIntegerMax;
  EXPECT_EQ(Result().reason, "a rank cannot act on its weights");
}

TEST_F(Join, WhatDiffersInLengthIsNotIssued) {
  EXPECT_EQ(Result().replicas, 2u);
  EXPECT_TRUE(Result().same_round && Result().same_sums);
  words_[1].layout.sums = 12;
  EXPECT_EQ(Result().reason, "the ranks differ in number of sums beside R");
  EXPECT_TRUE(Result().same_round);
  EXPECT_FALSE(Result().same_sums);
  words_[1].layout.sums = 0;
  words_[2].layout.more = 3;
  EXPECT_EQ(Result().reason, "the ranks differ in number of statistics in R");
  EXPECT_FALSE(Result().same_round);
  EXPECT_TRUE(Result().same_sums);
}

TEST_F(Join, ARankThatIsMissingIsNamed) {
  words_.pop_back();
  EXPECT_EQ(Result().reason, "rank 3 did not join, wanted all 4");
}

TEST_F(Join, LanesOfAnotherSizeAreNoJoin) {
  EXPECT_FALSE(ReadJoin(words_[0], whole_, std::vector<float>(3)).may_act);
}

}  // namespace
}  // namespace gyrostat::client
