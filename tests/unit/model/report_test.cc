#include "model/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gyrostat::model {
namespace {

ModelSpec TwoByThree() {
  ModelSpec spec;
  spec.layers = 2;
  spec.heads = 3;
  return spec;
}

TEST(Report, ComesBackBitForBit) {
  Report report;
  report.sequence = 7;
  report.step = -1;
  report.SetScalar(Signal::kLoss, std::numeric_limits<double>::quiet_NaN());
  report.MutableArray(Signal::kAttnLogitMax) = {1, kAbsent, INFINITY, 4, 5, 6};
  report.user = {{"tokens", 1e9}};
  report.local_clips.applied = {{1}, {2}, {345}};
  base::ByteWriter out;
  base::SaveTo(&out, report);
  base::ByteReader in(out.bytes());
  Report back;
  ASSERT_TRUE(base::LoadFrom(&in, &back));
  base::ByteWriter again;
  base::SaveTo(&again, back);
  EXPECT_EQ(again.bytes(), out.bytes());
  EXPECT_TRUE(std::isnan(back.Scalar(Signal::kLoss)));
  EXPECT_FALSE(back.Has(Signal::kGradNorm));
}

TEST(Report, ClearMakesEverythingAbsent) {
  Report report;
  report.SetScalar(Signal::kLoss, 1);
  report.MutableArray(Signal::kHiddenMs) = {1, 2};
  report.Clear();
  EXPECT_FALSE(report.Has(Signal::kLoss));
  EXPECT_FALSE(report.Has(Signal::kHiddenMs));
}

TEST(CheckShapes, NamesSignalLengthSeenAndWanted) {
  Report report;
  report.MutableArray(Signal::kAttnLogitMax) = {1, 2, 3, 4, 5};
  EXPECT_EQ(CheckShapes(report, TwoByThree()), "attn_logit_max has 5 values, wanted 6 (layers x heads = 2 x 3)");
}

TEST(CheckShapes, TakesLayersOrBoundariesForHiddenStates) {
  for (const size_t good : {2u, 3u}) {
    Report report;
    report.MutableArray(Signal::kHiddenMs).assign(good, 1.f);
    EXPECT_EQ(CheckShapes(report, TwoByThree()), "");
  }
  Report report;
  report.MutableArray(Signal::kHiddenMs).assign(4, 1.f);
  EXPECT_NE(CheckShapes(report, TwoByThree()), "");
}

TEST(CheckShapes, ARankDigestIsWholeSlotsOfUpToSixtyFourRanks) {
  for (const size_t size : {5u, 7u, 320u, 325u}) {
    Report report;
    report.MutableArray(Signal::kRankDigest).assign(size, 1.f);
    EXPECT_EQ(CheckShapes(report, TwoByThree()).empty(), size == 5 || size == 320) << size;
  }
}

}  // namespace
}  // namespace gyrostat::model
