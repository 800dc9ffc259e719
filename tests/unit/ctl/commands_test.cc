#include "ctl/commands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <utility>

#include "unit/ctl/fake_control.h"

namespace gyrostat::ctl {
namespace {

class StoppedClock : public base::Clock {
 public:
  base::MonotonicTime Now() const override { return {}; }
  int64_t UnixMs() const override { return 1767225600000; }
};

// A terminal that keeps what is drawn: a double, since a test has none.
class PaperStage : public Stage {
 public:
  PaperStage(std::ostream* out, Picture picture) : out_(out), picture_(std::move(picture)) {}
  ~PaperStage() override { *out_ << "<given back>"; }
  bool Redraw() override {
    *out_ << picture_(Size{80, 24});
    return out_->good();
  }

 private:
  std::ostream* out_;
  Picture picture_;
};

class Commands : public ::testing::Test {
 protected:
  int Run(Command command) {
    request.command = command;
    request.address = "127.0.0.1:7431";
    out.str("");
    err.str("");
    Console console{out, err, clock_, {}, terminal, [] { return Size(); }};
    console.stage = [this](Picture picture) { return std::make_unique<PaperStage>(&out, std::move(picture)); };
    return RunCommand(request, &control, console);
  }

  FakeControl control;
  Request request;
  bool terminal = false;
  std::ostringstream out, err;

 private:
  StoppedClock clock_;
};

size_t LineCount(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

TEST_F(Commands, JsonIsOneObjectALine) {
  control.runs.add_runs()->set_run("a");
  control.runs.add_runs()->set_run("b");
  request.json = true;
  EXPECT_EQ(Run(Command::kRuns), kDone);
  EXPECT_EQ(LineCount(out.str()), 2u);
  control.runs.Clear();
  EXPECT_EQ(Run(Command::kRuns), kDone);
  EXPECT_EQ(out.str(), "") << "no run, no object";
}

TEST_F(Commands, NobodyThereIsExitCode3AndSaysWhatToDo) {
  for (const auto& failure : {absl::UnavailableError("connection refused"), absl::DeadlineExceededError("too late")}) {
    control.failure = failure;
    for (const Command each :
         {Command::kRuns, Command::kShow, Command::kEpisodes, Command::kFindings, Command::kInterventions,
          Command::kApprove, Command::kReject, Command::kPropose, Command::kMode, Command::kWatch, Command::kSeries}) {
      EXPECT_EQ(Run(each), kUnreachable);
      EXPECT_EQ(out.str(), "");
      EXPECT_EQ(err.str(), "gyrostatctl: no gyrostatd answers at 127.0.0.1:7431 (" + std::string(failure.message()) +
                               ").\nStart gyrostatd, or name another one with --address HOST:PORT or GYROSTAT_ADDRESS; "
                               "\"gyrostatctl doctor\" looks closer.\n");
    }
  }
}

TEST_F(Commands, ARefusalIsExitCode1WithTheDaemonsSentence) {
  control.failure = absl::NotFoundError("run \"x\" is unknown\x1b[2J");
  EXPECT_EQ(Run(Command::kShow), kRefused);
  EXPECT_EQ(err.str(), "gyrostatctl: run \"x\" is unknown\\x1b[2J\n");
}

TEST_F(Commands, AnotherProgramOnThePortIsNamedSo) {
  control.failure = absl::UnimplementedError("unknown service");
  EXPECT_EQ(Run(Command::kRuns), kRefused);
  EXPECT_NE(err.str().find("an older gyrostatd or another program"), std::string::npos);
}

TEST_F(Commands, FailOnLooksAtSeverityAndAbove) {
  control.findings.add_findings()->set_severity("warning");
  EXPECT_EQ(Run(Command::kFindings), kDone);
  request.fail_on = "warning";
  EXPECT_EQ(Run(Command::kFindings), kRefused);
  request.fail_on = "critical";
  EXPECT_EQ(Run(Command::kFindings), kDone);
  control.findings.add_findings()->set_severity("critical");
  EXPECT_EQ(Run(Command::kFindings), kRefused);
  request.fail_on = "warning";
  control.findings.Clear();
  control.findings.add_findings()->set_severity("info");
  EXPECT_EQ(Run(Command::kFindings), kDone);
}

TEST_F(Commands, FindingsAsksForOpenOnesOnly) {
  request.run = "gpt";
  request.open_only = true;
  Run(Command::kFindings);
  EXPECT_EQ(control.asked_findings.run(), "gpt");
  EXPECT_TRUE(control.asked_findings.open_only());
}

TEST_F(Commands, EpisodesArePagesForPeopleAndObjectsForPrograms) {
  EXPECT_EQ(Run(Command::kEpisodes), kDone);
  EXPECT_EQ(out.str(), "No episodes.\n");
  for (const char* page : {"It runs away.\n\nClip it.\n", "Data.\n\nNothing.\n"}) {
    v1::Episode* episode = control.episodes.add_episodes();
    episode->set_id(100001 + static_cast<uint64_t>(control.episodes.episodes_size()) - 1);
    episode->set_severity("critical");
    episode->set_page(page);
  }
  control.episodes.set_left_out(3);
  EXPECT_EQ(Run(Command::kEpisodes), kDone);
  EXPECT_EQ(out.str(),
            "episode 100001\nCRITICAL  It runs away.\n\nClip it.\n\nepisode 100002\nCRITICAL  Data.\n\nNothing.\n");
  EXPECT_NE(err.str().find("3 older episodes"), std::string::npos);
  request.json = true;
  EXPECT_EQ(Run(Command::kEpisodes), kDone);
  EXPECT_EQ(LineCount(out.str()), 2u);
}

TEST_F(Commands, SaysWhenTheAnswerIsNotAll) {
  control.findings.add_findings();
  control.findings.set_left_out(12);
  request.json = true;
  EXPECT_EQ(Run(Command::kFindings), kDone);
  EXPECT_EQ(LineCount(out.str()), 1u);
  EXPECT_EQ(err.str(), "gyrostatctl: left out, since they did not fit into one answer: 12 older findings.\n");
}

TEST_F(Commands, ProposeCarriesWhatWasSaidAndNothingElse) {
  request.run = "gpt";
  request.author = "ada";
  request.reason = "the first blocks stand still";
  request.propose.kind = "warmup_extension";
  request.propose.to_step = 14000;
  control.answered.set_id("gpt/4");
  control.answered.set_kind(v1::WARMUP_EXTENSION);
  control.answered.set_reason("Proposed by ada.");
  EXPECT_EQ(Run(Command::kPropose), kDone);
  EXPECT_EQ(out.str(), "gpt/4 is proposed (warmup_extension): Proposed by ada.\n"
                       "It waits for: gyrostatctl approve gpt/4\n");
  EXPECT_EQ(control.proposed.run(), "gpt");
  EXPECT_EQ(control.proposed.kind(), v1::WARMUP_EXTENSION);
  EXPECT_EQ(control.proposed.warmup_end_step(), 14000);
  EXPECT_FALSE(control.proposed.has_alpha() || control.proposed.has_scale() || control.proposed.has_at_step());
  EXPECT_EQ(control.proposed.author(), "ada");
  EXPECT_EQ(control.proposed.reason(), "the first blocks stand still");
  request.json = true;
  EXPECT_EQ(Run(Command::kPropose), kDone);
  EXPECT_NE(out.str().find("\"kind\":\"warmup_extension\""), std::string::npos);
}

TEST_F(Commands, ApproveAndRejectCarryAuthorAndReason) {
  request.id = "gpt/1";
  request.author = "ada";
  request.reason = "looks right";
  control.answered.set_id("gpt/1");
  control.answered.set_state("approved");
  control.answered.set_kind(v1::QK_CLIP);
  control.answered.set_author("ada");
  EXPECT_EQ(Run(Command::kApprove), kDone);
  EXPECT_EQ(out.str(), "gpt/1 is now approved (qk_clip, by ada).\n");
  EXPECT_EQ(control.approved.id(), "gpt/1");
  EXPECT_EQ(control.approved.author(), "ada");
  EXPECT_EQ(control.approved.reason(), "looks right");
  request.json = true;
  EXPECT_EQ(Run(Command::kReject), kDone);
  EXPECT_EQ(control.rejected.reason(), "looks right");
  EXPECT_NE(out.str().find("\"state\":\"approved\""), std::string::npos);
}

TEST_F(Commands, ModeAllTellsEachRunAndTheRunsToCome) {
  request.all = true;
  request.mode = "observe";
  control.mode_runs = {"a", "b"};
  EXPECT_EQ(Run(Command::kMode), kDone);
  EXPECT_TRUE(control.mode.all());
  EXPECT_EQ(control.mode.mode(), v1::OBSERVE);
  EXPECT_EQ(out.str(), "a is now in mode observe.\nb is now in mode observe.\n"
                       "2 runs changed; new runs start in mode observe.\n");
  request.json = true;
  EXPECT_EQ(Run(Command::kMode), kDone);
  EXPECT_EQ(out.str(), "{\"run\":\"a\",\"mode\":\"observe\"}\n{\"run\":\"b\",\"mode\":\"observe\"}\n");
}

TEST_F(Commands, ModeAllSaysInWhichModeNewRunsReallyBegin) {
  request.all = true;
  request.mode = "act";
  control.start_mode = v1::ADVISE;  // The configuration's.
  EXPECT_EQ(Run(Command::kMode), kDone);
  EXPECT_EQ(out.str(), "0 runs changed; new runs start in mode advise.\n");
}

TEST_F(Commands, SeriesIsStepAndValueInAPipeAndASummaryOnATerminal) {
  for (int i = 0; i < 20; ++i) control.series.emplace_back(i, i * 0.5);
  request.signal = "attn_logit_max";
  request.layer = 3;
  request.from_step = 0;
  EXPECT_EQ(Run(Command::kSeries), kDone);
  EXPECT_EQ(LineCount(out.str()), 20u);
  EXPECT_EQ(out.str().substr(0, 10), "0 0\n1 0.5\n");
  EXPECT_EQ(control.asked_series.layer(), 3u);
  EXPECT_TRUE(control.asked_series.has_from_step());
  EXPECT_FALSE(control.asked_series.has_head());
  terminal = true;
  EXPECT_EQ(Run(Command::kSeries), kDone);
  EXPECT_NE(out.str().find("attn_logit_max layer 3"), std::string::npos);
  EXPECT_NE(out.str().find("  19 9.5\n"), std::string::npos);
  request.json = true;
  EXPECT_EQ(Run(Command::kSeries), kDone);
  EXPECT_EQ(LineCount(out.str()), 20u);
}

TEST_F(Commands, AnEmptySeriesIsSaidAndAnUnknownSignalIsAnError) {
  request.run = "gpt";
  request.signal = "loss";
  EXPECT_EQ(Run(Command::kSeries), kDone);
  EXPECT_EQ(err.str(), "gyrostatctl: gpt has no values of loss in these steps.\n");
  request.signal = "los";
  EXPECT_EQ(Run(Command::kSeries), kRefused);
  EXPECT_NE(err.str().find("gyrostat's own signals are: loss learning_rate"), std::string::npos);
  EXPECT_EQ(out.str(), "");
}

TEST_F(Commands, WatchEndsAfterItsCount) {
  control.views.resize(5);
  request.count = 3;
  request.interval_ms = 250;
  EXPECT_EQ(Run(Command::kWatch), kDone);
  EXPECT_EQ(LineCount(out.str()), 3u) << "a pipe gets a line an update";
  EXPECT_EQ(control.watched.interval_ms(), 250u);
  EXPECT_FALSE(control.watched.heads());
  request.json = true;
  EXPECT_EQ(Run(Command::kWatch), kDone);
  EXPECT_EQ(LineCount(out.str()), 3u);
  EXPECT_TRUE(out.str().starts_with("{"));
}

TEST_F(Commands, WatchOncePrintsOnePage) {
  control.views.resize(5);
  control.views[0].mutable_summary()->set_run("gpt");
  control.views[0].mutable_summary()->set_step(9);
  control.run.mutable_view()->mutable_summary()->set_step(9);
  control.series = {{7, 1.0}, {8, 2.0}};
  request.once = true;
  for (const bool on : {false, true}) {
    terminal = on;
    EXPECT_EQ(Run(Command::kWatch), kDone);
    EXPECT_TRUE(out.str().starts_with("gpt ")) << out.str();
    EXPECT_NE(out.str().find("\nloss          -           ▁█\n"), std::string::npos) << out.str();
    EXPECT_EQ(out.str().find("Ctrl-C"), std::string::npos);
    EXPECT_EQ(out.str().find("<given back>"), std::string::npos) << "no page of its own";
    EXPECT_TRUE(control.watched.heads());
    EXPECT_EQ(control.asked_series.to_step(), 8);
  }
}

TEST_F(Commands, WatchInAPipeEndsWithTheStream) {
  control.views.resize(2);
  EXPECT_EQ(Run(Command::kWatch), kUnreachable);
  EXPECT_EQ(LineCount(out.str()), 2u);
}

TEST_F(Commands, WatchOnATerminalWaitsForTheDaemonToComeBack) {
  terminal = true;
  control.views.resize(2);
  control.views[0].mutable_summary()->set_run("gpt");
  control.watch_ends = {absl::UnavailableError("gone"), absl::UnavailableError("gone")};
  request.count = 5;
  EXPECT_EQ(Run(Command::kWatch), kDone);
  EXPECT_EQ(control.connections, 2);
  EXPECT_NE(out.str().find("No daemon answers at 127.0.0.1:7431; trying again."), std::string::npos);
  EXPECT_TRUE(out.str().ends_with("<given back>"));
}

TEST_F(Commands, WatchOnATerminalEndsWhenTheRunIsUnknown) {
  terminal = true;
  control.failure = absl::NotFoundError("no run \"x\"");
  EXPECT_EQ(Run(Command::kWatch), kRefused);
  EXPECT_EQ(out.str(), "") << "nothing to show, so no page";
}

}  // namespace
}  // namespace gyrostat::ctl
