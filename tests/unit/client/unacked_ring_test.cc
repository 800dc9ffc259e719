#include "client/src/unacked_ring.h"

#include <gtest/gtest.h>

#include <string>

namespace gyrostat::client {
namespace {

UnackedRing::Item Report(uint64_t sequence, size_t bytes = 10, bool local_clips = false) {
  return {WireKind::kReport, sequence, local_clips, std::string(bytes, 'r')};
}
UnackedRing::Item Ack(uint64_t after) { return {WireKind::kAck, after, false, "ack"}; }

TEST(UnackedRing, DropsTheOldestWhenFullAndCountsReportsOnce) {
  UnackedRing ring(2, 1000);
  EXPECT_EQ(ring.Push(Report(1)).reports, 0u);
  EXPECT_EQ(ring.Push(Report(2)).reports, 0u);
  EXPECT_EQ(ring.Push(Report(3)).reports, 1u);
  EXPECT_EQ(ring.FirstSequence(4), 2u);
  EXPECT_EQ(ring.bytes(), 20u);
}

TEST(UnackedRing, DropsTheOldestWhenTheBytesAreUp) {
  UnackedRing ring(100, 25);
  ring.Push(Report(1));
  ring.Push(Report(2));
  EXPECT_EQ(ring.Push(Report(3)).reports, 1u);
  EXPECT_EQ(ring.Push(Report(4, 24)).reports, 2u);
  EXPECT_EQ(ring.size(), 1u);
}

TEST(UnackedRing, KeepsOneMessageLargerThanItsBoundUntilTheNext) {
  UnackedRing ring(100, 25);
  EXPECT_EQ(ring.Push(Report(1, 50)).reports, 0u);
  EXPECT_EQ(ring.size(), 1u);
  EXPECT_EQ(ring.Push(Report(2)).reports, 1u);
}

TEST(UnackedRing, SaysWhenOnlyAHelloCanTellWhatWasDropped) {
  UnackedRing ring(2, 1000);
  ring.Push(Ack(0));
  ring.Push(Report(1, 10, true));
  UnackedRing::Dropped dropped = ring.Push(Report(2));
  EXPECT_EQ(dropped.reports, 0u);
  EXPECT_TRUE(dropped.settled_by_hello_only) << "an ack was dropped";
  dropped = ring.Push(Report(3));
  EXPECT_EQ(dropped.reports, 1u);
  EXPECT_TRUE(dropped.settled_by_hello_only) << "local clips were dropped";
  EXPECT_FALSE(ring.Push(Report(4)).settled_by_hello_only);
}

TEST(UnackedRing, AnAckIsSafeOnceALaterReportIs) {
  UnackedRing ring(10, 1000);
  ring.Push(Report(1));
  ring.Push(Ack(1));
  ring.Push(Report(2));
  EXPECT_EQ(ring.Acknowledge(1), 1u);
  EXPECT_EQ(ring.size(), 2u) << "report 1 is safe, the ack after it need not be";
  EXPECT_EQ(ring.Acknowledge(2), 1u);
  EXPECT_EQ(ring.size(), 0u);
}

TEST(UnackedRing, SendsFromTheFrontAgainOnANewStream) {
  UnackedRing ring(10, 1000);
  ring.Push(Report(1));
  ring.Push(Report(2));
  ring.MarkSent();
  ASSERT_NE(ring.NextToSend(), nullptr);
  EXPECT_EQ(ring.NextToSend()->sequence, 2u);
  ring.MarkSent();
  EXPECT_EQ(ring.NextToSend(), nullptr);
  EXPECT_FALSE(ring.idle()) << "sent is not safe";
  ring.Rewind();
  EXPECT_EQ(ring.NextToSend()->sequence, 1u);
}

TEST(UnackedRing, WhatWasSentStaysSentWhenTheFrontGoes) {
  UnackedRing ring(2, 1000);
  ring.Push(Report(1));
  ring.Push(Report(2));
  ring.MarkSent();
  ring.Push(Report(3));  // Drops 1, which was sent.
  EXPECT_EQ(ring.NextToSend()->sequence, 2u);
  ring.Push(Report(4));  // Drops 2, which was not.
  EXPECT_EQ(ring.NextToSend()->sequence, 3u);
}

TEST(UnackedRing, IsIdleWhenNothingWaits) {
  UnackedRing ring(10, 1000);
  EXPECT_TRUE(ring.idle());
  ring.Push(Ack(0));
  EXPECT_FALSE(ring.idle());
  ring.MarkSent();
  EXPECT_TRUE(ring.idle()) << "nothing will ever acknowledge an ack without a report after it";
  EXPECT_EQ(ring.FirstSequence(9), 9u);
}

}  // namespace
}  // namespace gyrostat::client
