#include "detect/instrument.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/lcg.h"
#include "unit/detect/feed.h"
#include "unit/detect/resume.h"

namespace gyrostat::detect {
namespace {

using model::NormPlacement;
using model::Signal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Fill = std::function<void(int, model::Report*)>;

std::unique_ptr<Detector> Make(NormPlacement placement = NormPlacement::kPre) {
  return std::make_unique<Instrument>(InstrumentOptions(), Placed(placement, 4));
}
std::vector<model::Finding> Say(NormPlacement placement, int count, const Fill& fill) {
  return ExpectResumable([placement] { return Make(placement); }, Reports(count, fill));
}
// What every check can read, and none objects to.
void Healthy(int step, model::Report* r) {
  testing::Lcg random(static_cast<uint64_t>(step));
  const auto noisy = [&random](double v) { return static_cast<float>(v * std::exp(0.02 * random.Normal())); };
  r->SetScalar(Signal::kLoss, noisy(2.5));
  r->MutableArray(Signal::kLayerGradNorm) = {noisy(0.5), noisy(0.4), noisy(0.3), noisy(0.3)};
  r->SetScalar(Signal::kGradNorm, noisy(1));
  r->MutableArray(Signal::kAttnLogitMax) = {noisy(5), noisy(6), noisy(7), noisy(8)};
  r->MutableArray(Signal::kHiddenMs) = {noisy(1), noisy(3), noisy(5), noisy(7)};
  r->MutableArray(Signal::kHiddenAbsmax) = {noisy(4), noisy(7), noisy(9), noisy(10)};
  r->MutableArray(Signal::kAttnOutMs) = {noisy(1), noisy(1), noisy(1), noisy(1)};
  r->MutableArray(Signal::kMlpOutMs) = {noisy(1), noisy(1), noisy(1), noisy(1)};
}

TEST(Instrument, HealthySignalsAreRight) {
  EXPECT_THAT(Say(NormPlacement::kPre, 400, Healthy), IsEmpty());
  EXPECT_THAT(Say(NormPlacement::kUnknown, 100, [](int, model::Report*) {}), IsEmpty());
}

TEST(Instrument, PartsThatExceedTheWhole) {
  const auto with = [](double total) {
    return Say(NormPlacement::kPre, 20, [total](int step, model::Report* r) {
      Healthy(step, r);
      r->MutableArray(Signal::kLayerGradNorm) = {3, 0, 0, 0};
      r->SetScalar(Signal::kEmbeddingGradNorm, 4);
      r->SetScalar(Signal::kOutputGradNorm, 4);  // Tied to the embedding: the same gradient, reported twice.
      r->SetScalar(Signal::kGradNorm, total + 1e-6 * step);
    });
  };
  EXPECT_THAT(with(4.9), IsEmpty());  // 5 in all, within rounding.
  const auto said = with(4.8);
  ASSERT_THAT(Brief(said), ElementsAre("warning 0.. open"));
  EXPECT_EQ(said[0].step_detected, 7);
  EXPECT_NEAR(said[0].expected, 5, 1e-6);
}

TEST(Instrument, ANormThatIsAlwaysTheSameAndMinusOne) {
  const auto said = Say(NormPlacement::kPre, 60, [](int step, model::Report* r) {
    r->SetScalar(Signal::kGradNorm, step < 40 ? 1.0 : -1.0);
  });
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0].step_detected, 32);
  EXPECT_THAT(said[0].message, HasSubstr("after clipping"));
  EXPECT_THAT(said[1].message, HasSubstr("DeepSpeed"));
}

TEST(Instrument, ALossFromWhichNanWasFiltered) {
  const auto with = [](double loss, double norm) {
    return Say(NormPlacement::kPre, 10, [=](int, model::Report* r) {
      r->SetScalar(Signal::kLoss, loss);
      r->SetScalar(Signal::kGradNorm, norm);
    });
  };
  EXPECT_THAT(Brief(with(0, kNan)), ElementsAre("warning 0.. open"));
  EXPECT_THAT(Brief(with(2.5, kInf)), ElementsAre("warning 1.. open"));
  EXPECT_THAT(with(kNan, kNan), IsEmpty());
}

TEST(Instrument, HeadsThatAreAllTheSameOrNeverMove) {
  const auto same = Say(NormPlacement::kPre, 40, [](int step, model::Report* r) {
    r->MutableArray(Signal::kAttnLogitMax).assign(16, 10.f + static_cast<float>(step));
  });
  ASSERT_THAT(Brief(same), ElementsAre("warning 0.. open"));
  EXPECT_EQ(same[0].step_detected, 7);
  const auto stuck = Say(NormPlacement::kPre, 40, [](int, model::Report* r) {
    for (int i = 0; i < 100; ++i) r->MutableArray(Signal::kAttnLogitMax).push_back(static_cast<float>(i + 1));
  });
  ASSERT_THAT(Brief(stuck), ElementsAre("warning 1.. open"));
  EXPECT_EQ(stuck[0].step_detected, 32);
}

// methods.md §9.1: error 15 on OLMo-2, where the module's output precedes the norm that is really added.
TEST(Instrument, AnOutputThatItsInputAndBranchesCannotMake) {
  const auto with = [](NormPlacement placement, float out) {
    return Say(placement, 20, [out](int step, model::Report* r) {
      Healthy(step, r);
      r->MutableArray(Signal::kHiddenMs) = {1, 1, out, out};
      r->MutableArray(Signal::kHiddenAbsmax).clear();
    });
  };
  EXPECT_THAT(with(NormPlacement::kReordered, 9), IsEmpty());  // RMS 3 = 1 + 1 + 1.
  const auto said = with(NormPlacement::kReordered, 12);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].layer, 2u);
  EXPECT_THAT(with(NormPlacement::kPost, 12), IsEmpty());  // There a norm lies between.
}

TEST(Instrument, ADeclaredPlacementThatTheStreamContradicts) {
  const auto flat = [](int step, model::Report* r) {
    const float wobble = 0.001f * static_cast<float>(step % 7);
    r->MutableArray(Signal::kHiddenMs) = {1, 1 + wobble, 1, 1, 1, 1, 1, 1};
  };
  const auto growing = [](int step, model::Report* r) {
    for (int l = 0; l < 12; ++l)
      r->MutableArray(Signal::kHiddenMs).push_back(static_cast<float>(l * l + 1 + 0.001 * step));
  };
  EXPECT_THAT(Brief(Say(NormPlacement::kPre, 200, flat)), ElementsAre("warning 0.. open"));
  EXPECT_THAT(Say(NormPlacement::kPost, 200, flat), IsEmpty());
  EXPECT_THAT(Brief(Say(NormPlacement::kPost, 200, growing)), ElementsAre("warning 0.. open"));
  EXPECT_THAT(Say(NormPlacement::kPre, 200, growing), IsEmpty());
  EXPECT_THAT(Say(NormPlacement::kPre, 191, flat), IsEmpty());
}

TEST(Instrument, ALargestEntryBelowTheRmsAndANegativeSquare) {
  const auto below = Say(NormPlacement::kPre, 10, [](int step, model::Report* r) {
    Healthy(step, r);
    r->MutableArray(Signal::kHiddenAbsmax)[2] = 2.1f;
  });
  ASSERT_EQ(below.size(), 1u);
  EXPECT_EQ(below[0].layer, 2u);
  const auto negative = Say(NormPlacement::kPre, 10, [](int step, model::Report* r) {
    Healthy(step, r);
    r->MutableArray(Signal::kMlpOutMs)[1] = -1;
  });
  ASSERT_EQ(negative.size(), 1u);
  EXPECT_EQ(negative[0].signal, Signal::kMlpOutMs);
}

TEST(Instrument, NanAndAbsentAreNoDoubts) {
  EXPECT_THAT(Say(NormPlacement::kPre, 300, [](int step, model::Report* r) {
    Healthy(step, r);
    const float bad = step % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : model::kAbsent;
    for (const Signal s : {Signal::kHiddenMs, Signal::kHiddenAbsmax, Signal::kAttnOutMs, Signal::kMlpOutMs,
                           Signal::kAttnLogitMax, Signal::kLayerGradNorm})
      r->MutableArray(s)[static_cast<size_t>(step) % 4] = bad;
  }), IsEmpty());
}

}  // namespace
}  // namespace gyrostat::detect
