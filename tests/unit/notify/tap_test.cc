#include "notify/tap.h"

#include <gtest/gtest.h>

#include <utility>

#include "support/engine_fakes.h"
#include "support/journal_entries.h"
#include "unit/notify/notices.h"

namespace gyrostat::notify {
namespace {

using testing::FakeJournal;

class TapTest : public ::testing::Test {
 protected:
  engine::JournalEntry Entry(uint64_t finding, bool snapshot = false) {
    engine::JournalEntry entry = testing::PlainEntry("run", 1, testing::IdOf(1));
    if (finding != 0) entry.findings = {testing::FindingOf(finding)};
    if (snapshot) entry.snapshot = "snapshot";
    entry.done = [this](bool durable) { settled_.push_back(durable); };
    return entry;
  }
  std::vector<uint64_t> Told() const {
    std::vector<uint64_t> ids;
    for (const Change& each : told_)
      for (const model::Finding& finding : each.findings) ids.push_back(finding.id);
    return ids;
  }

  FakeJournal journal_;
  std::vector<Change> told_;
  std::vector<bool> settled_;
  Tap tap_{&journal_, [this](Change change) { told_.push_back(std::move(change)); }};
};

TEST_F(TapTest, TellsNothingBeforeItIsDurable) {
  journal_.SetAnswer(FakeJournal::Answer::kWait);
  tap_.Append(Entry(1));
  EXPECT_TRUE(Told().empty());
  journal_.Settle(true);
  EXPECT_EQ(Told(), std::vector<uint64_t>{1});
  EXPECT_EQ(settled_, std::vector<bool>{true}) << "the entry's own answer";
}

TEST_F(TapTest, HandsOnWhatHoldsNothingToTell) {
  journal_.SetAnswer(FakeJournal::Answer::kYes);
  tap_.Append(Entry(0));
  tap_.Append(Entry(0, true));
  EXPECT_EQ(settled_.size(), 2u);
  EXPECT_TRUE(told_.empty());
}

TEST_F(TapTest, TellsWhatFailedWithTheSnapshotThatMendsIt) {
  journal_.SetAnswer(FakeJournal::Answer::kNo);
  tap_.Append(Entry(1));
  tap_.Append(Entry(2));
  EXPECT_TRUE(told_.empty());
  EXPECT_EQ(settled_, (std::vector<bool>{false, false}));
  journal_.SetAnswer(FakeJournal::Answer::kYes);
  tap_.Append(Entry(0, true));
  EXPECT_EQ(Told(), (std::vector<uint64_t>{1, 2}));
  tap_.Append(Entry(3, true));
  EXPECT_EQ(Told(), (std::vector<uint64_t>{1, 2, 3})) << "each once";
}

TEST_F(TapTest, NeverTellsAWordThatWasTakenBack) {
  journal_.SetAnswer(FakeJournal::Answer::kNo);
  engine::JournalEntry word = Entry(1);
  word.revocable = true;
  tap_.Append(std::move(word));
  journal_.SetAnswer(FakeJournal::Answer::kYes);
  tap_.Append(Entry(0, true));
  EXPECT_TRUE(told_.empty());
}

TEST_F(TapTest, HoldsNoMoreThanItsBound) {
  journal_.SetAnswer(FakeJournal::Answer::kNo);
  for (uint64_t id = 1; id <= Tap::kHeldMax + 5; ++id) tap_.Append(Entry(id));
  journal_.SetAnswer(FakeJournal::Answer::kYes);
  tap_.Append(Entry(0, true));
  EXPECT_EQ(told_.size(), Tap::kHeldMax);
  EXPECT_EQ(Told().front(), 6u);
}

}  // namespace
}  // namespace gyrostat::notify
