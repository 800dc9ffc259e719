#include <gtest/gtest.h>

#include "rpc/convert.h"

namespace gyrostat::rpc {
namespace {

v1::GetSeriesRequest Request(const std::string& signal) {
  v1::GetSeriesRequest in;
  in.set_run("r");
  in.set_signal(signal);
  return in;
}

TEST(ConvertSeries, ReadsSignalPlaceAndRange) {
  v1::GetSeriesRequest in = Request("attn_logit_max");
  in.set_layer(3);
  in.set_head(1);
  in.set_from_step(10);
  in.set_to_step(10);
  const auto out = FromWire(in);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->signal, model::Signal::kAttnLogitMax);
  EXPECT_EQ(out->layer, 3u);
  EXPECT_EQ(out->head, 1u);
  EXPECT_EQ(out->from_step, 10);
}

TEST(ConvertSeries, TakesOtherNamesAsUserScalars) {
  const auto out = FromWire(Request("tokens_per_second"));
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->signal, model::Signal::kNone);
  EXPECT_EQ(out->user_name, "tokens_per_second");
}

TEST(ConvertSeries, RefusesWhatASignalDoesNotHave) {
  v1::GetSeriesRequest in = Request("loss");
  in.set_layer(0);
  EXPECT_EQ(FromWire(in).status().message(), "layer or head is given, wanted none: loss is one value a step");
  in = Request("hidden_ms");
  in.set_layer(0);
  in.set_head(0);
  EXPECT_EQ(FromWire(in).status().message(), "head is given, wanted none: hidden_ms is one value a layer");
  in = Request("attn_logit_max");
  in.set_head(2);
  EXPECT_EQ(FromWire(in).status().message(), "layer is absent, wanted the layer of head 2");
  EXPECT_EQ(FromWire(Request("")).status().message(),
            "signal is \"\", wanted the name of a signal or of a user scalar");
  in = Request("loss");
  in.set_from_step(5);
  in.set_to_step(4);
  EXPECT_EQ(FromWire(in).status().message(), "to_step is 4, wanted at least from_step = 5");
}

TEST(ConvertMode, KnowsThreeModes) {
  EXPECT_EQ(FromWire(v1::OBSERVE), model::Mode::kObserve);
  EXPECT_EQ(FromWire(v1::ADVISE), model::Mode::kAdvise);
  EXPECT_EQ(FromWire(v1::ACT), model::Mode::kAct);
  EXPECT_EQ(FromWire(v1::MODE_UNSPECIFIED), std::nullopt);
  EXPECT_EQ(FromWire(static_cast<v1::Mode>(7)), std::nullopt);
}

}  // namespace
}  // namespace gyrostat::rpc
