// Bodies against what their receivers take: fields, Slack's limits and escapes, Grafana's annotation.
#include "notify/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "unit/notify/notices.h"

namespace gyrostat::notify {
namespace {

using nlohmann::json;
using model::Severity;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::EpisodeOf;
using testing::IntentOf;
using testing::NoticeOf;

const Envelope kEnvelope{"ops", "gyrostatd/1", "https://g.example/", 0};

std::vector<Notice> Many(uint64_t count) {
  std::vector<Notice> notices;
  for (uint64_t id = 1; id <= count; ++id) notices.push_back(NoticeOf(id));
  return notices;
}

Notice OfEpisode(Kind kind = Kind::kEpisodeOpened) {
  Notice notice = NoticeOf(1, kind);
  notice.finding.reset();
  notice.subject = "episode/4";
  notice.episode = EpisodeOf(4);
  return notice;
}

// Everything that a stranger can put into a run's name, a reason or a message.
constexpr char kHostile[] = "<!channel> & <http://evil|click> *b* `c` ~s~ \"q\" \\ \x01\x7f \xff\xfe \xe2\x82";

std::vector<Notice> Hostile() {
  std::vector<Notice> notices = {NoticeOf(1), NoticeOf(2), OfEpisode()};
  for (Notice& each : notices) {
    each.run = kHostile;
    if (each.finding) each.finding->message = kHostile;
    if (each.episode) each.episode->headline = each.episode->advice = kHostile;
  }
  return notices;
}

TEST(JsonBody, HasAllThatIsKnown) {
  Notice finding = NoticeOf(7);
  finding.finding->rank = 5;
  finding.finding->expected = std::numeric_limits<double>::infinity();
  Notice intent = NoticeOf(1, Kind::kInterventionWaiting);
  intent.finding.reset();
  intent.subject = "intervention/run/3";
  intent.intervention = IntentOf("run/3", model::InterventionState::kProposed);
  const std::vector<Notice> notices = {finding, OfEpisode(), intent};
  const json body = json::parse(JsonBody(notices, {"ops", "gyrostatd/1", "https://g.example", 2}));
  EXPECT_EQ(body["version"], 1);
  EXPECT_EQ(body["source"], "gyrostatd/1");
  EXPECT_EQ(body["webhook"], "ops");
  EXPECT_EQ(body["run"], "run");
  EXPECT_EQ(body["url"], "https://g.example/#run");
  EXPECT_EQ(body["severity"], "warning");
  EXPECT_EQ(body["title"], "[warning] run run: Attention logits run away, first in layer 3.");
  EXPECT_EQ(body["dropped"], 2);
  EXPECT_EQ(body["events_left_out"], 0);
  EXPECT_EQ(body["counts"], (json{{"finding_raised", 1}, {"episode_opened", 1}, {"intervention_waiting", 1}}));
  ASSERT_EQ(body["events"].size(), 3u);
  const json& event = body["events"][0];
  EXPECT_EQ(event["id"], "finding/7/finding_raised");
  EXPECT_EQ(event["event"], "finding_raised");
  EXPECT_EQ(event["unix_ms"], 1'700'000'000'000);
  EXPECT_EQ(event["finding"]["detector"], "attn_logit");
  EXPECT_EQ(event["finding"]["signal"], "attn_logit_max");
  EXPECT_EQ(event["finding"]["layer"], 3);
  EXPECT_EQ(event["finding"]["rank"], 5);
  EXPECT_EQ(event["finding"]["step_end"], nullptr);
  EXPECT_EQ(event["finding"]["value"], 250);
  EXPECT_EQ(event["finding"]["expected"], "Infinity");
  EXPECT_EQ(body["events"][1]["episode"]["cause"], diagnose::Token(diagnose::Cause::kAttentionLogits));
  EXPECT_EQ(body["events"][1]["episode"]["causes"][0]["cause"], body["events"][1]["episode"]["cause"]);
  EXPECT_THAT(std::string(body["events"][1]["episode"]["page"]), HasSubstr("Clip the head."));
  EXPECT_EQ(body["events"][1]["episode"]["advice"], "Clip the head.");
  EXPECT_EQ(body["events"][2]["intervention"]["state"], "proposed");
  EXPECT_EQ(body["events"][2]["intervention"]["median_delay_steps"], nullptr);
  EXPECT_THAT(std::string(body["events"][2]["text"]), HasSubstr("gyrostatctl approve run/3"));
}

TEST(JsonBody, CountsWhatItDoesNotList) {
  const json body = json::parse(JsonBody(Many(512), {"ops", "g", "", 0}));
  EXPECT_EQ(body["events"].size(), kListedMax);
  EXPECT_EQ(body["events_left_out"], 512 - kListedMax);
  EXPECT_EQ(body["counts"]["finding_raised"], 512);
  EXPECT_EQ(body["title"], "[warning] run run: 512 finding raised");
  EXPECT_EQ(body["url"], nullptr);
}

TEST(Body, IsJsonWhateverStrangersWrite) {
  for (const Format format : {Format::kJson, Format::kSlack, Format::kGrafana}) {
    const json body = json::parse(Body(format, Hostile(), kEnvelope), nullptr, false);
    EXPECT_FALSE(body.is_discarded()) << Token(format);
  }
}

// docs: sections of at most 3000 characters, at most 50 blocks; "text" is the fallback.
void ExpectWithinSlacksLimits(const json& body) {
  EXPECT_FALSE(std::string(body["text"]).empty());
  EXPECT_LE(std::string(body["text"]).size(), 4000u);
  ASSERT_GE(body["blocks"].size(), 1u);
  EXPECT_LE(body["blocks"].size(), 50u);
  for (const json& block : body["blocks"]) {
    if (block["type"] == "section") {
      EXPECT_EQ(block["text"]["type"], "mrkdwn");
      EXPECT_EQ(block["text"]["verbatim"], true);
      EXPECT_GE(std::string(block["text"]["text"]).size(), 1u);
      EXPECT_LE(std::string(block["text"]["text"]).size(), 3000u);
    } else {
      EXPECT_EQ(block["type"], "context");
      EXPECT_LE(block["elements"].size(), 10u);
      EXPECT_LE(std::string(block["elements"][0]["text"]).size(), 3000u);
    }
  }
}

TEST(SlackBody, StaysWithinSlacksLimits) {
  std::vector<Notice> notices = Many(600);
  for (Notice& each : notices) {
    each.run = std::string(3000, '<');
    each.finding->message = std::string(5000, '&');
  }
  ExpectWithinSlacksLimits(json::parse(SlackBody(notices, kEnvelope)));
  ExpectWithinSlacksLimits(json::parse(SlackBody(Many(1), kEnvelope)));
  ExpectWithinSlacksLimits(json::parse(SlackBody(Hostile(), kEnvelope)));
}

TEST(SlackBody, LetsNobodyMentionLinkOrMark) {
  const std::string body = SlackBody(Hostile(), kEnvelope);
  EXPECT_THAT(body, Not(HasSubstr("<!channel>")));
  EXPECT_THAT(body, HasSubstr("&lt;!channel&gt; &amp; &lt;http://evil|click&gt;"));
  EXPECT_THAT(body, Not(HasSubstr(" *b")));
  EXPECT_THAT(body, Not(HasSubstr(" `c")));
}

TEST(SlackBody, ShowsTheWorstAndCountsTheRest) {
  std::vector<Notice> notices = Many(400);
  notices.push_back(NoticeOf(900, Kind::kFindingRaised, "run", Severity::kCritical));
  notices.push_back(OfEpisode());
  const json body = json::parse(SlackBody(notices, {"ops", "g", "https://g.example", 3}));
  ASSERT_EQ(body["blocks"].size(), 1 + kSlackListedMax + 1);
  EXPECT_THAT(std::string(body["blocks"][1]["text"]["text"]), HasSubstr("Attention logits run away"));
  EXPECT_THAT(std::string(body["blocks"][1]["text"]["text"]), HasSubstr("Clip the head."));
  EXPECT_THAT(std::string(body["blocks"][2]["text"]["text"]), HasSubstr(":red_circle:"));
  const std::string foot = body["blocks"].back()["elements"][0]["text"];
  EXPECT_THAT(foot, HasSubstr("and 392 more"));
  EXPECT_THAT(foot, HasSubstr("3 earlier notices were dropped"));
  EXPECT_THAT(foot, HasSubstr("<https://g.example/#run|Open the run>"));
}

TEST(GrafanaBody, IsAPointWhereSomethingBegins) {
  const json body = json::parse(GrafanaBody(Many(1), kEnvelope));
  EXPECT_EQ(body["time"], 1'700'000'000'000);
  EXPECT_FALSE(body.contains("timeEnd"));
  EXPECT_EQ(body["tags"], (json{"detector:attn_logit", "finding_raised", "gyrostat", "run:run", "severity:warning"}));
  EXPECT_THAT(std::string(body["text"]), HasSubstr("Layer 3 head 1 stands at 250."));
  EXPECT_THAT(std::string(body["text"]), HasSubstr("<a href=\"https://g.example/#run\">"));
}

TEST(GrafanaBody, IsARegionWhereSomethingIsOver) {
  Notice over = NoticeOf(1, Kind::kFindingResolved);
  over.finding = testing::Ended(*over.finding);
  over.begun_unix_ms = over.unix_ms - 5000;
  const json body = json::parse(GrafanaBody({&over, 1}, kEnvelope));
  EXPECT_EQ(body["time"], over.unix_ms - 5000);
  EXPECT_EQ(body["timeEnd"], over.unix_ms);
}

TEST(GrafanaBody, HoldsNoMarkupOfStrangers) {
  const std::vector<Notice> notices = {Hostile()[0], Hostile()[1]};
  const std::string text = json::parse(GrafanaBody(notices, kEnvelope))["text"];
  EXPECT_THAT(text, Not(HasSubstr("<!")));
  EXPECT_THAT(text, Not(HasSubstr("<http")));
}

TEST(Body, OfATestSaysThatItIsOne) {
  Notice notice = NoticeOf(1, Kind::kTest);
  notice.finding.reset();
  for (const Format format : {Format::kJson, Format::kSlack, Format::kGrafana})
    EXPECT_THAT(Body(format, {&notice, 1}, kEnvelope), HasSubstr("A test, asked for")) << Token(format);
}

}  // namespace
}  // namespace gyrostat::notify
