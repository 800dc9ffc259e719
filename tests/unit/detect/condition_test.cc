#include "detect/condition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/detect/feed.h"

namespace gyrostat::detect {
namespace {

using model::Severity;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// One letter a step: '.' no, 'i' info, 'w' warning, '-' cannot say.
std::vector<std::string> Play(const std::string& picture, Sustained::Limits limits) {
  Sustained watch;
  uint64_t next_key = 1;
  std::vector<model::Finding> said;
  for (size_t i = 0; i < picture.size(); ++i) {
    if (picture[i] == '-') continue;
    std::optional<Severity> severity;
    if (picture[i] == 'i') severity = Severity::kInfo;
    if (picture[i] == 'w') severity = Severity::kWarning;
    watch.Observe(severity, limits, {"test", static_cast<model::Step>(i), &next_key, &said},
                  [](model::Finding* f) { f->message = "Bad."; }, [] { return std::string("Good."); });
  }
  return Brief(said);
}

TEST(Sustained, BeginsAfterHoldAndNamesTheFirstStep) {
  EXPECT_THAT(Play(".ii.ii.", {.hold = 3, .quiet = 2}), IsEmpty());
  EXPECT_THAT(Play("..iii", {.hold = 3, .quiet = 2}), ElementsAre("info 2.. open"));
  EXPECT_THAT(Play("..i-i--i", {.hold = 3, .quiet = 2}), ElementsAre("info 2.. open"));  // Nothing is not no.
}

TEST(Sustained, GetsWorseOnceAndNeverBetter) {
  EXPECT_THAT(Play("iiwwiiw", {.hold = 2, .quiet = 2}), ElementsAre("info 0.. open", "warning 0.. open"));
}

TEST(Sustained, EndsAfterQuietWithTheLastBadStep) {
  EXPECT_THAT(Play("ww.w..", {.hold = 2, .quiet = 2}), ElementsAre("warning 0.. open", "warning 0..3 healed"));
  EXPECT_THAT(Play("ww..ww", {.hold = 2, .quiet = 2}),
              ElementsAre("warning 0.. open", "warning 0..1 healed", "warning 4.. open"));
}

TEST(Sustained, ABreakEndsWhatIsOpenAndForgetsTheRest) {
  Sustained watch;
  uint64_t next_key = 1;
  std::vector<model::Finding> said;
  const auto yes = [&](model::Step step) {
    watch.Observe(Severity::kInfo, {.hold = 2, .quiet = 2}, {"test", step, &next_key, &said}, [](model::Finding*) {},
                  [] { return std::string(); });
  };
  yes(0);
  watch.Break("Gone.", &said);
  yes(1);
  EXPECT_THAT(said, IsEmpty());
  yes(2);
  watch.Break("Gone.", &said);
  EXPECT_THAT(Brief(said), ElementsAre("info 1.. open", "info 1..2 ended"));
}

}  // namespace
}  // namespace gyrostat::detect
