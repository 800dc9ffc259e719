#include "logs/key_values.h"

#include <gtest/gtest.h>

#include <sstream>

namespace gyrostat::logs {
namespace {

// "key=value; ..." of a line.
std::string Found(std::string_view line) {
  std::vector<KeyValue> pairs;
  FindKeyValues(line, &pairs);
  std::ostringstream text;
  for (const KeyValue& each : pairs) text << each.key << "=" << each.value << "; ";
  return text.str();
}

TEST(KeyValues, FindsNumbersAndTheirNames) {
  EXPECT_EQ(Found("step: 3  loss: 11.5  memory:  7.37GiB(23.51%)  tps: 6,876"),
            "step=3; loss=11.5; memory=7.37; tps=6876; ");
  EXPECT_EQ(Found("iter 12: loss 4.4512, time 228ms, mfu -1.5%"), "iter=12; loss=4.4512; time=228; mfu=-1.5; ");
  EXPECT_EQ(Found("| lm loss: 1.25E+01 | grad norm: 6.5 | elapsed time per iteration (ms): 14.5 |"),
            "lm loss=12.5; grad norm=6.5; elapsed time per iteration=14.5; ");
  EXPECT_EQ(Found("step=10, lr=[9.5, 9.5], mom=[(0.9, 0.95)]"), "step=10; lr=9.5; ");
  EXPECT_EQ(Found("{'loss': 2.5, \"gnorm\": \"1.5\"}"), "loss=2.5; gnorm=1.5; ");
  EXPECT_EQ(Found("loss     nan (+nanz)| norm    nan"), "loss=nan; norm=nan; ");
}

TEST(KeyValues, KeepsNamesApart) {
  EXPECT_EQ(Found("step 200: train loss 2.5, val loss 2.6"), "step=200; train loss=2.5; val loss=2.6; ");
  EXPECT_EQ(Found("2026-04-21 07:06:34,280 - root - INFO - step:  1"), "step=1; ");
  EXPECT_EQ(Found("| number of nan iterations:   2 |"), "number of nan iterations=2; ");
  EXPECT_EQ(Found("no numbers here"), "");
  EXPECT_EQ(Found("info: nano x:y"), "");
}

}  // namespace
}  // namespace gyrostat::logs
