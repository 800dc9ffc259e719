#include <gmock/gmock.h>

#include "integration/rpc_daemon.h"

namespace gyrostat::rpc {
namespace {

using testing::HasSubstr;

TEST(ReportStream, WelcomesThenAcknowledgesWhatIsSafe) {
  RpcDaemon daemon;
  Job job(daemon.address);
  const v1::Welcome welcome = job.Meet(HelloOf("r", 'a'));
  EXPECT_EQ(welcome.daemon_version(), "1.2.3");
  EXPECT_EQ(welcome.mode(), v1::OBSERVE);
  EXPECT_EQ(welcome.acknowledged_sequence(), 0u);
  for (uint64_t i = 1; i <= 100; ++i) ASSERT_TRUE(job.Say(SampleReport(i)));
  EXPECT_TRUE(job.HearAcknowledged(100));
  EXPECT_EQ((*daemon.engine.FindRun("r"))->step, 200);
  EXPECT_EQ(daemon.engine.probe().reports_total.value(), 100u);
}

TEST(ReportStream, AcknowledgesNothingThatIsNotOnDisk) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  daemon.store.Hold(true);
  for (uint64_t i = 1; i <= 5; ++i) ASSERT_TRUE(job.Say(SampleReport(i)));
  ASSERT_TRUE(Eventually([&] { return daemon.store.waiting() == 5; }));
  daemon.store.Fail(true);
  daemon.store.Hold(false);
  ASSERT_TRUE(Eventually([&] { return daemon.engine.probe().journal_failures_total.value() == 5; }));
  daemon.store.Fail(false);
  // None of the five was acknowledged: a client that comes back sends them again, and now they are kept.
  ASSERT_TRUE(job.Say(SampleReport(1)));
  const v1::DaemonMessage first = job.Hear();
  EXPECT_EQ(first.acknowledged().sequence(), 5u) << first.ShortDebugString();
}

TEST(ReportStream, WantsAHelloFirst) {
  RpcDaemon daemon;
  Job job(daemon.address);
  ASSERT_TRUE(job.Say(SampleReport(1)));
  const grpc::Status end = job.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(end.error_message(), "the first message is no hello");
}

TEST(ReportStream, WantsOnlyOneHello) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  ASSERT_TRUE(job.Say(HelloOf("r", 'a')));
  EXPECT_EQ(job.End().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST(ReportStream, RefusesABadHelloWithTheReason) {
  RpcDaemon daemon;
  v1::Hello hello = HelloOf("r", 'a');
  hello.set_protocol_version(9);
  Job job(daemon.address);
  ASSERT_TRUE(job.Say(hello));
  const grpc::Status end = job.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(end.error_message(), "hello.protocol_version is 9, wanted 1 to 1");
  EXPECT_EQ(daemon.probe().streams_refused_total.value(), 1u);
  EXPECT_TRUE(daemon.engine.Runs().empty());
}

TEST(ReportStream, TellsAJobThatThereIsNoRoomForItsRun) {
  engine::EngineOptions options;
  options.runs_max = 1;
  RpcDaemon daemon({}, options);
  Job first(daemon.address);
  first.Meet(HelloOf("first", 'a'));
  for (int i = 0; i < 3; ++i) {  // As a client that dials again.
    Job second(daemon.address);
    ASSERT_TRUE(second.Say(HelloOf("second", 'b')));
    const grpc::Status end = second.End();
    EXPECT_EQ(end.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(end.error_message(), "run second is not taken: this daemon holds 1 runs already");
  }
  EXPECT_EQ(daemon.probe().streams_refused_total.value(), 3u);
  EXPECT_FALSE(daemon.streams.IsFirstRefusal("second")) << "it has been logged";
}

TEST(ReportStream, DoesNotWaitForAHelloForEver) {
  ServerOptions options;
  options.hello_deadline = base::Milliseconds(100);
  RpcDaemon daemon(options, {});
  Job job(daemon.address);
  const grpc::Status end = job.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(end.error_message(), "no hello within 100 ms");
}

TEST(ReportStream, TakesAMalformedReportOutOfTheWay) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  v1::Report bad = SampleReport(2);
  bad.mutable_arrays(0)->set_values("abc");
  ASSERT_TRUE(job.Say(SampleReport(1)));
  ASSERT_TRUE(job.Say(bad));
  ASSERT_TRUE(job.HearAcknowledged(2));  // Not sent again, so no loop.
  ASSERT_TRUE(job.Say(SampleReport(3)));
  EXPECT_TRUE(job.HearAcknowledged(3));
  EXPECT_EQ(daemon.probe().reports_refused_total.value(), 1u);
  EXPECT_EQ(daemon.engine.probe().reports_total.value(), 2u);
}

TEST(ReportStream, TakesAReportOfTheWrongShapeOutOfTheWay) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  v1::Report bad = SampleReport(1);
  bad.mutable_arrays(0)->set_values(FloatBytes({1, 2, 3}));
  ASSERT_TRUE(job.Say(bad));
  EXPECT_TRUE(job.HearAcknowledged(1));
  EXPECT_EQ(daemon.engine.probe().reports_refused_total.value(), 1u);
  EXPECT_TRUE(Eventually([&] { return daemon.probe().reports_refused_total.value() == 1; }));
}

TEST(ReportStream, AcknowledgesARefusedReportOnlyAfterThoseBeforeIt) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  daemon.store.Hold(true);
  ASSERT_TRUE(job.Say(SampleReport(1)));
  v1::Report bad = SampleReport(2);
  bad.add_scalars(1);
  ASSERT_TRUE(job.Say(bad));
  ASSERT_TRUE(Eventually([&] { return daemon.probe().reports_refused_total.value() == 1; }));
  daemon.store.Fail(true);
  daemon.store.Hold(false);
  ASSERT_TRUE(Eventually([&] { return daemon.engine.probe().journal_failures_total.value() > 0; }));
  daemon.store.Fail(false);
  // Report 1 was not kept, so 2 says nothing for it; 3 comes with a snapshot that holds them all.
  ASSERT_TRUE(job.Say(SampleReport(3)));
  const v1::DaemonMessage next = job.Hear();
  EXPECT_EQ(next.acknowledged().sequence(), 3u) << next.ShortDebugString();
}

TEST(ReportStream, ReadsNoFurtherWhileTooMuchIsInFlight) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  daemon.store.Hold(true);
  for (uint64_t i = 1; i <= 200; ++i) ASSERT_TRUE(job.Say(SampleReport(i)));
  ASSERT_TRUE(Eventually([&] { return daemon.store.waiting() == 64; }));
  daemon.store.Hold(false);
  EXPECT_TRUE(job.HearAcknowledged(200));
  EXPECT_EQ(daemon.engine.probe().reports_total.value(), 200u);
}

TEST(ReportStream, WaitsAndTriesAgainWhileTheEngineIsFull) {
  engine::EngineOptions options;
  options.shards = 1;
  options.queue_capacity_events = 16;
  RpcDaemon daemon({}, options);
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  daemon.store.Stall(true);
  for (uint64_t i = 1; i <= 60; ++i) ASSERT_TRUE(job.Say(SampleReport(i)));
  ASSERT_TRUE(Eventually([&] { return daemon.probe().reads_paused_total.value() >= 3; }));
  daemon.store.Stall(false);
  EXPECT_TRUE(job.HearAcknowledged(60));
  EXPECT_EQ(daemon.engine.probe().reports_total.value(), 60u);
  EXPECT_EQ(daemon.engine.probe().reports_repeated_total.value(), 0u);
}

TEST(ReportStream, TellsAReturningClientWhatItNeedNotSendAgain) {
  RpcDaemon daemon;
  {
    Job job(daemon.address);
    job.Meet(HelloOf("r", 'a'));
    for (uint64_t i = 1; i <= 7; ++i) ASSERT_TRUE(job.Say(SampleReport(i)));
    ASSERT_TRUE(job.HearAcknowledged(7));
  }
  Job again(daemon.address);
  EXPECT_EQ(again.Meet(HelloOf("r", 'a')).acknowledged_sequence(), 7u);
  ASSERT_TRUE(again.Say(SampleReport(7)));  // Sent all the same: recognised.
  ASSERT_TRUE(again.Say(SampleReport(8)));
  EXPECT_TRUE(again.HearAcknowledged(8));
  EXPECT_EQ(daemon.engine.probe().reports_total.value(), 8u);
  EXPECT_EQ(daemon.engine.probe().reports_repeated_total.value(), 1u);
}

TEST(ReportStream, CutsTheOlderOfTwoStreamsOfOneAttempt) {
  RpcDaemon daemon;
  Job old(daemon.address), young(daemon.address), other(daemon.address);
  old.Meet(HelloOf("r", 'a'));
  other.Meet(HelloOf("s", 'b'));
  young.Meet(HelloOf("r", 'a'));
  const grpc::Status end = old.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(end.error_message(), HasSubstr("opened a newer stream"));
  ASSERT_TRUE(young.Say(SampleReport(1)));
  EXPECT_TRUE(young.HearAcknowledged(1));
  ASSERT_TRUE(other.Say(SampleReport(1)));
  EXPECT_TRUE(other.HearAcknowledged(1));
  EXPECT_TRUE(Eventually([&] { return daemon.probe().streams_open.value() == 2; }));
}

TEST(ReportStream, EndsWellAfterABye) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  ASSERT_TRUE(job.Say(SampleReport(1)));
  ASSERT_TRUE(job.SayBye());
  EXPECT_TRUE(job.HearAcknowledged(1));  // Even what was still on its way when the bye came.
  EXPECT_TRUE(job.End().ok());
  EXPECT_EQ((*daemon.engine.FindRun("r"))->life, engine::RunLife::kEnded);
}

TEST(ReportStream, TakesAHalfCloseWithoutByeAsABreak) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  ASSERT_TRUE(job.Say(SampleReport(1)));
  ASSERT_TRUE(job.HalfClose());
  EXPECT_TRUE(job.HearAcknowledged(1));
  EXPECT_EQ(job.End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ((*daemon.engine.FindRun("r"))->life, engine::RunLife::kLive);
}

TEST(ReportStream, HasRoomForSoManyOnly) {
  ServerOptions options;
  options.streams_max = 1;
  RpcDaemon daemon(options, {});
  Job first(daemon.address), second(daemon.address);
  first.Meet(HelloOf("r", 'a'));
  const grpc::Status end = second.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(end.error_message(), HasSubstr("1 report streams are taken"));
}

TEST(ReportStream, RefusesARunBeyondTheEnginesLimit) {
  engine::EngineOptions options;
  options.runs_max = 1;
  RpcDaemon daemon({}, options);
  Job first(daemon.address), second(daemon.address);
  first.Meet(HelloOf("r", 'a'));
  ASSERT_TRUE(second.Say(HelloOf("s", 'b')));
  const grpc::Status end = second.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(end.error_message(), HasSubstr("runs already"));
}

TEST(ReportStream, CountsABadAckAndGoesOn) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  v1::Ack ack = SampleAck();
  ack.set_order_id("short");
  ASSERT_TRUE(job.Say(ack));
  ASSERT_TRUE(job.Say(SampleReport(1)));
  EXPECT_TRUE(job.HearAcknowledged(1));
  EXPECT_EQ(daemon.probe().acks_refused_total.value(), 1u);
}

TEST(ReportStream, DeliversOrdersToTheirAttempt) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  model::Order order;
  order.id = *model::Id128::FromBytes(IdBytes('o'));
  order.run = "r";
  order.attempt = *model::Id128::FromBytes(IdBytes('a'));
  order.entries = {{1, 2, 31.5f, 99}};
  daemon.streams.SendOrder(order);
  const v1::DaemonMessage message = job.Hear();
  ASSERT_TRUE(message.has_order()) << message.ShortDebugString();
  EXPECT_EQ(message.order().order_id(), IdBytes('o'));
  EXPECT_EQ(message.order().qk_clip().entries().reported_max(0), 31.5f);
}

TEST(ReportStream, CutsAReaderThatDoesNotRead) {
  RpcDaemon daemon;
  Job deaf(daemon.address), good(daemon.address);
  deaf.Meet(HelloOf("r", 'a'));
  good.Meet(HelloOf("s", 'b'));
  model::Order order;
  order.run = "r";
  order.attempt = *model::Id128::FromBytes(IdBytes('a'));
  order.entries.assign(20000, {1, 2, 31.5f, 99});  // 200 KB.
  const auto cut = [&] {
    daemon.streams.SendOrder(order);
    return daemon.probe().readers_cut_total.value() == 1;
  };
  ASSERT_TRUE(Eventually(cut));
  ASSERT_TRUE(Eventually([&] { return daemon.probe().streams_open.value() == 1; }));
  EXPECT_FALSE(deaf.End().ok());
  ASSERT_TRUE(good.Say(SampleReport(1)));
  EXPECT_TRUE(good.HearAcknowledged(1));
}

TEST(ReportStream, IsToldToDialAgainWhenTheDaemonStops) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  daemon.store.Hold(true);
  ASSERT_TRUE(job.Say(SampleReport(1)));
  ASSERT_TRUE(Eventually([&] { return daemon.store.waiting() == 1; }));
  std::thread stopper([&] { daemon.server->Stop(base::Milliseconds(20000)); });
  daemon.store.Hold(false);
  EXPECT_TRUE(job.HearAcknowledged(1));  // What was in flight is settled first.
  const grpc::Status end = job.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(end.error_message(), "the daemon is stopping; dial again");
  stopper.join();
  Job late(daemon.address);
  EXPECT_EQ(late.End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(ReportStream, CannotHoldUpAStopByNotSettling) {
  RpcDaemon daemon;
  Job job(daemon.address);
  job.Meet(HelloOf("r", 'a'));
  daemon.store.Hold(true);
  ASSERT_TRUE(job.Say(SampleReport(1)));
  ASSERT_TRUE(Eventually([&] { return daemon.store.waiting() == 1; }));
  daemon.server->Stop(base::Milliseconds(50));
  EXPECT_FALSE(job.End().ok());
}

TEST(ReportStream, SurvivesManyJobsThatComeAndGo) {
  RpcDaemon daemon;
  std::vector<std::thread> jobs;
  for (int i = 0; i < 8; ++i)
    jobs.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) {
        Job job(daemon.address);
        job.Meet(HelloOf("run-" + std::to_string(i), static_cast<char>('a' + i)));
        const uint64_t next = job.acknowledged() + 1;
        for (uint64_t k = next; k < next + 5; ++k) EXPECT_TRUE(job.Say(SampleReport(k)));
        if (round % 2 == 0) {
          EXPECT_TRUE(job.HearAcknowledged(next + 4));
        }
      }
    });
  for (std::thread& each : jobs) each.join();
  EXPECT_EQ(daemon.engine.Runs().size(), 8u);
  EXPECT_TRUE(Eventually([&] { return daemon.probe().streams_open.value() == 0; }));
}

}  // namespace
}  // namespace gyrostat::rpc
