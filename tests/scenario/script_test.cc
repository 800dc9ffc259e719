// The language itself: what it reads, what it refuses and with which words, and that `nothing more` means nothing more.
#include "scenario/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "scenario/expectations.h"
#include "scenario/notation.h"

namespace gyrostat::scenario {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<double> Values(const std::vector<std::string>& items) {
  Series series;
  for (const std::string& item : items) EXPECT_EQ(AppendItem(item, 1, &series), "") << item;
  return series.values;
}

std::string WrongItem(const std::string& item) {
  Series series;
  return AppendItem(item, 1, &series);
}

const char kRun[] = "run layers=2 heads=3\n";
const char kEnd[] = "expect nothing more\n";

std::string ErrorOf(const std::string& middle) {
  Script script;
  return Parse(std::string(kRun) + middle + kEnd, &script);
}

TEST(Notation, ReadsEveryForm) {
  EXPECT_THAT(Values({"2.5"}), ElementsAre(2.5));
  EXPECT_THAT(Values({"2x3", "-1"}), ElementsAre(2, 2, 2, -1));
  EXPECT_THAT(Values({"4.00-0.5x3"}), ElementsAre(4, 3.5, 3));
  EXPECT_THAT(Values({"-1+2x2"}), ElementsAre(-1, 1));
  EXPECT_THAT(Values({"8*0.5x3"}), ElementsAre(8, 4, 2));
  EXPECT_THAT(Values({"1e-3x1", "0x2"}), ElementsAre(DoubleEq(1e-3), 0, 0));
  const std::vector<double> special = Values({"NaN", "Inf", "-Infx2", "_"});
  EXPECT_TRUE(std::isnan(special[0]));
  EXPECT_EQ(special[1], INFINITY);
  EXPECT_EQ(special[3], -INFINITY);
  EXPECT_TRUE(model::IsAbsent(special[4]));
}

TEST(Notation, NoiseIsBoundedAndTheSameEachTime) {
  const std::vector<double> values = Values({"10~0.1x200"});
  EXPECT_EQ(values, Values({"10~0.1x200"}));
  for (const double v : values) {
    EXPECT_GE(v, 9);
    EXPECT_LE(v, 11);
  }
  EXPECT_NE(values[0], values[1]);
}

TEST(Notation, SaysWhatItWanted) {
  EXPECT_EQ(WrongItem("abc"), "value `abc`: wanted a number, NaN, Inf, -Inf or _");
  EXPECT_EQ(WrongItem("2x0"), "value `2x0`: wanted a count from 1 to 100000, or *, after x");
  EXPECT_EQ(WrongItem("2x100001"), "value `2x100001`: wanted a count from 1 to 100000, or *, after x");
  EXPECT_EQ(WrongItem("2-x3"), "value `2-x3`: wanted a number of at least 0 after + - or *");
  EXPECT_EQ(WrongItem("2~3x3"), "value `2~3x3`: wanted a share from 0 to 1 after ~");
  EXPECT_EQ(WrongItem("2y3"), "value `2y3`: wanted x and a count, or nothing, at the end");
  for (const char* item : {"", "nan", "inf", "+3", "x5", "--1", "NaN-1x2", "1e999", "0x", "1x-2"})
    EXPECT_NE(WrongItem(item), "") << item;
}

TEST(Notation, NothingFollowsAnOpenItem) {
  Series series;
  EXPECT_EQ(AppendItem("2x*", 1, &series), "");
  EXPECT_THAT(AppendItem("3", 1, &series), HasSubstr("nothing after an item that goes on"));
}

TEST(Script, ReadsTheWholePicture) {
  Script script;
  ASSERT_EQ(Parse("# a comment\n"
                  "run layers=2 heads=4 kv_heads=2 world=8 step=500ms allow=qk_clip,collect tau_min=20 kind=lse_upper\n"
                  "config policy.mode=act policy.qk_clip.tau=30\n"
                  "client delay=3 answer=ignore   # late\n"
                  "signal loss 2.5x10\n"
                  "signal attn_logit_max[1,*] 7x*\n"
                  "at 4 reject id=1 reason=\"not # now\"\n"
                  "at 5 restart from=2\n"
                  "expect finding step=3..5 loss_spike info begins value=2.5..3 message~\"a b\"\n"
                  "expect orders 0\n"
                  "expect nothing more\n",
                  &script),
            "");
  EXPECT_EQ(script.run.spec.attention, model::Attention::kGqa);
  EXPECT_EQ(script.run.step_ms, 500);
  EXPECT_THAT(script.run.allow, ElementsAre("qk_clip", "collect"));
  EXPECT_EQ(script.yaml, "policy.mode: act\npolicy.qk_clip.tau: 30\n");
  EXPECT_EQ(script.client.delay, 3u);
  EXPECT_EQ(script.steps, 10u);
  ASSERT_EQ(script.signals.size(), 2u);
  EXPECT_EQ(script.signals[1].layer, 1u);
  EXPECT_FALSE(script.signals[1].head);
  EXPECT_EQ(script.signals[1].values.size(), 10u);
  EXPECT_EQ(script.ats[0].reason, "not # now");
  EXPECT_EQ(script.ats[1].from, 2);
  ASSERT_EQ(script.expectations.size(), 2u);
  EXPECT_EQ(script.expectations[0].parts.at("message"), "a b");
}

TEST(Script, NamesTheLineAndWhatItWanted) {
  EXPECT_EQ(ErrorOf("singal loss 1x5\n"), "line 2: `singal`: wanted run, config, client, signal, at or expect");
  EXPECT_EQ(ErrorOf("\n\nsignal lose 1x5\n"), "line 4: `lose`: wanted a signal of model/signal.h");
  EXPECT_THAT(ErrorOf("signal loss[1] 1x5\n"), HasSubstr("line 2: `loss[1]`: a scalar has no place in brackets"));
  EXPECT_THAT(ErrorOf("signal attn_logit_max[2,0] 1x5\n"), HasSubstr("wanted [LAYER,HEAD]"));
  EXPECT_THAT(ErrorOf("signal attn_logit_max[1] 1x5\n"), HasSubstr("wanted [LAYER,HEAD]"));
  EXPECT_THAT(ErrorOf("signal hidden_absmax[0,0] 1x5\n"), HasSubstr("wanted [LAYER]"));
  EXPECT_EQ(ErrorOf("signal loss 1x5\nsignal grad_norm 1x4\n"), "line 3: has 4 steps, the scenario 5");
  EXPECT_EQ(ErrorOf("signal loss 1x*\n"), "line 3: no signal line says how many steps there are");
  EXPECT_EQ(ErrorOf("signal loss 1x5\nat 6 bye\n"), "line 3: step 6 of 5");
  EXPECT_EQ(ErrorOf("signal loss 1x5\nat 3 bye\nat 2 bye\n"), "line 4: `at` lines come in order of steps");
  EXPECT_THAT(ErrorOf("at 1 explode\n"), HasSubstr("line 2: `explode`: wanted mode approve"));
  EXPECT_EQ(ErrorOf("at 1 mode attack\n"), "line 2: wanted `mode observe|advise|act`");
  EXPECT_EQ(ErrorOf("at 1 wait 10\n"), "line 2: wanted a time: 10m");
  EXPECT_EQ(ErrorOf("at 1 bye now\n"), "line 2: `now`: wanted nothing more");
  EXPECT_EQ(ErrorOf("client slow\n"), "line 2: `slow`: wanted delay=N or answer=apply|refuse|ignore");
  EXPECT_EQ(ErrorOf("config policy.mode\n"), "line 2: `policy.mode`: wanted KEY=VALUE");
  EXPECT_EQ(ErrorOf("expect finding message~\"open\n"), "line 2: a quote is not closed");
  EXPECT_EQ(ErrorOf("run layers=1\n"), "line 2: there is one `run` line");
}

TEST(Script, ExpectationsThatNothingCouldMeetAreErrors) {
  EXPECT_THAT(ErrorOf("expect findings loss_spike\n"), HasSubstr("line 2: `findings`: wanted one of ack"));
  EXPECT_THAT(ErrorOf("expect finding los_spike\n"), HasSubstr("`los_spike`: wanted one of"));
  EXPECT_THAT(ErrorOf("expect finding lyaer=1\n"), HasSubstr("`lyaer`: wanted one of"));
  EXPECT_THAT(ErrorOf("expect finding step=a\n"), HasSubstr("step: wanted N or A..B"));
  EXPECT_THAT(ErrorOf("expect orders many\n"), HasSubstr("wanted a count or a range"));
}

TEST(Script, HasABeginningAndAnEnd) {
  Script script;
  EXPECT_THAT(Parse("signal loss 1x5\n", &script), HasSubstr("begins with a `run` line"));
  EXPECT_THAT(Parse("run layers=1\nsignal loss 1x5\n", &script), HasSubstr("ends with `expect nothing more`"));
  EXPECT_THAT(Parse("run\nsignal loss 1x5\nexpect nothing more\nsignal loss 1x5\n", &script),
              HasSubstr("line 4: nothing may follow"));
  EXPECT_THAT(Parse("", &script), HasSubstr("begins with a `run` line"));
}

TEST(Script, IsBounded) {
  Script script;
  EXPECT_THAT(Parse(std::string(kTextBytesMax + 1, '#'), &script), HasSubstr("at most 1 MiB"));
  std::string many = kRun;
  for (int i = 0; i < 12; ++i) many += "signal loss 1x100000\n";
  EXPECT_THAT(Parse(many + kEnd, &script), HasSubstr("at most 1048576 values"));
  EXPECT_THAT(Parse("run layers=17\n", &script), HasSubstr("layers heads (1 to 16)"));
}

std::vector<Expectation> Expect(const std::string& lines) {
  Script script;
  EXPECT_EQ(Parse(std::string(kRun) + "signal loss 1x5\n" + lines + kEnd, &script), "");
  return script.expectations;
}

Said Finding(uint64_t step, const std::string& detector, double value) {
  return {step, "finding", {detector, "info", "begins"}, {{"value", std::to_string(value)}}};
}

TEST(Compare, WhatIsSaidAndExpectedIsSilent) {
  EXPECT_THAT(Compare(Expect("expect finding step=3 loss_spike value=2.50\n"), {Finding(3, "loss_spike", 2.501)}),
              IsEmpty());
}

TEST(Compare, WhatIsNotExpectedIsADifference) {
  const auto differences = Compare(Expect("expect finding loss_spike\n"),
                                   {Finding(3, "loss_spike", 1), Finding(4, "loss_spike", 1)});
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_THAT(differences[0], HasSubstr("not expected: expect finding step=4 loss_spike info begins value="));
}

TEST(Compare, WhatIsNotSaidIsADifference) {
  EXPECT_THAT(Compare(Expect("expect finding step=9 loss_spike\n"), {}),
              ElementsAre("line 3: not said: expect finding step=9 loss_spike"));
}

TEST(Compare, OneLineMatchesOneThingInOrder) {
  const std::vector<Said> said = {Finding(3, "loss_spike", 1), Finding(4, "grad_spike", 1)};
  EXPECT_THAT(Compare(Expect("expect finding loss_spike\nexpect finding grad_spike\n"), said), IsEmpty());
  EXPECT_EQ(Compare(Expect("expect finding grad_spike\nexpect finding loss_spike\n"), said).size(), 2u);
  EXPECT_EQ(Compare(Expect("expect finding loss_spike\nexpect finding loss_spike\n"), said).size(), 2u);
}

TEST(Compare, APluralCountsWhatNoLineMatched) {
  const Said order{3, "order", {"qk_clip"}, {}};
  EXPECT_THAT(Compare(Expect("expect order qk_clip\nexpect orders 2\n"), {order, order, order}), IsEmpty());
  EXPECT_EQ(Compare(Expect("expect orders 1..2\n"), {order, order, order}).size(), 1u);
  EXPECT_EQ(Compare(Expect("expect orders 1\n"), {}).size(), 1u);
  EXPECT_EQ(Compare({}, {order}).size(), 1u);
}

TEST(Compare, NumbersMatchWithinHalfAPercentWholeOnesExactly) {
  const auto matches = [](const char* wanted, const std::string& seen) {
    return Matches(Expect(std::string("expect finding value=") + wanted + "\n")[0],
                   {1, "finding", {}, {{"value", seen}}});
  };
  EXPECT_TRUE(matches("2.50", "2.512"));
  EXPECT_FALSE(matches("2.50", "2.513"));
  EXPECT_TRUE(matches("100", "100"));
  EXPECT_FALSE(matches("100", "100.4"));
  EXPECT_TRUE(matches("99..101", "100.4"));
  EXPECT_FALSE(matches("99..101", "NaN"));
  EXPECT_FALSE(matches("2.50", "abc"));
}

TEST(Said, PrintsALineThatExpectsIt) {
  Said said = Finding(3, "loss_spike", 2.5);
  said.fields["message"] = "a # b";
  Script script;
  ASSERT_EQ(Parse(std::string(kRun) + "signal loss 1x5\n" + said.Line() + "\n" + kEnd, &script), "");
  EXPECT_TRUE(Matches(script.expectations[0], said));
}

}  // namespace
}  // namespace gyrostat::scenario
