// The notifier against a real HTTP server: two lives over what the first has kept, and a history that says more.
#include "notify/notifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/mutex.h"
#include "support/engine_fakes.h"
#include "unit/notify/notices.h"

namespace gyrostat::notify {
namespace {

using base::Milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using testing::Ended;
using testing::EpisodeOf;
using testing::FindingOf;

// Ids of run 1, as the engine makes them.
constexpr uint64_t kFindings = engine::kFindingsPerRun;
constexpr uint64_t kEpisodes = engine::kEpisodesPerRun;
std::string Raised(uint64_t n) { return "finding/" + std::to_string(kFindings + n) + "/finding_raised"; }
std::string Resolved(uint64_t n) { return "finding/" + std::to_string(kFindings + n) + "/finding_resolved"; }

// A run's findings and episodes; the rest is not asked for.
class Rows : public engine::History {
 public:
  absl::StatusOr<std::vector<FindingRow>> Findings(const std::string&) override {
    return reads++ == 0 || later.empty() ? findings : later;
  }
  absl::StatusOr<std::vector<EpisodeRow>> Episodes(const std::string&) override { return episodes; }
  absl::StatusOr<std::vector<InterventionRow>> Interventions(const std::string&) override {
    return std::vector<InterventionRow>();
  }
  absl::Status ForEachRun(const std::function<absl::Status(engine::StoredRun)>&) override { return absl::OkStatus(); }
  absl::StatusOr<std::optional<engine::ModeWord>> ModeLimit() override { return std::nullopt; }
  absl::StatusOr<engine::SeriesData> Series(const engine::SeriesQuery&) override { return engine::SeriesData(); }
  absl::StatusOr<engine::ReportPage> Reports(const engine::ReportQuery&, const engine::ReportCursor&) override {
    engine::ReportPage page;
    page.run_number = 1;
    return page;
  }
  absl::StatusOr<model::Hello> HelloOf(const std::string&, const model::AttemptId&) override {
    return absl::NotFoundError("none");
  }

  size_t reads = 0;
  std::vector<FindingRow> findings, later;  // From the second read on, where there is something.
  std::vector<EpisodeRow> episodes;
};

class NotifierTest : public ::testing::Test {
 protected:
  NotifierTest() {
    server_.Post("/(.*)", [this](const httplib::Request& request, httplib::Response& response) {
      signal_.Change([&] {
        ++requests_;
        const auto own = own_status_.find(request.path);
        response.status = own == own_status_.end() ? status_ : own->second;
        if (response.status != 200) return;
        const auto body = nlohmann::json::parse(request.body);
        for (const auto& event : body["events"]) told_[request.path].push_back(event["id"]);
      });
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();  // A stop before that would be lost.
  }
  ~NotifierTest() override {
    notifier_.reset();
    server_.stop();
    thread_.join();
  }

  Webhook Hook(const std::string& name) const {
    Webhook hook;
    hook.name = name;
    hook.target.url = "http://127.0.0.1:" + std::to_string(port_) + "/" + name;
    hook.target.timeout = testing::kPatience;  // Given up and sent again, a message would be told twice.
    return hook;
  }
  NotifyOptions Options(std::vector<Webhook> webhooks) const {
    NotifyOptions options;
    options.webhooks = std::move(webhooks);
    options.gather = Milliseconds(5);
    options.backoff_min = options.backoff_max = Milliseconds(20);
    return options;
  }
  // Another life over the same file.
  void Start(std::vector<Webhook> webhooks) {
    notifier_.reset();
    notifier_ = std::make_unique<Notifier>(
        Options(std::move(webhooks)),
        Sources{&rows_,
                [] {
                  auto view = std::make_shared<engine::RunState>();
                  view->run = "run";
                  view->attempt = testing::IdOf(1);
                  return std::vector<std::shared_ptr<const engine::RunState>>{view};
                },
                [this](const std::string& name) { return absl::StatusOr<std::string>(file_[name]); },
                [this](const std::string& name, const std::string& bytes) {
                  file_[name] = bytes;
                  return absl::OkStatus();
                },
                "gyrostatd/test"},
        &probe_, &base::SystemClock(), testing::kPatience);
    notifier_->Start();
  }
  void Tell(const model::Finding& finding) {
    Change change = testing::ChangeOf();
    change.findings = {finding};
    notifier_->Tell(std::move(change));
  }
  std::vector<std::string> Told(const std::string& hook = "a") {
    std::vector<std::string> told;
    signal_.Change([&] { told = told_["/" + hook]; });
    return told;
  }
  bool WaitForTold(size_t count, const std::string& hook = "a") {
    return signal_.WaitUntil([&] { return told_["/" + hook].size() >= count; });
  }
  // Every hook that has no answer of its own.
  void Answer(int status) {
    signal_.Change([&] { status_ = status; });
  }
  void Answer(int status, const std::string& hook) {
    signal_.Change([&] { own_status_["/" + hook] = status; });
  }

  Probe probe_;
  Rows rows_;
  std::map<std::string, std::string> file_;  // Of the notifier's thread; the test's between two lives.
  testing::Signal signal_;
  std::map<std::string, std::vector<std::string>> told_;
  int requests_ = 0, status_ = 200;
  std::map<std::string, int> own_status_;  // By path.
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  std::unique_ptr<Notifier> notifier_;
};

TEST_F(NotifierTest, TellsEveryWebhookWhatIsNew) {
  Start({Hook("a"), Hook("b")});
  Tell(FindingOf(kFindings + 1));
  ASSERT_TRUE(WaitForTold(1, "a") && WaitForTold(1, "b"));
  Tell(Ended(FindingOf(kFindings + 1)));
  ASSERT_TRUE(WaitForTold(2, "a") && WaitForTold(2, "b"));
  EXPECT_THAT(Told(), ElementsAre(Raised(1), Resolved(1)));
  notifier_->Stop();
  EXPECT_EQ(probe_.posts_total.value(), 4u);
  EXPECT_EQ(probe_.queue_notices.value(), 0);
}

TEST_F(NotifierTest, TellsNothingOfBeforeItWasThere) {
  rows_.findings = {{FindingOf(kFindings + 1), testing::IdOf(1)}};
  Start({Hook("a")});
  Tell(FindingOf(kFindings + 2));
  ASSERT_TRUE(WaitForTold(1));
  notifier_->Stop();
  EXPECT_THAT(Told(), ElementsAre(Raised(2)));
}

TEST_F(NotifierTest, LooksUpWhatAKillTookFromIt) {
  Start({Hook("a")});
  Tell(FindingOf(kFindings + 1));
  ASSERT_TRUE(WaitForTold(1));
  notifier_->Stop();
  // The journal went on: one ended, one came and went, one is open, and there is an episode.
  rows_.findings = {{Ended(FindingOf(kFindings + 1)), testing::IdOf(1)},
                    {Ended(FindingOf(kFindings + 2)), testing::IdOf(1)},
                    {FindingOf(kFindings + 3), testing::IdOf(1)}};
  rows_.episodes = {{EpisodeOf(kEpisodes + 1), testing::IdOf(1)}};
  Start({Hook("a")});
  ASSERT_TRUE(WaitForTold(6));
  EXPECT_THAT(Told(), UnorderedElementsAre(Raised(1), Resolved(1), Raised(2), Resolved(2), Raised(3),
                                           "episode/" + std::to_string(kEpisodes + 1) + "/episode_opened"));
  Start({Hook("a")});
  Tell(FindingOf(kFindings + 4));
  ASSERT_TRUE(WaitForTold(7));
  EXPECT_EQ(Told().back(), Raised(4)) << "a third life has nothing more to say";
}

TEST_F(NotifierTest, KeepsWhatAWebhookDidNotTakeForTheNextLife) {
  Answer(503);
  Start({Hook("a")});
  Tell(FindingOf(kFindings + 1));
  ASSERT_TRUE(signal_.WaitUntil([&] { return requests_ >= 2; }));
  notifier_->Stop();
  EXPECT_THAT(Told(), IsEmpty());
  Answer(200);
  Start({Hook("a")});
  ASSERT_TRUE(WaitForTold(1));
  EXPECT_THAT(Told(), ElementsAre(Raised(1)));
}

TEST_F(NotifierTest, TellsWhatWaitsWhenItStops) {
  Webhook hook = Hook("a");
  Start({hook});
  NotifyOptions slow = Options({hook});
  slow.gather = Milliseconds(600'000);
  notifier_->SetOptions(slow);
  Tell(FindingOf(kFindings + 1));
  notifier_->Stop();
  EXPECT_THAT(Told(), ElementsAre(Raised(1)));
}

TEST_F(NotifierTest, FollowsAReload) {
  Answer(503);
  Start({Hook("a"), Hook("b")});
  Tell(FindingOf(kFindings + 1));
  ASSERT_TRUE(signal_.WaitUntil([&] { return requests_ >= 2; }));
  Answer(503, "a");  // What is on its way there still is not taken at the old address.
  Webhook moved = Hook("a");
  moved.target.url += "-moved";
  notifier_->SetOptions(Options({moved, Hook("c")}));
  Answer(200);
  ASSERT_TRUE(WaitForTold(1, "a-moved"));
  Tell(FindingOf(kFindings + 2));
  ASSERT_TRUE(WaitForTold(2, "a-moved") && WaitForTold(1, "c"));
  notifier_->Stop();
  EXPECT_THAT(Told("a-moved"), ElementsAre(Raised(1), Raised(2))) << "the queue moved with its name";
  EXPECT_THAT(Told("c"), ElementsAre(Raised(2))) << "what it missed is no news";
  EXPECT_EQ(file_["hook/b"], "");
}

TEST_F(NotifierTest, ReadsTheHistoryWhereChangesCameTooFast) {
  Start({Hook("a")});
  Tell(FindingOf(kFindings + 1));
  ASSERT_TRUE(WaitForTold(1));
  notifier_->Stop();
  // Nobody takes from the inbox of one that has not started: it fills. What a start reads has nothing new.
  rows_.reads = 0;
  rows_.later = {{FindingOf(kFindings + Notifier::kChangesMax + 9), testing::IdOf(1)}};
  notifier_ = std::make_unique<Notifier>(
      Options({Hook("a")}),
      Sources{&rows_,
              [] {
                auto view = std::make_shared<engine::RunState>();
                view->run = "run";
                return std::vector<std::shared_ptr<const engine::RunState>>{view};
              },
              [this](const std::string& name) { return absl::StatusOr<std::string>(file_[name]); },
              [](const std::string&, const std::string&) { return absl::OkStatus(); }, "gyrostatd/test"},
      &probe_, &base::SystemClock());
  for (uint64_t i = 0; i < Notifier::kChangesMax + 8; ++i) Tell(FindingOf(kFindings + 1));
  notifier_->Start();
  ASSERT_TRUE(WaitForTold(2));
  EXPECT_EQ(Told().back(), Raised(Notifier::kChangesMax + 9));
}

}  // namespace
}  // namespace gyrostat::notify
