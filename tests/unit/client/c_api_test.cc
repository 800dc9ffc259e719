// The C ABI with its real thread, against the fake daemon: what every caller may rely on.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gyrostat/gyrostat.h"
#include "model/intervention.h"
#include "remedy/qk_clip.h"
#include "support/fake_transport.h"
#include "support/paths.h"

namespace gyrostat::client {
namespace {

gyro_options SomeOptions() {
  gyro_options options;
  gyro_options_init(&options);
  options.address = "fake:1";
  options.run = "api";
  options.allow = "qk_clip";
  options.transport = testing::kFakeTransport;
  options.logit_kind = GYRO_LOGIT_EXACT;
  options.model.layers = 2;
  options.model.heads = 4;
  options.model.attention = "mha";
  options.model.qk_norm = "none";
  options.model.master_fp32 = 1;
  return options;
}

gyro_client_stats StatsOf(const gyro_client* client) {
  gyro_client_stats stats{};
  stats.struct_size = sizeof(stats);
  gyro_stats(client, &stats);
  return stats;
}

void Step(gyro_client* client, int64_t step, float value) {
  const std::vector<float> maxima(8, value);
  EXPECT_EQ(gyro_step_begin(client, step), GYRO_OK);
  EXPECT_EQ(gyro_record_scalar(client, "loss", 2.5), GYRO_OK);
  EXPECT_EQ(gyro_record_attn_logit_max(client, maxima.data(), maxima.size(), GYRO_LOGIT_UNKNOWN), GYRO_OK);
  EXPECT_EQ(gyro_step_end(client), GYRO_OK);
}

// The most that a close gives: what a test wants to have arrived must not hang on when the sender gets a core.
constexpr uint32_t kFlushMs = 60'000;

class CApi : public ::testing::Test {
 protected:
  CApi() {
    for (const char* name : {"GYROSTAT_ADDRESS", "GYROSTAT_RUN", "GYROSTAT_DISABLE"}) unsetenv(name);
  }
  gyro_client* Open(const gyro_options& options = SomeOptions()) {
    gyro_client* client = nullptr;
    EXPECT_EQ(gyro_open(&options, &client), GYRO_OK);
    return client;
  }
  testing::FakeDaemon daemon_;
};

TEST_F(CApi, ReportsReachTheDaemonAndAreAcknowledged) {
  gyro_client* client = Open();
  for (int i = 1; i <= 5; ++i) Step(client, i, 20);
  EXPECT_TRUE(daemon_.Wait([&](const auto&) { return StatsOf(client).reports_acked == 5; }));
  const gyro_client_stats stats = StatsOf(client);
  EXPECT_EQ(stats.connected, 1);
  EXPECT_EQ(stats.reports_total, 5u);
  EXPECT_EQ(stats.boundary, 5u);
  EXPECT_STREQ(stats.last_error, "");
  EXPECT_EQ(gyro_close(client, kFlushMs), GYRO_OK);
  EXPECT_EQ(daemon_.byes().size(), 1u);
}

TEST_F(CApi, CloseFlushesWhatWaits) {
  gyro_client* client = Open();
  for (int i = 1; i <= 50; ++i) Step(client, i, 20);
  gyro_close(client, kFlushMs);
  EXPECT_EQ(daemon_.reports().size(), 50u);
  EXPECT_EQ(daemon_.order_of_messages().back(), 'b');
}

TEST_F(CApi, AnOrderGoesTheWholeWayRound) {
  gyro_client* client = Open();
  Step(client, 1, 60);
  ASSERT_TRUE(daemon_.Wait([](const auto& d) { return d.reports().size() == 1; }));
  model::Order order;
  order.id.bytes.fill(5);
  order.run = "api";
  order.attempt = daemon_.hellos()[0].attempt;
  order.basis = 1;
  order.expires_boundary = 17;
  order.intent_id = "api/1";
  order.tau = 30;
  order.entries = {{1, 2, 60, *remedy::ClipTarget(60, 30, 0)}};
  daemon_.Send(order);
  gyro_order polled{};
  polled.struct_size = sizeof(polled);
  ASSERT_TRUE(daemon_.Wait([&](const auto&) { return gyro_poll(client, &polled) == GYRO_OK; }));
  EXPECT_EQ(polled.q_count, 1u);
  EXPECT_EQ(gyro_ack(client, polled.id, GYRO_APPLIED, nullptr), GYRO_OK);
  ASSERT_TRUE(daemon_.Wait([](const auto& d) { return d.acks().size() == 1; }));
  EXPECT_EQ(daemon_.acks()[0].outcome, model::AckOutcome::kApplied);
  const gyro_client_stats stats = StatsOf(client);
  EXPECT_EQ(stats.orders_received, 1u);
  EXPECT_EQ(stats.orders_applied, 1u);
  EXPECT_EQ(stats.ledger_version, 1u);
  gyro_close(client, 1000);
}

TEST_F(CApi, AnOlderCallersSmallerOrderIsNotOverrun) {
  gyro_client* client = Open();
  Step(client, 1, 60);
  gyro_order order{};
  order.struct_size = 8;
  EXPECT_EQ(gyro_poll(client, &order), GYRO_INVALID);
  EXPECT_EQ(gyro_poll(client, nullptr), GYRO_INVALID);
  gyro_client_stats stats{};
  stats.struct_size = 8;
  EXPECT_EQ(gyro_stats(client, &stats), GYRO_INVALID);
  gyro_close(client, 0);
}

TEST_F(CApi, WhoAllowsOtherKindsMustHaveRoomToSeeThem) {
  gyro_options options = SomeOptions();
  options.allow = "qk_clip,halt";
  gyro_client* client = Open(options);
  Step(client, 1, 20);
  gyro_order order{};
  order.struct_size = static_cast<uint32_t>(offsetof(gyro_order, register_count));
  EXPECT_EQ(gyro_poll(client, &order), GYRO_INVALID) << "he would ack what he cannot see";
  order.struct_size = sizeof(order);
  EXPECT_EQ(gyro_poll(client, &order), GYRO_NONE);
  gyro_close(client, 0);
  client = Open();
  Step(client, 1, 20);
  order.struct_size = static_cast<uint32_t>(offsetof(gyro_order, register_count));
  EXPECT_EQ(gyro_poll(client, &order), GYRO_NONE) << "clips he can";
  gyro_close(client, 0);
}

TEST_F(CApi, ARegisterOrderGoesTheWholeWayRound) {
  gyro_options options = SomeOptions();
  options.allow = "lr_scale,collect";
  gyro_client* client = Open(options);
  Step(client, 1, 20);
  ASSERT_TRUE(daemon_.Wait([](const auto& d) { return d.reports().size() == 1; }));
  model::Order sent;
  sent.id.bytes.fill(5);
  sent.run = "api";
  sent.attempt = daemon_.hellos()[0].attempt;
  sent.kind = model::InterventionKind::kLrScale;
  sent.expires_boundary = 17;
  sent.sets = {{GYRO_REGISTER_LR_SCALE, 0.25f, 0}, {GYRO_REGISTER_LR_SCALE_UNTIL, 3, 0}};
  daemon_.Send(sent);
  gyro_order polled{};
  polled.struct_size = sizeof(polled);
  ASSERT_TRUE(daemon_.Wait([&](const auto&) { return gyro_poll(client, &polled) == GYRO_OK; }));
  EXPECT_STREQ(polled.kind, "lr_scale");
  ASSERT_EQ(polled.register_count, 2u);
  EXPECT_EQ(polled.registers[0].from, 1);
  EXPECT_EQ(polled.registers[0].value, 0.25f);
  EXPECT_EQ(gyro_ack(client, polled.id, GYRO_APPLIED, nullptr), GYRO_OK);
  float scale = 0;
  EXPECT_EQ(gyro_register_value(client, GYRO_REGISTER_LR_SCALE, &scale), GYRO_OK);
  EXPECT_EQ(scale, 0.25f);
  for (int64_t step = 2; step <= 4; ++step) {
    double rate = 0;
    EXPECT_EQ(gyro_learning_rate(client, 2, &rate), GYRO_OK);
    EXPECT_EQ(rate, step <= 3 ? 0.5 : 2.0) << step;
    Step(client, step, 20);
  }
  EXPECT_EQ(gyro_register_value(client, GYRO_REGISTER_ALPHA, &scale), GYRO_INVALID) << "the model is not post-norm";
  EXPECT_EQ(gyro_observe(client, 1u << 30, 1), GYRO_INVALID);
  gyro_close(client, 1000);
}

TEST_F(CApi, PollingInsideAStepIsAStateError) {
  gyro_client* client = Open();
  gyro_step_begin(client, 1);
  gyro_order order{};
  order.struct_size = sizeof(order);
  EXPECT_EQ(gyro_poll(client, &order), GYRO_STATE);
  EXPECT_STREQ(StatsOf(client).last_error, "gyro_poll was called between gyro_step_begin and gyro_step_end");
  gyro_close(client, 0);
}

TEST_F(CApi, AckRefusesWhatIsNoOutcome) {
  gyro_client* client = Open();
  const uint8_t id[GYRO_ID_BYTES] = {};
  const int raw = 3;
  gyro_outcome outcome;
  std::memcpy(&outcome, &raw, sizeof(outcome));
  EXPECT_EQ(gyro_ack(client, id, outcome, nullptr), GYRO_INVALID);
  EXPECT_EQ(gyro_ack(client, nullptr, GYRO_APPLIED, nullptr), GYRO_INVALID);
  EXPECT_EQ(gyro_ack(client, id, GYRO_APPLIED, nullptr), GYRO_STATE);
  gyro_close(client, 0);
}

TEST_F(CApi, EveryCallTakesANullHandle) {
  gyro_order order{};
  order.struct_size = sizeof(order);
  const float value = 1;
  const uint8_t* data = nullptr;
  size_t size = 0;
  EXPECT_EQ(gyro_step_begin(nullptr, 1), GYRO_INVALID);
  EXPECT_EQ(gyro_record_scalar(nullptr, "loss", 1), GYRO_INVALID);
  EXPECT_EQ(gyro_record_array(nullptr, "hidden_ms", &value, 1), GYRO_INVALID);
  EXPECT_EQ(gyro_record_attn_logit_max(nullptr, &value, 1, GYRO_LOGIT_EXACT), GYRO_INVALID);
  EXPECT_EQ(gyro_record_layer_attn_logit_max(nullptr, 0, &value, 1, GYRO_LOGIT_EXACT), GYRO_INVALID);
  EXPECT_EQ(gyro_step_end(nullptr), GYRO_INVALID);
  EXPECT_EQ(gyro_poll(nullptr, &order), GYRO_INVALID);
  EXPECT_EQ(gyro_ack(nullptr, order.id, GYRO_APPLIED, nullptr), GYRO_INVALID);
  double rate = 0;
  float held = 0;
  EXPECT_EQ(gyro_learning_rate(nullptr, 3, &rate), GYRO_INVALID);
  EXPECT_EQ(rate, 3) << "a loop that goes on without a client keeps its rate";
  EXPECT_EQ(gyro_learning_rate(nullptr, 3, nullptr), GYRO_INVALID);
  EXPECT_EQ(gyro_register_value(nullptr, 0, &held), GYRO_INVALID);
  EXPECT_EQ(gyro_observe(nullptr, 0, 1), GYRO_INVALID);
  EXPECT_EQ(gyro_hold(nullptr, "no"), GYRO_INVALID);
  EXPECT_EQ(gyro_rejoin(nullptr, nullptr, 0, 1), GYRO_INVALID);
  EXPECT_EQ(gyro_reset(nullptr), GYRO_INVALID);
  EXPECT_EQ(gyro_state_save(nullptr, &data, &size), GYRO_INVALID);
  EXPECT_EQ(gyro_state_load(nullptr, order.id, 1), GYRO_INVALID);
  EXPECT_EQ(gyro_stats(nullptr, nullptr), GYRO_INVALID);
  EXPECT_EQ(gyro_close(nullptr, 0), GYRO_INVALID);
  EXPECT_EQ(gyro_open(nullptr, nullptr), GYRO_INVALID);
  EXPECT_EQ(gyro_options_init(nullptr), GYRO_INVALID);
}

TEST_F(CApi, AnInertClientTakesEveryCall) {
  gyro_options wrong = SomeOptions();
  wrong.run = "not a name";
  gyro_options missing = SomeOptions();
  missing.transport = "/nowhere/libmissing.so";
  gyro_options nobody = SomeOptions();
  nobody.address = nullptr;
  gyro_options follower = SomeOptions();
  follower.world_size = 2;
  follower.rank = 1;
  const std::vector<std::pair<gyro_options*, gyro_status>> cases = {
      {&wrong, GYRO_INVALID}, {&missing, GYRO_UNAVAILABLE}, {&nobody, GYRO_INACTIVE}, {&follower, GYRO_INACTIVE}};
  for (const auto& [options, status] : cases) {
    gyro_client* client = nullptr;
    EXPECT_EQ(gyro_open(options, &client), status);
    ASSERT_NE(client, nullptr);
    EXPECT_EQ(gyro_step_begin(client, 1), GYRO_INACTIVE);
    EXPECT_EQ(gyro_record_scalar(client, "loss", 1), GYRO_INACTIVE);
    EXPECT_EQ(gyro_step_end(client), GYRO_INACTIVE);
    gyro_order order{};
    order.struct_size = sizeof(order);
    EXPECT_EQ(gyro_poll(client, &order), GYRO_INACTIVE);
    double rate = 0;
    EXPECT_EQ(gyro_learning_rate(client, 3, &rate), GYRO_INACTIVE);
    EXPECT_EQ(rate, 3);
    EXPECT_EQ(gyro_hold(client, "no"), GYRO_INACTIVE);
    EXPECT_EQ(gyro_reset(client), GYRO_INACTIVE);
    const bool quiet = status == GYRO_INACTIVE;
    EXPECT_EQ(StatsOf(client).last_error[0] == '\0', quiet) << StatsOf(client).last_error;
    EXPECT_EQ(gyro_close(client, 250), GYRO_INACTIVE);
  }
  EXPECT_EQ(daemon_.opened(), 0);
}

TEST_F(CApi, DisabledMeansNoThreadAndNoConnection) {
  setenv("GYROSTAT_DISABLE", "1", 1);
  gyro_client* client = nullptr;
  const gyro_options options = SomeOptions();
  EXPECT_EQ(gyro_open(&options, &client), GYRO_INACTIVE);
  EXPECT_EQ(gyro_step_begin(client, 1), GYRO_INACTIVE);
  EXPECT_EQ(gyro_close(client, 250), GYRO_INACTIVE);
  EXPECT_EQ(daemon_.opened(), 0);
}

TEST_F(CApi, StateTravelsFromAClosedClientToANewOneAndThroughAnInertOne) {
  gyro_client* client = Open();
  const uint8_t* data = nullptr;
  size_t size = 0;
  EXPECT_EQ(gyro_state_save(client, &data, &size), GYRO_OK);
  const std::vector<uint8_t> state(data, data + size);
  gyro_close(client, 0);

  gyro_options off = SomeOptions();
  off.address = nullptr;
  gyro_client* inert = nullptr;
  gyro_open(&off, &inert);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(gyro_state_load(inert, state.data(), state.size()), GYRO_OK) << i;
  EXPECT_EQ(gyro_state_save(inert, &data, &size), GYRO_OK);
  const std::vector<uint8_t> passed_on(data, data + size);
  gyro_close(inert, 0);

  client = Open();
  EXPECT_EQ(gyro_state_load(client, passed_on.data(), passed_on.size()), GYRO_OK);
  EXPECT_EQ(StatsOf(client).epoch, 1u);
  EXPECT_EQ(gyro_state_load(client, passed_on.data(), 3), GYRO_INVALID);
  EXPECT_EQ(gyro_state_load(client, nullptr, 3), GYRO_INVALID);
  EXPECT_EQ(StatsOf(client).epoch, 1u) << "a bad state changes nothing";
  gyro_close(client, 0);
}

TEST_F(CApi, AResetIsANewEpoch) {
  gyro_client* client = Open();
  Step(client, 1, 20);
  ASSERT_TRUE(daemon_.Wait([](const auto& d) { return d.hellos().size() == 1; }));
  EXPECT_EQ(gyro_reset(client), GYRO_OK);
  EXPECT_TRUE(daemon_.Wait([](const auto& d) { return d.hellos().size() == 2 && d.hellos()[1].epoch == 1; }));
  gyro_close(client, 0);
}

TEST_F(CApi, StatsMayBeReadFromAnyThread) {
  gyro_client* client = Open();
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) {
      StatsOf(client);
      gyro_strerror(GYRO_OK);
    }
  });
  for (int i = 1; i <= 500; ++i) {
    gyro_step_begin(client, i);  // Some are dropped: this is faster than the sender looks.
    gyro_step_end(client);
    gyro_record_scalar(client, "outside a step", 1);
    if (i % 100 == 0) daemon_.GoDown();
    if (i % 100 == 50) daemon_.GoUp();
  }
  done = true;
  reader.join();
  gyro_close(client, 0);
}

TEST_F(CApi, AFullRingDropsAndCounts) {
  gyro_options options = SomeOptions();
  options.ring_reports = 2;
  gyro_client* client = Open(options);
  uint64_t dropped = 0;
  constexpr uint64_t kSteps = 20'000;  // Far faster than one frame a millisecond.
  for (uint64_t i = 1; i <= kSteps; ++i) {
    const gyro_status begun = gyro_step_begin(client, static_cast<int64_t>(i));
    dropped += begun == GYRO_DROPPED;
    EXPECT_EQ(gyro_step_end(client), begun);
  }
  const gyro_client_stats stats = StatsOf(client);
  EXPECT_GT(dropped, 0u);
  EXPECT_EQ(stats.dropped_hot, dropped);
  EXPECT_EQ(stats.reports_total + stats.dropped_hot, kSteps);
  EXPECT_EQ(stats.boundary, kSteps);
  gyro_close(client, kFlushMs);
  EXPECT_EQ(daemon_.reports().size(), stats.reports_total);
}

TEST_F(CApi, ManyClientsMayBeOpenedAndClosedFromManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 5; ++i) {
        const gyro_options options = SomeOptions();
        gyro_client* client = nullptr;
        ASSERT_EQ(gyro_open(&options, &client), GYRO_OK);
        Step(client, 1, 20);
        gyro_close(client, 0);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CApi, TheSendersSignalsAreBlockedAndTheCallersAreAsBefore) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  gyro_client* client = Open();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < 32; ++signal)
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
  // SigBlk of the thread called "gyrostat" in /proc.
  std::string mask;
  ASSERT_TRUE(daemon_.Wait([&](const auto&) {
    FILE* pipe = popen(("cd /proc/" + std::to_string(getpid()) +
                        "/task && for t in *; do [ \"$(cat $t/comm)\" = gyrostat ] && grep SigBlk $t/status; done")
                           .c_str(),
                       "r");
    char line[128] = "";
    while (fgets(line, sizeof(line), pipe) != nullptr) mask = line;
    pclose(pipe);
    return !mask.empty();
  }));
  EXPECT_NE(mask.find("fffffffe7ffbfeff"), std::string::npos) << mask << "all that a thread can block";
  gyro_close(client, 0);
}

TEST_F(CApi, EveryStatusHasASentence) {
  for (int i = GYRO_OK; i <= GYRO_UNSURE; ++i) EXPECT_STRNE(gyro_strerror(static_cast<gyro_status>(i)), "");
  EXPECT_STREQ(gyro_version(), GYRO_VERSION);
}

}  // namespace
}  // namespace gyrostat::client
