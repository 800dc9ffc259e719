// Four ranks in processes of their own, each with its own quarter of a step's tokens, reduce by the C ABI: what leaves
// in the leader's reports must be what one process with all the tokens would have reported, and a rank that disagrees
// with the others must be found in them by the detector.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "detect/rank_outlier.h"
#include "gyrostat/gyrostat.h"
#include "model/report.h"
#include "model/signal.h"
#include "support/fake_transport.h"
#include "support/lcg.h"
#include "support/paths.h"
#include "support/rank_processes.h"

namespace gyrostat {
namespace {

using model::Signal;

constexpr int kRanks = 4, kSteps = 40;
constexpr uint32_t kLayers = 3, kHeads = 4;
using Port = testing::SharedPort<kRanks>;

struct Said {
  uint32_t count;
  int32_t rank[8], severity[8];
  char message[8][200];
};
struct Board {
  testing::SharedBoard<kRanks> collective;
  uint32_t reports, wrong;
  char first_wrong[200];
  char trouble[kRanks][GYRO_REASON_BYTES];
  Said said;
};

struct Behaviour {
  int odd_loss_rank = -1;  // This rank's loss is far off.
  int odd_weights_rank = -1;
  bool sums = true;
  int without_sums_rank = -1;  // This rank's job gave no SUM.
  int slow_rank = -1;
};

// What one rank measured in one step: its share of the tokens.
struct Measured {
  double tokens = 0, loss = 0;
  std::vector<float> maxima, hidden, entropy;
};

Measured MeasureOf(int rank, int step, const Behaviour& behaviour) {
  testing::Lcg random(static_cast<uint64_t>(rank * 1000 + step));
  Measured m;
  m.tokens = 100 + random.Below(900);
  m.loss = 2 + 0.05 * random.Normal() + (rank == behaviour.odd_loss_rank ? 3 : 0);
  for (uint32_t i = 0; i < kLayers * kHeads; ++i) m.maxima.push_back(static_cast<float>(10 + random.Normal()));
  for (uint32_t i = 0; i <= kLayers; ++i) m.hidden.push_back(static_cast<float>(1 + random.Uniform()));
  for (uint32_t i = 0; i < kLayers; ++i) m.entropy.push_back(static_cast<float>(random.Uniform()));
  return m;
}

// All gradients are equal on all ranks: they were averaged before.
double NormOf(int step) { return 1 + 0.1 * std::sin(step); }

void Record(gyro_client* client, const Measured& m, int rank, int step, const Behaviour& behaviour) {
  gyro_step_begin(client, step);
  gyro_record_scalar(client, "tokens", m.tokens);
  gyro_record_scalar(client, "loss", m.loss);
  gyro_record_scalar(client, "learning_rate", 0.001 * (rank + 1));
  gyro_record_scalar(client, "grad_norm", NormOf(step));
  // Measured, it would be what else the machine does.
  gyro_record_scalar(client, "rank_step_time_ms", rank == behaviour.slow_rank ? 90 : 50);
  gyro_record_scalar(client, "weight_checksum", step * 7 + (rank == behaviour.odd_weights_rank ? 1 : 0));
  const std::vector<float> norms(kLayers, static_cast<float>(NormOf(step)));
  gyro_record_array(client, "layer_grad_norm", norms.data(), norms.size());
  gyro_record_array(client, "hidden_ms", m.hidden.data(), m.hidden.size());
  gyro_record_array(client, "hidden_absmax", m.hidden.data(), m.hidden.size());
  gyro_record_array(client, "attn_entropy", m.entropy.data(), m.entropy.size());
  gyro_record_attn_logit_max(client, m.maxima.data(), m.maxima.size(), GYRO_LOGIT_EXACT);
}

// One process with all tokens of the step.
Measured Whole(int step, const Behaviour& behaviour) {
  Measured whole;
  whole.hidden.assign(kLayers + 1, 0);
  whole.entropy.assign(kLayers, 0);
  whole.maxima.assign(kLayers * kHeads, -1e30f);
  std::vector<double> hidden(kLayers + 1, 0), entropy(kLayers, 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    const Measured m = MeasureOf(rank, step, behaviour);
    whole.tokens += m.tokens;
    whole.loss += m.tokens * m.loss;
    for (size_t i = 0; i < hidden.size(); ++i) hidden[i] += m.tokens * static_cast<double>(m.hidden[i]);
    for (size_t i = 0; i < entropy.size(); ++i) entropy[i] += m.tokens * static_cast<double>(m.entropy[i]);
    for (size_t i = 0; i < m.maxima.size(); ++i) whole.maxima[i] = std::max(whole.maxima[i], m.maxima[i]);
  }
  whole.loss /= whole.tokens;
  for (size_t i = 0; i < hidden.size(); ++i) whole.hidden[i] = static_cast<float>(hidden[i] / whole.tokens);
  for (size_t i = 0; i < entropy.size(); ++i) whole.entropy[i] = static_cast<float>(entropy[i] / whole.tokens);
  return whole;
}

class Comparison {
 public:
  Comparison(Board* board, const model::Report& report) : board_(board), report_(report) {}

  void Near(const char* what, double seen, double wanted, double tolerance = 1e-5) {
    if (std::fabs(seen - wanted) <= tolerance * (1 + std::fabs(wanted))) return;
    if (board_->wrong++ > 0) return;
    std::snprintf(board_->first_wrong, sizeof(board_->first_wrong), "%s of step %lld is %g, wanted %g", what,
                  static_cast<long long>(report_.step), seen, wanted);
  }
  void Near(Signal signal, const std::vector<float>& wanted, double tolerance = 1e-5) {
    const auto seen = report_.Array(signal);
    Near("the length of an array", static_cast<double>(seen.size()), static_cast<double>(wanted.size()), 0);
    for (size_t i = 0; i < std::min(seen.size(), wanted.size()); ++i)
      Near(std::string(model::SignalName(signal)).c_str(), static_cast<double>(seen[i]),
           static_cast<double>(wanted[i]), tolerance);
  }

 private:
  Board* board_;
  const model::Report& report_;
};

void Compare(Board* board, const model::Report& report, const Behaviour& behaviour) {
  Comparison against(board, report);
  const int step = static_cast<int>(report.step);
  const Measured whole = Whole(step, behaviour);
  against.Near("loss", report.Scalar(Signal::kLoss), whole.loss);
  against.Near("grad_norm", report.Scalar(Signal::kGradNorm), NormOf(step));
  against.Near("learning_rate", report.Scalar(Signal::kLearningRate), 0.001);
  against.Near(Signal::kLayerGradNorm, std::vector<float>(kLayers, static_cast<float>(NormOf(step))));
  against.Near(Signal::kHiddenMs, whole.hidden);
  against.Near(Signal::kAttnEntropy, whole.entropy);
  against.Near(Signal::kAttnLogitMax, whole.maxima, 0);
  const auto digest = report.Array(Signal::kRankDigest);
  against.Near("the length of rank_digest", static_cast<double>(digest.size()), 5 * kRanks, 0);
  for (int rank = 0; rank < kRanks && digest.size() == 5 * kRanks; ++rank) {
    against.Near("a rank", static_cast<double>(digest[5 * rank]), rank, 0);
    against.Near("a rank's loss", static_cast<double>(digest[5 * rank + 1]), MeasureOf(rank, step, behaviour).loss);
  }
}

// The leader's part: what the daemon got, and what its detector says of it.
void Judge(Board* board, const testing::FakeDaemon& daemon, const Behaviour& behaviour) {
  daemon.Wait([](const auto& d) { return d.reports().size() >= kSteps; });
  detect::RankOutlier detector{detect::RankOutlierOptions()};
  std::vector<model::Finding> findings;
  const std::vector<model::Report> reports = daemon.reports();
  board->reports = static_cast<uint32_t>(reports.size());
  for (const model::Report& report : reports) {
    if (report.boundary < kSteps) Compare(board, report, behaviour);  // The last left before its round came.
    detector.Observe(report, &findings);
  }
  for (const model::Finding& finding : findings) {
    if (board->said.count == 8) break;
    const uint32_t i = board->said.count++;
    board->said.rank[i] = finding.rank ? static_cast<int32_t>(*finding.rank) : -1;
    board->said.severity[i] = static_cast<int32_t>(finding.severity);
    std::snprintf(board->said.message[i], sizeof(board->said.message[i]), "%s", finding.message.c_str());
  }
}

void Train(Board* board, int rank, const Behaviour& behaviour) {
  Port port{&board->collective, rank};
  const gyro_collective collective =
      port.Collective(static_cast<uint32_t>(rank), behaviour.sums && rank != behaviour.without_sums_rank);
  gyro_options options;
  gyro_options_init(&options);
  options.address = "fake:1";
  options.run = "one-stream";
  options.allow = "collect";  // Changes no weight: the ranks reduce, and that is all.
  options.transport = testing::kFakeTransport;
  options.rank = static_cast<uint32_t>(rank);
  options.world_size = kRanks;
  options.collective = &collective;
  options.model.layers = kLayers;
  options.model.heads = kHeads;
  std::unique_ptr<testing::FakeDaemon> daemon;
  if (rank == 0) daemon = std::make_unique<testing::FakeDaemon>();
  gyro_client* client = nullptr;
  if (gyro_open(&options, &client) != GYRO_OK) _exit(2);
  for (int step = 1; step <= kSteps; ++step) {
    Record(client, MeasureOf(rank, step, behaviour), rank, step, behaviour);
    if (gyro_step_end(client) != GYRO_OK) _exit(3);
    gyro_order order{};
    order.struct_size = sizeof(order);
    if (gyro_poll(client, &order) != GYRO_NONE) _exit(4);
  }
  gyro_client_stats stats{};
  stats.struct_size = sizeof(stats);
  gyro_stats(client, &stats);
  std::memcpy(board->trouble[rank], stats.last_error, sizeof(stats.last_error));
  gyro_close(client, 60'000);  // What is judged is all that was reported, however late the sender got a core.
  if (daemon != nullptr) Judge(board, *daemon, behaviour);
}

auto RunRanks(const Behaviour& behaviour) {
  return testing::RunProcesses<Board>(kRanks, [&](Board* board, int rank) { Train(board, rank, behaviour); });
}

TEST(OneStream, TheLeaderReportsWhatOneProcessWithAllDataWouldHave) {
  const auto board = RunRanks({});
  EXPECT_EQ(board->reports, static_cast<uint32_t>(kSteps));
  EXPECT_EQ(board->wrong, 0u) << board->first_wrong;
  EXPECT_EQ(board->said.count, 0u) << board->said.message[0];
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(board->collective.max.begun[rank].load(), kSteps + 1u);  // One a boundary, and the join.
    EXPECT_EQ(board->collective.sum.begun[rank].load(), kSteps + 0u);
  }
}

TEST(OneStream, ARankWhoseLossIsFarOffIsFound) {
  const auto board = RunRanks({.odd_loss_rank = 2});
  EXPECT_EQ(board->wrong, 0u) << board->first_wrong;
  ASSERT_EQ(board->said.count, 1u);
  EXPECT_EQ(board->said.rank[0], 2) << board->said.message[0];
  EXPECT_EQ(board->said.severity[0], static_cast<int32_t>(model::Severity::kWarning));
}

TEST(OneStream, ASlowRankIsNamed) {
  const auto board = RunRanks({.slow_rank = 1});
  ASSERT_EQ(board->said.count, 1u);
  EXPECT_EQ(board->said.rank[0], 1) << board->said.message[0];
  EXPECT_EQ(board->said.severity[0], static_cast<int32_t>(model::Severity::kInfo));
}

TEST(OneStream, ARankWhoseWeightsDifferIsFoundWithoutSumsToo) {
  const auto board = RunRanks({.odd_weights_rank = 3, .sums = false});
  ASSERT_GT(board->said.count, 0u);
  EXPECT_EQ(board->said.rank[0], 3) << board->said.message[0];
  EXPECT_EQ(board->collective.sum.begun[1].load(), 0u);
}

TEST(OneStream, WhereOneRankHasNoSumNobodySums) {
  const auto board = RunRanks({.without_sums_rank = 1});
  EXPECT_EQ(board->reports, static_cast<uint32_t>(kSteps));
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(board->collective.sum.begun[rank].load(), 0u);
    EXPECT_EQ(board->collective.max.begun[rank].load(), kSteps + 1u);
    EXPECT_STREQ(board->trouble[rank], "nothing is applied: the ranks differ in number of sums beside R");
  }
}

}  // namespace
}  // namespace gyrostat
