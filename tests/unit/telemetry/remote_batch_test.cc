#include "telemetry/remote_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "prometheus/remote_write.pb.h"
#include "support/plain_run.h"
#include "telemetry/catalog.h"

namespace gyrostat::telemetry {
namespace {

using model::Report;
using model::Signal;
using ::testing::ElementsAre;
using ::testing::Pair;

// By "name{label=value,…}": time and value.
using Samples = std::map<std::string, std::vector<std::pair<int64_t, double>>>;

class RemoteBatch : public ::testing::Test {
 protected:
  RemoteBatch() {
    spec_.layers = 2;
    spec_.heads = 4;
  }
  BatchOf Of() const { return {run_, spec_, signals_}; }
  Samples Send(const std::vector<Report>& reports, size_t samples_max = 100'000) {
    std::vector<int64_t> times;
    for (size_t i = 0; i < reports.size(); ++i) times.push_back(1000 + static_cast<int64_t>(i));
    Samples all;
    EXPECT_TRUE(ForEachRequest(Of(), reports, times, samples_max,
                               [&](const prometheus::WriteRequest& request, size_t samples) {
      EXPECT_LE(samples, std::max(samples_max, reports.size()));
      size_t counted = 0;
      ++requests_;
      for (const auto& series : request.timeseries()) {
        std::string key;
        for (int i = 0; i < series.labels_size(); ++i) {
          if (i > 0) {
            EXPECT_LT(series.labels(i - 1).name(), series.labels(i).name()) << "labels are sorted";
          }
          key += series.labels(i).name() == "__name__" ? series.labels(i).value()
                                                       : "," + series.labels(i).name() + "=" + series.labels(i).value();
        }
        for (const auto& sample : series.samples()) all[key].emplace_back(sample.timestamp(), sample.value());
        counted += static_cast<size_t>(series.samples_size());
      }
      EXPECT_EQ(counted, samples);
      return true;
    }));
    return all;
  }

  const std::string run_ = "run";
  model::ModelSpec spec_;
  std::set<Signal> signals_;
  int requests_ = 0;
};

TEST_F(RemoteBatch, SendsEveryValueUnderTheNameThatMetricsHave) {
  std::vector<Report> reports = {testing::PlainReport(1), testing::PlainReport(2)};
  reports[1].MutableArray(Signal::kHiddenMs) = {4, 9, 16};
  reports[1].MutableArray(Signal::kMlpOutMs) = {25, 36};
  reports[1].SetScalar(Signal::kSpikeScoreLoss, 1.5);
  reports[1].user = {{"tokens", 7}};
  const Samples all = Send(reports);
  EXPECT_THAT(all.at("gyrostat_step,run=run"), ElementsAre(Pair(1000, 1), Pair(1001, 2)));
  EXPECT_THAT(all.at("gyrostat_loss,run=run"), ElementsAre(Pair(1000, reports[0].Scalar(Signal::kLoss)),
                                                           Pair(1001, reports[1].Scalar(Signal::kLoss))));
  EXPECT_THAT(all.at("gyrostat_spike_score_percent,run=run,signal=loss"), ElementsAre(Pair(1001, 1.5)));
  EXPECT_THAT(all.at("gyrostat_hidden_rms,layer=0,run=run,site=embedding"), ElementsAre(Pair(1001, 2)));
  EXPECT_THAT(all.at("gyrostat_hidden_rms,layer=1,run=run,site=residual"), ElementsAre(Pair(1001, 4)));
  EXPECT_THAT(all.at("gyrostat_hidden_rms,layer=1,run=run,site=mlp_out"), ElementsAre(Pair(1001, 6)));
  EXPECT_THAT(all.at("gyrostat_user,name=tokens,run=run"), ElementsAre(Pair(1001, 7)));
  const auto heads = reports[1].Array(Signal::kAttnLogitMax);
  EXPECT_EQ(all.at("gyrostat_head_attention_logit_max,head=2,layer=1,run=run")[1].second, double{heads[6]});
  EXPECT_EQ(all.at("gyrostat_attention_logit_max,layer=1,run=run")[1].second, double{heads[7]});
  for (const auto& [key, samples] : all) {
    bool known = key.rfind(kHeadLogitMax.name, 0) == 0;
    const std::string name = key.substr(0, key.find(','));
    for (const MetricInfo& info : RunMetrics()) known |= name == info.name;
    for (const RemoteMetric& metric : RemoteOnlyMetrics()) known |= name == metric.name;
    EXPECT_TRUE(known) << name << " is in no list";
  }
}

TEST_F(RemoteBatch, AbsentIsNoSampleAndNanIsOne) {
  std::vector<Report> reports = {testing::PlainReport(1), testing::PlainReport(2)};
  reports[0].SetScalar(Signal::kLoss, static_cast<double>(model::kAbsent));
  reports[1].SetScalar(Signal::kLoss, std::numeric_limits<double>::quiet_NaN());
  reports[1].MutableArray(Signal::kAttnLogitMax)[5] = model::kAbsent;
  reports[1].MutableArray(Signal::kAttnLogitMax)[6] = std::numeric_limits<float>::infinity();
  const Samples all = Send(reports);
  ASSERT_EQ(all.at("gyrostat_loss,run=run").size(), 1u);
  EXPECT_TRUE(std::isnan(all.at("gyrostat_loss,run=run")[0].second));
  EXPECT_EQ(all.at("gyrostat_head_attention_logit_max,head=1,layer=1,run=run").size(), 1u);
  EXPECT_TRUE(std::isinf(all.at("gyrostat_head_attention_logit_max,head=2,layer=1,run=run")[1].second));
}

TEST_F(RemoteBatch, ManyRequestsHoldWhatOneHolds) {
  std::vector<Report> reports;
  for (uint64_t n = 1; n <= 30; ++n) reports.push_back(testing::PlainReport(n));
  const Samples one = Send(reports);
  EXPECT_EQ(requests_, 1);
  const Samples many = Send(reports, 100);
  EXPECT_GT(requests_, 3);
  EXPECT_EQ(many, one);
}

TEST_F(RemoteBatch, SendsWhatIsWantedOnly) {
  signals_ = {Signal::kLoss};
  std::vector<Report> reports = {testing::PlainReport(1)};
  reports[0].user = {{"tokens", 7}};
  EXPECT_EQ(Send(reports).size(), 2u);  // With the step.
  signals_ = {Signal::kNone};
  EXPECT_EQ(Send(reports).count("gyrostat_user,name=tokens,run=run"), 1u);
}

TEST_F(RemoteBatch, FindsRanksWhoseSlotsRotate) {
  std::vector<Report> reports = {testing::PlainReport(1), testing::PlainReport(2)};
  reports[0].MutableArray(Signal::kRankDigest) = {3, 2.5f, 1, 250, 77, 9, 2.6f, 1.1f, 260, 77};
  reports[1].MutableArray(Signal::kRankDigest) = {9, 2.4f, model::kAbsent, 270, 77, 3, 2.3f, 1, 240, 77};
  const Samples all = Send(reports);
  EXPECT_THAT(all.at("gyrostat_rank_loss,rank=3,run=run"), ElementsAre(Pair(1000, 2.5), Pair(1001, double{2.3f})));
  EXPECT_THAT(all.at("gyrostat_rank_step_time_seconds,rank=9,run=run"),
              ElementsAre(Pair(1000, 260 * 1e-3), Pair(1001, 270 * 1e-3)));
  EXPECT_EQ(all.at("gyrostat_rank_grad_norm,rank=9,run=run").size(), 1u);
}

TEST_F(RemoteBatch, ABatchHasOneShapeAndASize) {
  std::vector<Report> reports;
  for (uint64_t n = 1; n <= 20; ++n) reports.push_back(testing::PlainReport(n));
  EXPECT_EQ(BatchSize(Of(), reports, 100'000), 20u);
  EXPECT_EQ(BatchSize(Of(), reports, 1), 1u) << "one at least";
  EXPECT_LT(BatchSize(Of(), reports, 100), 10u);
  reports[7].MutableArray(Signal::kHiddenMs) = {1, 2, 3};
  EXPECT_EQ(BatchSize(Of(), reports, 100'000), 20u) << "absent is no other shape";
  reports[9].MutableArray(Signal::kHiddenMs) = {1, 2};
  EXPECT_EQ(BatchSize(Of(), reports, 100'000), 9u);
}

}  // namespace
}  // namespace gyrostat::telemetry
