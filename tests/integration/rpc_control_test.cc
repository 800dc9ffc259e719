#include <gmock/gmock.h>

#include <limits>

#include "integration/rpc_daemon.h"

namespace gyrostat::rpc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// One unary call.
template <class Stub, class Request, class Response>
grpc::Status Ask(Stub* stub, grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Response*),
                 const Request& request, Response* response) {
  grpc::ClientContext context;
  SetPatience(&context);
  return (stub->*call)(&context, request, response);
}

class Control : public testing::Test {
 protected:
  Control() : stub_(daemon_.Control()) {}

  // A run with `reports` reports, as after a while of training.
  std::unique_ptr<Job> Train(const std::string& run, char attempt, uint64_t reports) {
    auto job = std::make_unique<Job>(daemon_.address);
    job->Meet(HelloOf(run, attempt));
    for (uint64_t i = 1; i <= reports; ++i) EXPECT_TRUE(job->Say(SampleReport(i)));
    EXPECT_TRUE(job->HearAcknowledged(reports));
    return job;
  }
  grpc::Status SetMode(const std::string& run, bool all, v1::Mode mode, v1::SetModeResponse* response) {
    v1::SetModeRequest request;
    request.set_run(run);
    request.set_all(all);
    request.set_mode(mode);
    return Ask(stub_.get(), &v1::ControlService::Stub::SetMode, request, response);
  }

  RpcDaemon daemon_;
  std::unique_ptr<v1::ControlService::Stub> stub_;
};

TEST_F(Control, ListsRunsByName) {
  const auto b = Train("b", 'b', 2), a = Train("a", 'a', 1);
  v1::ListRunsResponse runs;
  ASSERT_TRUE(Ask(stub_.get(), &v1::ControlService::Stub::ListRuns, v1::ListRunsRequest(), &runs).ok());
  ASSERT_EQ(runs.runs_size(), 2);
  EXPECT_EQ(runs.runs(0).run(), "a");
  EXPECT_EQ(runs.runs(1).run(), "b");
  EXPECT_EQ(runs.runs(1).step(), 102);
  EXPECT_EQ(runs.runs(1).state(), "live");
}

TEST_F(Control, ShowsARun) {
  const auto job = Train("r", 'a', 3);
  v1::GetRunRequest request;
  request.set_run("r");
  v1::GetRunResponse response;
  ASSERT_TRUE(Ask(stub_.get(), &v1::ControlService::Stub::GetRun, request, &response).ok());
  EXPECT_EQ(response.view().model().layers(), 2u);
  EXPECT_EQ(response.view().reports_total(), 3u);
  EXPECT_THAT(response.view().layer_attn_logit_max(), ElementsAre(4, 8));
  EXPECT_THAT(response.view().allow(), ElementsAre("qk_clip"));
}

TEST_F(Control, NamesTheRunThatIsUnknownAndSomeThatAreNot) {
  v1::GetRunRequest request;
  request.set_run("x");
  v1::GetRunResponse response;
  grpc::Status status = Ask(stub_.get(), &v1::ControlService::Stub::GetRun, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "run x is not known; no run is known yet");
  std::vector<std::unique_ptr<Job>> jobs;
  for (const char* name : {"g", "f", "e", "d", "c", "b", "a"}) jobs.push_back(Train(name, *name, 1));
  status = Ask(stub_.get(), &v1::ControlService::Stub::GetRun, request, &response);
  EXPECT_EQ(status.error_message(), "run x is not known; known: a b c d e and 2 more");
  request.set_run("no/such\nname");
  status = Ask(stub_.get(), &v1::ControlService::Stub::GetRun, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "run is \"no/such?name\", wanted 1 to 128 of A-Z a-z 0-9 . _ : -");
}

TEST_F(Control, SetsTheModeOfOneRunOrAll) {
  const auto a = Train("a", 'a', 1), b = Train("b", 'b', 1);
  v1::SetModeResponse response;
  ASSERT_TRUE(SetMode("a", false, v1::ACT, &response).ok());
  EXPECT_THAT(response.runs(), ElementsAre("a"));
  EXPECT_EQ((*daemon_.engine.FindRun("a"))->mode, model::Mode::kAct);
  EXPECT_EQ((*daemon_.engine.FindRun("b"))->mode, model::Mode::kObserve);
  response.Clear();
  ASSERT_TRUE(SetMode("", true, v1::ADVISE, &response).ok());
  EXPECT_THAT(response.runs(), ElementsAre("a", "b"));
  EXPECT_EQ((*daemon_.engine.FindRun("b"))->mode, model::Mode::kAdvise);
}

TEST_F(Control, RefusesAModeOfNothingOrOfNoMode) {
  v1::SetModeResponse response;
  EXPECT_EQ(SetMode("", false, v1::ACT, &response).error_message(), "neither run nor all is given, wanted one of them");
  EXPECT_EQ(SetMode("a", true, v1::ACT, &response).error_message(), "run and all are both given, wanted one of them");
  EXPECT_EQ(SetMode("a", false, v1::MODE_UNSPECIFIED, &response).error_message(),
            "mode is 0, wanted OBSERVE, ADVISE or ACT");
  EXPECT_EQ(SetMode("a", false, v1::ACT, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(ControlKillSwitch, HoldsForRunsThatStartLater) {
  engine::EngineOptions options;
  options.run.policy.mode = model::Mode::kAdvise;
  RpcDaemon daemon({}, options);
  const auto stub = daemon.Control();
  const auto set = [&](v1::Mode mode) {
    v1::SetModeRequest request;
    request.set_all(true);
    request.set_mode(mode);
    v1::SetModeResponse response;
    EXPECT_TRUE(Ask(stub.get(), &v1::ControlService::Stub::SetMode, request, &response).ok());
  };
  set(v1::OBSERVE);
  Job first(daemon.address), second(daemon.address);
  EXPECT_EQ(first.Meet(HelloOf("first", 'a')).mode(), v1::OBSERVE);
  daemon.engine.SetRunOptions(options.run);  // A reload.
  Job reloaded(daemon.address);
  EXPECT_EQ(reloaded.Meet(HelloOf("reloaded", 'c')).mode(), v1::OBSERVE);
  set(v1::ACT);  // Given back, but never more than the configuration gave.
  EXPECT_EQ((*daemon.engine.FindRun("first"))->mode, model::Mode::kAct);
  EXPECT_EQ(second.Meet(HelloOf("second", 'b')).mode(), v1::ADVISE);
}

TEST_F(Control, KnowsNoInterventionThatIsNotThere) {
  const auto job = Train("r", 'a', 1);
  v1::ApproveRequest approve;
  v1::ApproveResponse approved;
  approve.set_id("17");
  grpc::Status status = Ask(stub_.get(), &v1::ControlService::Stub::Approve, approve, &approved);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "intervention \"17\" is not known; ids look like RUN/NUMBER");
  approve.set_id("s/1");
  status = Ask(stub_.get(), &v1::ControlService::Stub::Approve, approve, &approved);
  EXPECT_EQ(status.error_message(), "run s is not known; known: r");
  v1::RejectRequest reject;
  v1::RejectResponse rejected;
  reject.set_id("r/99");
  status = Ask(stub_.get(), &v1::ControlService::Stub::Reject, reject, &rejected);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("r/99"));
}

TEST_F(Control, ProposesApprovesAndSendsAnOrderOfRegisters) {
  Job job(daemon_.address);
  v1::Hello hello = HelloOf("r", 'a');
  hello.add_allow("lr_scale");
  job.Meet(hello);
  ASSERT_TRUE(job.Say(SampleReport(1)));
  ASSERT_TRUE(job.HearAcknowledged(1));
  v1::ProposeRequest propose;
  propose.set_run("r");
  propose.set_kind(v1::LR_SCALE);
  propose.set_scale(0.25);
  propose.set_author("ada");
  propose.set_reason("it grows");
  v1::ProposeResponse proposed;
  grpc::Status status = Ask(stub_.get(), &v1::ControlService::Stub::Propose, propose, &proposed);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("run r is in mode observe"));
  v1::SetModeResponse mode;
  ASSERT_TRUE(SetMode("r", false, v1::ADVISE, &mode).ok());
  propose.set_scale(7);
  status = Ask(stub_.get(), &v1::ControlService::Stub::Propose, propose, &proposed);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "scale is 7, wanted 0.01 to 1");
  propose.set_scale(0.25);
  status = Ask(stub_.get(), &v1::ControlService::Stub::Propose, propose, &proposed);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(proposed.intervention().id(), "r/1");
  EXPECT_EQ(proposed.intervention().state(), "proposed");
  EXPECT_EQ(proposed.intervention().author(), "ada");
  EXPECT_THAT(proposed.intervention().reason(), HasSubstr("Proposed by ada: it grows"));
  v1::ApproveRequest approve;
  v1::ApproveResponse approved;
  approve.set_id("r/1");
  ASSERT_TRUE(Ask(stub_.get(), &v1::ControlService::Stub::Approve, approve, &approved).ok());
  ASSERT_TRUE(job.Say(SampleReport(2)));
  v1::DaemonMessage message;
  do message = job.Hear();
  while (message.has_acknowledged());
  ASSERT_TRUE(message.has_order());
  EXPECT_EQ(message.order().kind(), v1::LR_SCALE);
  EXPECT_THAT(message.order().sets().id(), ElementsAre(0, 1));
  EXPECT_EQ(message.order().sets().value(0), 0.25f);
  EXPECT_EQ(message.order().intent_id(), "r/1");
}

TEST_F(Control, ListsFindingsOldestFirst) {
  const auto job = Train("r", 'a', 1);
  for (uint64_t id : {3, 1, 2}) {
    engine::History::FindingRow row;
    row.finding.id = id;
    row.finding.detector = "loss_spike";
    row.attempt = *model::Id128::FromBytes(IdBytes('a'));
    daemon_.store.AddFinding("r", row);
  }
  v1::ListFindingsRequest request;
  request.set_run("r");
  v1::ListFindingsResponse response;
  ASSERT_TRUE(Ask(stub_.get(), &v1::ControlService::Stub::ListFindings, request, &response).ok());
  ASSERT_EQ(response.findings_size(), 3);
  EXPECT_EQ(response.findings(0).id(), 1u);
  EXPECT_EQ(response.findings(2).id(), 3u);
  EXPECT_EQ(response.findings(0).attempt(), IdBytes('a'));
  EXPECT_EQ(response.left_out(), 0u);
  request.set_open_only(true);
  ASSERT_TRUE(Ask(stub_.get(), &v1::ControlService::Stub::ListFindings, request, &response).ok());
  EXPECT_EQ(response.findings_size(), 0);
}

TEST_F(Control, TellsTheEpisodeToEverybodyWhoAsks) {
  const auto job = Train("r", 'a', 20);
  v1::ListEpisodesRequest request;
  request.set_run("r");
  v1::ListEpisodesResponse episodes;
  ASSERT_TRUE(Ask(stub_.get(), &v1::ControlService::Stub::ListEpisodes, request, &episodes).ok());
  EXPECT_EQ(episodes.episodes_size(), 0);
  for (uint64_t i = 21; i <= 24; ++i) {
    v1::Report report = SampleReport(i);
    report.clear_scalar_signals();
    report.clear_scalars();
    AddScalar(&report, model::Signal::kLoss, std::numeric_limits<double>::quiet_NaN());
    ASSERT_TRUE(job->Say(report));
  }
  ASSERT_TRUE(job->HearAcknowledged(24));
  ASSERT_TRUE(Ask(stub_.get(), &v1::ControlService::Stub::ListEpisodes, request, &episodes).ok());
  ASSERT_EQ(episodes.episodes_size(), 1);
  const v1::Episode& episode = episodes.episodes(0);
  EXPECT_EQ(episode.attempt(), IdBytes('a'));
  EXPECT_EQ(episode.causes(0).cause(), "numeric");
  EXPECT_EQ(episode.step_begin(), 121);
  EXPECT_THAT(episode.page(), HasSubstr(episode.headline()));
  v1::GetRunRequest show;
  show.set_run("r");
  v1::GetRunResponse shown;
  ASSERT_TRUE(Ask(stub_.get(), &v1::ControlService::Stub::GetRun, show, &shown).ok());
  EXPECT_EQ(shown.view().episode().SerializeAsString(), episode.SerializeAsString());
  v1::ListFindingsRequest list;
  list.set_run("r");
  v1::ListFindingsResponse findings;
  ASSERT_TRUE(Ask(stub_.get(), &v1::ControlService::Stub::ListFindings, list, &findings).ok());
  ASSERT_GT(findings.findings_size(), 0);
  for (const v1::Finding& each : findings.findings()) EXPECT_EQ(each.episode(), episode.id()) << each.detector();
}

TEST_F(Control, LeavesOutTheOldestFindingsWhenTheyDoNotFit) {
  const auto job = Train("r", 'a', 1);
  for (uint64_t id = 1; id <= 5; ++id) {
    engine::History::FindingRow row;
    row.finding.id = id;
    row.finding.message = std::string(1 << 20, 'x');
    daemon_.store.AddFinding("r", row);
  }
  v1::ListFindingsRequest request;
  request.set_run("r");
  v1::ListFindingsResponse response;
  ASSERT_TRUE(Ask(stub_.get(), &v1::ControlService::Stub::ListFindings, request, &response).ok());
  ASSERT_EQ(response.findings_size(), 2);
  EXPECT_EQ(response.findings(0).id(), 4u);
  EXPECT_EQ(response.findings(1).id(), 5u);
  EXPECT_EQ(response.left_out(), 3u);
}

TEST_F(Control, StreamsASeriesInChunks) {
  const auto job = Train("r", 'a', 3000);
  v1::GetSeriesRequest request;
  request.set_run("r");
  request.set_signal("loss");
  request.set_from_step(102);
  grpc::ClientContext context;
  SetPatience(&context);
  const auto reader = stub_->GetSeries(&context, request);
  v1::SeriesChunk chunk;
  std::vector<int> sizes;
  int64_t step = 102;
  while (reader->Read(&chunk)) {
    sizes.push_back(chunk.step_size());
    ASSERT_EQ(chunk.step_size(), chunk.value_size());
    for (const int64_t each : chunk.step()) EXPECT_EQ(each, step++);
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_THAT(sizes, ElementsAre(1024, 1024, 951));
}

TEST_F(Control, SaysWhatIsWrongWithASeries) {
  const auto job = Train("r", 'a', 1);
  const auto ask = [&](const std::string& run, const std::string& signal, bool layer) {
    v1::GetSeriesRequest request;
    request.set_run(run);
    request.set_signal(signal);
    if (layer) request.set_layer(0);
    grpc::ClientContext context;
    SetPatience(&context);
    const auto reader = stub_->GetSeries(&context, request);
    v1::SeriesChunk chunk;
    EXPECT_FALSE(reader->Read(&chunk));
    return reader->Finish();
  };
  EXPECT_EQ(ask("x", "loss", false).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ask("r", "loss", true).error_message(), "layer or head is given, wanted none: loss is one value a step");
  EXPECT_TRUE(ask("r", "learning_rate", false).ok());  // Known, never reported: no points.
}

TEST_F(Control, WatchShowsWhatIsNew) {
  const auto job = Train("r", 'a', 1);
  v1::WatchRequest request;
  request.set_run("r");
  request.set_interval_ms(100);
  grpc::ClientContext context;
  SetPatience(&context);
  const auto reader = stub_->Watch(&context, request);
  v1::RunView view;
  ASSERT_TRUE(reader->Read(&view));
  EXPECT_EQ(view.summary().step(), 101);
  ASSERT_TRUE(job->Say(SampleReport(2)));
  do {
    ASSERT_TRUE(reader->Read(&view));
  } while (view.summary().step() != 102);
  EXPECT_EQ(daemon_.probe().watchers_open.value(), 1);
  context.TryCancel();
  EXPECT_TRUE(Eventually([&] { return daemon_.probe().watchers_open.value() == 0; }));
}

TEST_F(Control, WatchBringsEveryHeadWhereItIsAskedTo) {
  const auto job = Train("r", 'a', 1);
  for (const bool heads : {false, true}) {
    v1::WatchRequest request;
    request.set_run("r");
    request.set_heads(heads);
    grpc::ClientContext context;
    SetPatience(&context);
    const auto reader = stub_->Watch(&context, request);
    v1::RunView view;
    ASSERT_TRUE(reader->Read(&view));
    EXPECT_EQ(view.head_attn_logit_max_size(), heads ? 8 : 0);
    if (heads) {
      EXPECT_EQ(view.head_attn_logit_max(7), 8);
    }
    context.TryCancel();
  }
}

TEST_F(Control, WatchWantsAReasonableInterval) {
  const auto job = Train("r", 'a', 1);
  for (const uint32_t interval_ms : {99u, 60001u}) {
    v1::WatchRequest request;
    request.set_run("r");
    request.set_interval_ms(interval_ms);
    grpc::ClientContext context;
    SetPatience(&context);
    const auto reader = stub_->Watch(&context, request);
    v1::RunView view;
    EXPECT_FALSE(reader->Read(&view));
    EXPECT_EQ(reader->Finish().error_message(),
              "interval_ms is " + std::to_string(interval_ms) + ", wanted 100 to 60000, or 0 for 1000");
  }
}

TEST_F(Control, WatchEndsWhenTheDaemonStops) {
  const auto job = Train("r", 'a', 1);
  v1::WatchRequest request;
  request.set_run("r");
  grpc::ClientContext context;
  SetPatience(&context);
  const auto reader = stub_->Watch(&context, request);
  v1::RunView view;
  ASSERT_TRUE(reader->Read(&view));
  daemon_.server->Stop(base::Milliseconds(20000));
  while (reader->Read(&view)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Control, TellsHowTheDaemonIs) {
  const auto job = Train("r", 'a', 4);
  v1::GetStatusResponse status;
  ASSERT_TRUE(Ask(stub_.get(), &v1::ControlService::Stub::GetStatus, v1::GetStatusRequest(), &status).ok());
  EXPECT_EQ(status.version(), "1.2.3");
  EXPECT_EQ(status.started_at_ms(), 1700000000000);
  EXPECT_EQ(status.grpc_address(), daemon_.address);
  EXPECT_EQ(status.http_address(), "127.0.0.1:7432");
  EXPECT_EQ(status.data_dir(), "/var/lib/gyrostat");
  EXPECT_EQ(status.runs(), 1u);
  EXPECT_EQ(status.streams(), 1u);
  EXPECT_EQ(status.reports_total(), 4u);
  EXPECT_EQ(status.journal_queue(), 5u);
  EXPECT_TRUE(status.ready());
  EXPECT_EQ(status.default_mode(), v1::OBSERVE);
}

}  // namespace
}  // namespace gyrostat::rpc
