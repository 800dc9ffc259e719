#include "ctl/export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>
#include <tuple>

#include "unit/ctl/fake_control.h"

namespace gyrostat::ctl {
namespace {

// Two layers of two heads, three steps.
class History : public FakeControl {
 public:
  std::map<std::tuple<std::string, int, int>, std::vector<std::pair<int64_t, double>>> points;

  absl::Status GetSeries(const v1::GetSeriesRequest& request,
                         const std::function<void(int64_t, double)>& point) override {
    if (request.has_layer() && request.layer() >= 2) return absl::InvalidArgumentError("no such layer");
    const auto it = points.find({request.signal(), request.has_layer() ? static_cast<int>(request.layer()) : -1,
                                 request.has_head() ? static_cast<int>(request.head()) : -1});
    if (it == points.end()) return failure;
    for (const auto& [step, value] : it->second) point(step, value);
    return failure;
  }
};

class ExportCommand : public ::testing::Test {
 protected:
  ExportCommand() {
    v1::RunView* view = control.run.mutable_view();
    view->mutable_summary()->set_run("ours");
    view->mutable_model()->set_layers(2);
    view->mutable_model()->set_heads(2);
    control.points[{"loss", -1, -1}] = {{1, 2.5}, {2, NAN}, {3, 0.1}};
    control.points[{"grad_norm", -1, -1}] = {{2, INFINITY}};
    control.points[{"layer_grad_norm", 0, -1}] = {{1, static_cast<double>(0.1f)}};
    control.points[{"layer_grad_norm", 1, -1}] = {{1, 0.5}, {3, 0.25}};
    for (int layer = 0; layer < 2; ++layer) {
      control.points[{"attn_logit_max", layer, -1}] = {{1, 9}};
      for (int head = 0; head < 2; ++head) control.points[{"attn_logit_max", layer, head}] = {{1, 10.0 * layer + head}};
    }
    request.run = "ours";
  }
  std::string Run() {
    std::ostringstream err;
    out.str("");
    const Console console{out, err, base::SystemClock(), {}, false, [] { return Size(); }};
    code = Export(request, &control, console);
    return out.str();
  }

  History control;
  Request request;
  int code = -1;
  std::ostringstream out;
};

TEST_F(ExportCommand, JsonlIsWhatReplayReads) {
  EXPECT_EQ(Run(),
            "{\"gyrostat\":1,\"run\":\"ours\",\"model\":{\"layers\":2,\"heads\":2},\"attn_logit\":{\"kind\":null,"
            "\"scaled\":false,\"masked\":false,\"with_bias\":false,\"pre_cap\":false}}\n"
            "{\"step\":1,\"loss\":2.5,\"layer_grad_norm\":[0.1,0.5],\"attn_logit_max\":[[0,1],[10,11]]}\n"
            "{\"step\":2,\"loss\":\"NaN\",\"grad_norm\":\"Infinity\"}\n"
            "{\"step\":3,\"loss\":0.1,\"layer_grad_norm\":[null,0.25]}\n");
  EXPECT_EQ(code, kDone);
}

TEST_F(ExportCommand, CsvHasAColumnForEachValue) {
  request.export_format = "csv";
  EXPECT_EQ(Run(),
            "step,loss,grad_norm,layer_grad_norm/layer0,layer_grad_norm/layer1,attn_logit_max/layer0/head0,"
            "attn_logit_max/layer0/head1,attn_logit_max/layer1/head0,attn_logit_max/layer1/head1\n"
            "1,2.5,,0.1,0.5,0,1,10,11\n2,NaN,Infinity,,,,,,\n3,0.1,,,0.25,,,,\n");
}

TEST_F(ExportCommand, ARunWithoutHistoryIsRefused) {
  control.points.clear();
  EXPECT_EQ(Run(), "");
  EXPECT_EQ(code, kRefused);
  control.failure = absl::UnavailableError("gone");
  Run();
  EXPECT_EQ(code, kUnreachable);
}

}  // namespace
}  // namespace gyrostat::ctl
