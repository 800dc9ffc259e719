#include "support/synthetic_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/signal.h"

namespace gyrostat::testing {
namespace {

SyntheticOptions Runaway() {
  SyntheticOptions options;
  options.attempt = std::string(16, 'a');
  options.layers = 2;
  options.heads = 4;
  options.scenario = Scenario::kRunaway;
  options.allow = {"qk_clip"};
  return options;
}

std::vector<float> Logits(const v1::Report& report) {
  std::vector<float> values;
  for (const v1::SignalValues& each : report.arrays()) {
    if (each.signal() != static_cast<uint32_t>(model::Signal::kAttnLogitMax)) continue;
    values.resize(each.values().size() / sizeof(float));
    std::memcpy(values.data(), each.values().data(), each.values().size());
  }
  return values;
}

TEST(SyntheticRun, TheSameSeedGivesTheSameBytes) {
  SyntheticRun first(Runaway()), second(Runaway());
  v1::Report a, b;
  for (int i = 0; i < 5; ++i) {
    first.NextReport(&a);
    second.NextReport(&b);
    EXPECT_EQ(a.SerializeAsString(), b.SerializeAsString());
  }
  EXPECT_EQ(a.sequence(), 5u);
  EXPECT_EQ(a.step(), 4);
}

TEST(SyntheticRun, AnOrderScalesTheHeadOnceHoweverOftenItComes) {
  SyntheticRun clipped(Runaway()), free(Runaway());
  v1::Report report, reference;
  for (int i = 0; i < 60; ++i) clipped.NextReport(&report);
  v1::Order order;
  order.set_run("load-0");
  order.set_attempt(std::string(16, 'a'));
  order.set_kind(v1::QK_CLIP);
  order.set_expires_boundary(80);
  v1::ClipEntries* entries = order.mutable_qk_clip()->mutable_entries();
  entries->add_layer(0);
  entries->add_head(0);
  entries->add_target_ticks(1 << 20);  // One nat.
  EXPECT_EQ(clipped.Obey(order).outcome(), v1::Ack::APPLIED);
  EXPECT_EQ(clipped.Obey(order).outcome(), v1::Ack::VOID);
  clipped.NextReport(&report);
  for (int i = 0; i < 61; ++i) free.NextReport(&reference);
  EXPECT_NEAR(Logits(report)[0], Logits(reference)[0] / std::exp(1.0), 1e-3);
  EXPECT_EQ(Logits(report)[1], Logits(reference)[1]);
  EXPECT_EQ(report.ledger_version(), 1u);
}

TEST(SyntheticRun, RefusesForeignExpiredAndForbiddenOrders) {
  SyntheticRun run(Runaway());
  v1::Report report;
  for (int i = 0; i < 3; ++i) run.NextReport(&report);
  v1::Order order;
  order.set_run("load-0");
  order.set_attempt(std::string(16, 'b'));
  order.set_kind(v1::QK_CLIP);
  EXPECT_EQ(run.Obey(order).outcome(), v1::Ack::FOREIGN);
  order.set_attempt(std::string(16, 'a'));
  order.set_expires_boundary(2);
  EXPECT_EQ(run.Obey(order).outcome(), v1::Ack::EXPIRED);
  order.set_kind(v1::HALT);
  EXPECT_EQ(run.Obey(order).outcome(), v1::Ack::REFUSED);
}

TEST(SyntheticRun, NonfiniteStartsAtStep150AndIsCounted) {
  SyntheticOptions options = Runaway();
  options.scenario = Scenario::kNonfinite;
  SyntheticRun run(options);
  v1::Report report;
  for (int i = 0; i < 150; ++i) run.NextReport(&report);
  EXPECT_FALSE(std::isnan(report.scalars(0)));
  run.NextReport(&report);
  EXPECT_TRUE(std::isnan(report.scalars(0)));
  EXPECT_TRUE(std::isinf(Logits(report).back()));
  EXPECT_EQ(report.nonfinite_total(), 2u);
}

}  // namespace
}  // namespace gyrostat::testing
