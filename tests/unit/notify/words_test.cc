#include "notify/words.h"

#include <gtest/gtest.h>

#include "unit/notify/notices.h"

namespace gyrostat::notify {
namespace {

using testing::NoticeOf;

TEST(Words, SayOneThingWhole) {
  const Notice notice = NoticeOf(1);
  EXPECT_EQ(Sentence(notice), "attn_logit (warning) at step 12: Layer 3 head 1 stands at 250.");
  EXPECT_EQ(Title({&notice, 1}), "[warning] run run: " + Sentence(notice));
  Notice over = NoticeOf(1, Kind::kFindingResolved);
  over.finding = testing::Ended(*over.finding);
  EXPECT_EQ(Sentence(over), "attn_logit (warning) is over, steps 10 to 30, healed: Layer 3 head 1 stands at 250.");
  EXPECT_EQ(Title({&over, 1}), "[over] run run: " + Sentence(over));
}

TEST(Words, ReadTheNewestOfEachSubject) {
  const std::vector<Notice> notices = {
      NoticeOf(1), NoticeOf(2, Kind::kFindingRaised, "run", model::Severity::kCritical),
      NoticeOf(1, Kind::kFindingResolved)};
  const auto read = ToRead(notices, 10);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0]->subject, "finding/2");
  EXPECT_EQ(read[1]->kind, Kind::kFindingResolved);
  EXPECT_EQ(Worst(notices), model::Severity::kCritical);
  EXPECT_EQ(ToRead(notices, 1).size(), 1u);
}

TEST(Words, LinkEveryNameToItsRun) {
  EXPECT_EQ(RunLink("", "run"), "");
  EXPECT_EQ(RunLink("https://g.example", "run-1.a_b~"), "https://g.example/#run-1.a_b~");
  EXPECT_EQ(RunLink("https://g.example/x//", "a/b c\"<é"), "https://g.example/x/#a%2Fb%20c%22%3C%C3%A9");
}

TEST(Words, AreCutAtACharacter) {
  EXPECT_EQ(Shortened("short", 5), "short");
  EXPECT_EQ(Shortened("éééééé", 8), "éé…");
  Notice notice = NoticeOf(1);
  notice.finding->message = std::string(5000, 'x');
  EXPECT_LE(Sentence(notice).size(), 600u);
  EXPECT_LE(Title({&notice, 1}).size(), 300u);
}

}  // namespace
}  // namespace gyrostat::notify
