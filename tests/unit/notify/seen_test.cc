#include "notify/seen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/notify/notices.h"

namespace gyrostat::notify {
namespace {

using model::InterventionState;
using model::Severity;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ChangeOf;
using testing::Ended;
using testing::EpisodeOf;
using testing::FindingOf;
using testing::IntentOf;

std::vector<std::string> Told(Seen* seen, const Change& change) {
  std::vector<Notice> notices;
  seen->Take(change, &notices);
  std::vector<std::string> ids;
  for (const Notice& each : notices) ids.push_back(each.Id());
  return ids;
}

std::vector<std::string> Told(Seen* seen, const model::Finding& finding) {
  Change change = ChangeOf();
  change.findings = {finding};
  return Told(seen, change);
}
std::vector<std::string> Told(Seen* seen, const diagnose::Diagnosis& episode) {
  Change change = ChangeOf();
  change.episodes = {episode};
  return Told(seen, change);
}
std::vector<std::string> Told(Seen* seen, const model::Intervention& intent) {
  Change change = ChangeOf();
  change.interventions = {intent};
  return Told(seen, change);
}

TEST(Seen, TellsAFindingOnceWhenItFiresAndOnceWhenItEnds) {
  Seen seen;
  EXPECT_THAT(Told(&seen, FindingOf(5)), ElementsAre("finding/5/finding_raised"));
  EXPECT_THAT(Told(&seen, FindingOf(5)), IsEmpty());
  EXPECT_THAT(Told(&seen, Ended(FindingOf(5))), ElementsAre("finding/5/finding_resolved"));
  EXPECT_THAT(Told(&seen, Ended(FindingOf(5))), IsEmpty());
  EXPECT_THAT(Told(&seen, FindingOf(5)), IsEmpty()) << "an older state, read from a history that is behind";
}

TEST(Seen, TellsWhatBeganAndEndedAtOnceAsBoth) {
  Seen seen;
  EXPECT_THAT(Told(&seen, Ended(FindingOf(5))),
              ElementsAre("finding/5/finding_raised", "finding/5/finding_resolved"));
}

TEST(Seen, TellsThatItGotWorseAndEndsItAsTheWorst) {
  Seen seen;
  Told(&seen, FindingOf(5, Severity::kInfo));
  Change change = ChangeOf();
  change.findings = {FindingOf(5, Severity::kCritical)};
  change.unix_ms += 1000;
  std::vector<Notice> notices;
  seen.Take(change, &notices);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].Id(), "finding/5/finding_worsened/critical");
  EXPECT_EQ(notices[0].severity_before, Severity::kInfo);
  EXPECT_EQ(notices[0].begun_unix_ms, ChangeOf().unix_ms);
  EXPECT_THAT(Told(&seen, FindingOf(5, Severity::kWarning)), IsEmpty()) << "milder again is no news";
  change.findings = {Ended(FindingOf(5, Severity::kInfo))};
  notices.clear();
  seen.Take(change, &notices);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].severity, Severity::kCritical);
}

TEST(Seen, CallsSilenceWhatItIs) {
  Seen seen;
  model::Finding silence = FindingOf(7);
  silence.detector = "silence";
  EXPECT_THAT(Told(&seen, silence), ElementsAre("finding/7/run_silent"));
  EXPECT_THAT(Told(&seen, Ended(silence)), ElementsAre("finding/7/run_back"));
}

TEST(Seen, TellsAnEpisodesBeginWorseningAndEnd) {
  Seen seen;
  EXPECT_THAT(Told(&seen, EpisodeOf(3)), ElementsAre("episode/3/episode_opened"));
  diagnose::Diagnosis grown = EpisodeOf(3);
  grown.findings = 9;
  EXPECT_THAT(Told(&seen, grown), IsEmpty()) << "it grew, which is no news";
  EXPECT_THAT(Told(&seen, EpisodeOf(3, Severity::kCritical)), ElementsAre("episode/3/episode_worsened/critical"));
  grown.closed = true;
  EXPECT_THAT(Told(&seen, grown), ElementsAre("episode/3/episode_closed"));
}

TEST(Seen, TellsEachStationOfAnInterventionOnce) {
  Seen seen;
  EXPECT_THAT(Told(&seen, IntentOf("a/b/2", InterventionState::kProposed)),
              ElementsAre("intervention/a/b/2/intervention_waiting"));
  EXPECT_THAT(Told(&seen, IntentOf("a/b/2", InterventionState::kProposed)), IsEmpty());
  EXPECT_THAT(Told(&seen, IntentOf("a/b/2", InterventionState::kApproved)), IsEmpty());
  EXPECT_THAT(Told(&seen, IntentOf("a/b/2", InterventionState::kSent)), IsEmpty());
  model::Intervention applied = IntentOf("a/b/2", InterventionState::kSent);
  applied.orders_applied = 1;
  EXPECT_THAT(Told(&seen, applied), ElementsAre("intervention/a/b/2/intervention_applied"));
  applied.orders_applied = 50;
  EXPECT_THAT(Told(&seen, applied), IsEmpty()) << "more orders of one intent";
  applied.outcome = model::Outcome::kHarmful;
  EXPECT_THAT(Told(&seen, applied), ElementsAre("intervention/a/b/2/intervention_harmful"));
  applied.state = InterventionState::kJudged;
  EXPECT_THAT(Told(&seen, applied), IsEmpty());
  EXPECT_THAT(Told(&seen, IntentOf("a/b/2", InterventionState::kProposed)), IsEmpty()) << "it is over";
}

TEST(Seen, TellsFailuresAndJudgements) {
  Seen seen;
  for (const InterventionState state :
       {InterventionState::kRefused, InterventionState::kForeign, InterventionState::kLost}) {
    const std::string id = "r/" + std::to_string(10 + static_cast<int>(state));
    EXPECT_THAT(Told(&seen, IntentOf(id, state)), ElementsAre("intervention/" + id + "/intervention_failed"));
  }
  for (const InterventionState state : {InterventionState::kRejected, InterventionState::kWithdrawn})
    EXPECT_THAT(Told(&seen, IntentOf("r/" + std::to_string(20 + static_cast<int>(state)), state)), IsEmpty());
  model::Intervention judged = IntentOf("r/90", InterventionState::kJudged);
  judged.outcome = model::Outcome::kEffective;
  EXPECT_THAT(Told(&seen, judged), ElementsAre("intervention/r/90/intervention_judged"));
}

TEST(Seen, TellsTheEndOfAnAttemptOnceAndOfTheNextToo) {
  Seen seen;
  Change change = ChangeOf();
  change.ended_attempt = testing::IdOf(1);
  change.ended_reason = "the job said good-bye";
  EXPECT_THAT(Told(&seen, change), ElementsAre("run/1/" + testing::IdOf(1).ToHex() + "/run_ended"));
  EXPECT_THAT(Told(&seen, change), IsEmpty());
  EXPECT_TRUE(seen.EndedWith(testing::IdOf(1)));
  change.ended_attempt = testing::IdOf(2);
  EXPECT_EQ(Told(&seen, change).size(), 1u);
}

TEST(Seen, BeginsAnewForAnotherRunUnderTheName) {
  Seen seen;
  Told(&seen, FindingOf(5));
  Change change = ChangeOf();
  change.run_number = 2;
  change.findings = {FindingOf(3)};
  EXPECT_THAT(Told(&seen, change), ElementsAre("finding/3/finding_raised"));
}

TEST(Seen, GoesOnFromItsBytes) {
  Seen before;
  Told(&before, FindingOf(5));
  Told(&before, Ended(FindingOf(6)));
  Told(&before, IntentOf("r/2", InterventionState::kProposed));
  base::ByteWriter out;
  base::SaveTo(&out, before);
  Seen after;
  base::ByteReader in(out.bytes());
  ASSERT_TRUE(base::LoadFrom(&in, &after));
  EXPECT_THAT(Told(&after, FindingOf(5)), IsEmpty());
  EXPECT_THAT(Told(&after, FindingOf(6)), IsEmpty());
  EXPECT_THAT(Told(&after, IntentOf("r/2", InterventionState::kProposed)), IsEmpty());
  EXPECT_THAT(Told(&after, Ended(FindingOf(5))), ElementsAre("finding/5/finding_resolved"));
  EXPECT_THAT(Told(&after, FindingOf(7)), ElementsAre("finding/7/finding_raised"));
}

TEST(Seen, ForgetsTheOldestBeyondItsBound) {
  Seen seen;
  for (uint64_t id = 1; id <= Seen::kOpenMax + 1; ++id) Told(&seen, FindingOf(id));
  EXPECT_THAT(Told(&seen, Ended(FindingOf(1))), IsEmpty());
  EXPECT_THAT(Told(&seen, Ended(FindingOf(2))), ElementsAre("finding/2/finding_resolved"));
}

}  // namespace
}  // namespace gyrostat::notify
