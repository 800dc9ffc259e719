#include "notify/webhook.h"

#include <gtest/gtest.h>

#include <iterator>
#include <set>

#include "unit/notify/notices.h"

namespace gyrostat::notify {
namespace {

using model::Severity;
using testing::NoticeOf;

TEST(Webhook, TellsFindingsFromItsSeverityOn) {
  Webhook hook;
  Kind kind;
  EXPECT_FALSE(hook.Wants(NoticeOf(1, Kind::kFindingRaised, "run", Severity::kInfo), &kind));
  EXPECT_TRUE(hook.Wants(NoticeOf(1, Kind::kFindingRaised, "run", Severity::kWarning), &kind));
  Notice intent = NoticeOf(1, Kind::kInterventionApplied, "run", Severity::kInfo);
  intent.finding.reset();
  EXPECT_TRUE(hook.Wants(intent, &kind)) << "only findings and episodes have a severity";
}

TEST(Webhook, HearsOfWhatGrewUpToItAsNew) {
  Webhook hook;
  Kind kind;
  Notice grown = NoticeOf(1, Kind::kFindingWorsened, "run", Severity::kWarning);
  grown.severity_before = Severity::kInfo;
  ASSERT_TRUE(hook.Wants(grown, &kind));
  EXPECT_EQ(kind, Kind::kFindingRaised);
  hook.min_severity = Severity::kInfo;
  ASSERT_TRUE(hook.Wants(grown, &kind));
  EXPECT_EQ(kind, Kind::kFindingWorsened);
}

TEST(Webhook, TellsTheEventsThatItNames) {
  Webhook hook;
  hook.events = {Kind::kEpisodeOpened};
  Kind kind;
  EXPECT_FALSE(hook.Wants(NoticeOf(1), &kind));
  Notice test = NoticeOf(1, Kind::kTest, "run", Severity::kInfo);
  EXPECT_TRUE(hook.Wants(test, &kind)) << "who asks for a test gets it";
}

TEST(Webhook, NeedsANameAndOneUrl) {
  Webhook hook;
  EXPECT_EQ(WebhookProblem(hook), "name: is missing");
  hook.name = "a";
  EXPECT_EQ(WebhookProblem(hook), "url: neither it nor url_file is given, accepted is one of them");
  hook.target.url = "http://x";
  EXPECT_EQ(WebhookProblem(hook), "");
  hook.target.url_file = "/f";
  EXPECT_EQ(WebhookProblem(hook), "url: both it and url_file is given, accepted is one of them");
  for (const char* name : {"", "a b", "a/b", "é"}) EXPECT_NE(NameProblem(name), "") << name;
  EXPECT_EQ(NameProblem("ops-1.B_c"), "");
}

TEST(Kinds, HaveNamesThatDiffer) {
  std::set<std::string> names;
  for (const Kind kind : kKinds) names.insert(Token(kind));
  EXPECT_EQ(names.size(), std::size(kKinds));
  EXPECT_EQ(names.count("unknown"), 0u);
}

}  // namespace
}  // namespace gyrostat::notify
