#include "engine/attempt_book.h"

#include <gtest/gtest.h>

#include "support/plain_run.h"

namespace gyrostat::engine {
namespace {

using testing::IdOf;
using testing::PlainReport;

TEST(AttemptBook, KnowsWhoSpeaks) {
  AttemptBook book;
  EXPECT_EQ(book.Who(IdOf(0)), AttemptBook::Speaker::kStranger) << "no attempt is not the zero attempt";
  book.Open(IdOf(1), 0, 1);
  book.Open(IdOf(2), 0, 1);
  EXPECT_EQ(book.Who(IdOf(1)), AttemptBook::Speaker::kSuperseded);
  EXPECT_EQ(book.Who(IdOf(2)), AttemptBook::Speaker::kCurrent);
  EXPECT_EQ(book.Who(IdOf(3)), AttemptBook::Speaker::kStranger);
  EXPECT_EQ(book.attempts(), 2u);
}

TEST(AttemptBook, CountsAGapAsDroppedUnlessTheClientSaidSo) {
  AttemptBook book;
  book.Open(IdOf(1), 0, 1);
  book.TakeReport(PlainReport(1));
  book.TakeReport(PlainReport(4));
  EXPECT_EQ(book.dropped(), 2u);
  model::Report owned_up = PlainReport(5);
  owned_up.dropped_hot = 1;
  owned_up.dropped_unacked = 2;
  book.TakeReport(owned_up);
  EXPECT_EQ(book.dropped(), 3u) << "the two are among them";
  EXPECT_EQ(book.last_sequence(), 5u);
  EXPECT_EQ(book.reports(), 3u);
}

TEST(AttemptBook, ExpectsNoReportThatTheClientNoLongerHas) {
  AttemptBook book;
  book.Open(IdOf(1), 0, 500);  // The daemon lost its data; the client has not.
  book.TakeReport(PlainReport(500));
  EXPECT_EQ(book.dropped(), 0u);
}

TEST(AttemptBook, AddsUpDropsOverAttempts) {
  AttemptBook book;
  for (uint8_t attempt = 1; attempt <= 3; ++attempt) {
    book.Open(IdOf(attempt), 0, 1);
    model::Report report = PlainReport(1);
    report.dropped_hot = 10;
    book.TakeReport(report);
  }
  EXPECT_EQ(book.dropped(), 30u);
}

TEST(AttemptBook, IsContestedWhileARivalIsHeard) {
  AttemptBook book;
  book.Open(IdOf(1), 0, 1);
  book.Open(IdOf(2), 0, 1);
  EXPECT_FALSE(book.Contested(0));
  EXPECT_TRUE(book.HearRival(IdOf(1), 1000));
  EXPECT_FALSE(book.HearRival(IdOf(1), 1999)) << "a flood is not recorded";
  EXPECT_TRUE(book.HearRival(IdOf(1), 2000));
  EXPECT_TRUE(book.Contested(2000 + kRivalHeardMs - 1));
  EXPECT_FALSE(book.Contested(2000 + kRivalHeardMs));
}

TEST(AttemptBook, IsAtPeaceOnceTheRivalSaysGoodBye) {
  AttemptBook book;
  book.Open(IdOf(1), 0, 1);
  book.Open(IdOf(2), 0, 1);
  EXPECT_FALSE(book.DismissRival(IdOf(1)));
  book.HearRival(IdOf(1), 1000);
  EXPECT_TRUE(book.DismissRival(IdOf(1)));
  EXPECT_FALSE(book.Contested(1001));
}

TEST(AttemptBook, ForgetsTheOldestOfVeryManyAttempts) {
  AttemptBook book;
  for (uint8_t attempt = 1; attempt <= 70; ++attempt) book.Open(IdOf(attempt), 0, 1);
  EXPECT_EQ(book.Who(IdOf(1)), AttemptBook::Speaker::kStranger);
  EXPECT_EQ(book.Who(IdOf(69)), AttemptBook::Speaker::kSuperseded);
}

TEST(AttemptBook, NeverLowersTheNewestBoundary) {
  AttemptBook book;
  book.Open(IdOf(1), 0, 1);
  book.RaiseNewestBoundary(40);
  book.TakeReport(PlainReport(8));
  EXPECT_EQ(book.newest_boundary(), 40u);
  book.TakeReport(PlainReport(50));
  EXPECT_EQ(book.newest_boundary(), 49u);
}

}  // namespace
}  // namespace gyrostat::engine
