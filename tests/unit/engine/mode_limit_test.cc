#include "engine/mode_limit.h"

#include <gtest/gtest.h>

namespace gyrostat::engine {
namespace {

using model::Mode;

const ModeWord kStop{Mode::kObserve, "anna", "smoke"}, kGo{Mode::kAct, "ben", ""};

TEST(ModeLimit, LeavesTheConfigurationAloneWhileNobodySpoke) {
  const ModeLimit limit;
  for (const Mode mode : {Mode::kObserve, Mode::kAdvise, Mode::kAct}) EXPECT_EQ(limit.Apply(mode), mode);
}

TEST(ModeLimit, StopsAtOnceAndLowersOnly) {
  ModeLimit limit;
  limit.Ask({Mode::kAdvise, "anna", ""});
  EXPECT_EQ(limit.Apply(Mode::kAct), Mode::kAdvise);
  EXPECT_EQ(limit.Apply(Mode::kObserve), Mode::kObserve) << "what may act unasked is for the configuration to say";
  limit.Ask(kStop);
  EXPECT_EQ(limit.Apply(Mode::kAct), Mode::kObserve);
}

TEST(ModeLimit, LetsGoOnlyOnceThatIsOnDisk) {
  ModeLimit limit;
  limit.Restore(kStop);
  const uint64_t number = limit.Ask(kGo);
  EXPECT_EQ(limit.Apply(Mode::kAct), Mode::kObserve);
  EXPECT_FALSE(limit.Settle(number, kGo, false));
  EXPECT_EQ(limit.Apply(Mode::kAct), Mode::kObserve);
  EXPECT_FALSE(limit.TakeUnsaved()) << "what was refused is not done later";
  EXPECT_TRUE(limit.Settle(limit.Ask(kGo), kGo, true));
  EXPECT_EQ(limit.Apply(Mode::kAct), Mode::kAct);
}

TEST(ModeLimit, WritesAStopUntilItIsKept) {
  ModeLimit limit;
  const uint64_t number = limit.Ask(kStop);
  EXPECT_FALSE(limit.TakeUnsaved());
  EXPECT_TRUE(limit.Settle(number, kStop, false));
  const auto again = limit.TakeUnsaved();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->word.mode, Mode::kObserve);
  EXPECT_FALSE(limit.TakeUnsaved()) << "one at a time";
  EXPECT_TRUE(limit.Settle(again->number, again->word, false));
  ASSERT_TRUE(limit.TakeUnsaved());
  EXPECT_TRUE(limit.Settle(number, kStop, true));
  EXPECT_FALSE(limit.TakeUnsaved());
}

TEST(ModeLimit, DoesNotLetAnOlderWordUndoANewerStop) {
  ModeLimit limit;
  limit.Restore(kStop);
  const uint64_t go = limit.Ask(kGo), stop = limit.Ask(kStop);
  EXPECT_FALSE(limit.Settle(go, kGo, true)) << "overtaken";
  EXPECT_EQ(limit.Apply(Mode::kAct), Mode::kObserve);
  EXPECT_TRUE(limit.Settle(stop, kStop, false));
  EXPECT_TRUE(limit.TakeUnsaved()) << "on disk the older word stands";
}

TEST(ModeLimit, SaysWhatHolds) {
  const std::string why = ": the journal could not keep it; see the daemon's log";
  EXPECT_EQ(ModeNotKept("run r", Mode::kObserve, true).message(),
            "run r: mode observe holds now, but is not on disk yet" + why);
  EXPECT_EQ(ModeNotKept("run r", Mode::kAct, false).message(), "run r: mode act is not set" + why);
}

}  // namespace
}  // namespace gyrostat::engine
