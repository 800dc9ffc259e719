#include "client/src/frame.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "model/report.h"

namespace gyrostat::client {
namespace {

using model::LogitKind;
using model::Signal;

TEST(FrameRing, ArraysBeginAtMultiplesOf64Bytes) {
  for (const auto& [layers, heads] : std::vector<std::pair<uint32_t, uint32_t>>{{1, 1}, {3, 5}, {128, 128}, {0, 0}}) {
    FrameRing ring(FrameLayout(layers, heads), 3);
    for (size_t f = 0; f < 3; ++f)
      for (const float* array : ring.queue().slot(f).arrays)
        EXPECT_EQ(reinterpret_cast<uintptr_t>(array) % 64, 0u) << layers << " x " << heads << ", frame " << f;
  }
}

TEST(FrameRing, ArraysOfAllFramesAreApartAndAsLongAsTheLayoutSays) {
  const FrameLayout layout(3, 5);
  FrameRing ring(layout, 4);
  // Each array is filled with its own number; whoever overlaps loses.
  float number = 0;
  for (size_t f = 0; f < 4; ++f)
    for (const model::SignalInfo& info : model::Signals()) {
      if (!model::IsArray(info.signal)) continue;
      ++number;
      std::fill_n(ring.queue().slot(f).Array(info.signal), layout.Capacity(info.shape), number);
    }
  number = 0;
  for (size_t f = 0; f < 4; ++f)
    for (const model::SignalInfo& info : model::Signals()) {
      if (!model::IsArray(info.signal)) continue;
      ++number;
      const float* array = ring.queue().slot(f).Array(info.signal);
      for (size_t i = 0; i < layout.Capacity(info.shape); ++i) ASSERT_EQ(array[i], number) << info.name;
    }
}

// The client must refuse exactly what the daemon would refuse: the same rule, asked both ways.
TEST(FrameLayout, FitsWhatCheckShapesAccepts) {
  for (uint32_t layers : {0u, 1u, 2u, 3u, 7u})
    for (uint32_t heads : {0u, 1u, 2u, 5u}) {
      const FrameLayout layout(layers, heads);
      model::ModelSpec spec;
      spec.layers = layers;
      spec.heads = heads;
      for (const model::SignalInfo& info : model::Signals()) {
        if (!model::IsArray(info.signal)) continue;
        for (size_t count = 1; count <= 40; ++count) {
          model::Report report;
          report.MutableArray(info.signal).assign(count, 1.0f);
          EXPECT_EQ(layout.Fits(info.shape, count), model::CheckShapes(report, spec).empty())
              << info.name << " with " << count << " values for " << layers << " x " << heads;
        }
      }
    }
}

TEST(FrameLayout, AnUnknownShapeIsBounded) {
  const FrameLayout layout(0, 0);
  EXPECT_TRUE(layout.Fits(model::Shape::kLayerHead, kUnknownShapeValues));
  EXPECT_FALSE(layout.Fits(model::Shape::kLayerHead, kUnknownShapeValues + 1));
  EXPECT_FALSE(layout.Fits(model::Shape::kLayer, 0));
}

TEST(Frame, CopiesEverythingIntoAReport) {
  FrameRing ring(FrameLayout(2, 3), 2);
  Frame& frame = *ring.queue().Reserve();
  frame.Begin(41);
  frame.epoch = 2;
  frame.boundary = 7;
  frame.ledger_version = 5;
  frame.dropped_hot = 1;
  frame.logit_kind = LogitKind::kExact;
  frame.scalars[static_cast<size_t>(Signal::kLoss)] = 2.5;
  const float maxima[] = {1, 2, 3, 4, 5, 6};
  std::copy_n(maxima, 6, frame.Array(Signal::kAttnLogitMax));
  frame.counts[Frame::Slot(Signal::kAttnLogitMax)] = 6;
  std::copy_n("tokens", 6, frame.user[0].name);
  frame.user[0].name_size = 6;
  frame.user[0].value = 1e9;
  frame.user_count = 1;

  model::Report report;
  report.SetScalar(Signal::kGradNorm, 3);  // From the step before: must be gone.
  report.MutableArray(Signal::kHiddenMs) = {1};
  frame.CopyTo(&report);
  EXPECT_EQ(report.epoch, 2u);
  EXPECT_EQ(report.boundary, 7u);
  EXPECT_EQ(report.step, 41);
  EXPECT_EQ(report.ledger_version, 5u);
  EXPECT_EQ(report.dropped_hot, 1u);
  EXPECT_EQ(report.attn_logit_kind, LogitKind::kExact);
  EXPECT_EQ(report.Scalar(Signal::kLoss), 2.5);
  EXPECT_FALSE(report.Has(Signal::kGradNorm));
  EXPECT_FALSE(report.Has(Signal::kHiddenMs));
  EXPECT_EQ(report.MutableArray(Signal::kAttnLogitMax), std::vector<float>(maxima, maxima + 6));
  EXPECT_EQ(report.user, (std::vector<std::pair<std::string, double>>{{"tokens", 1e9}}));
}

TEST(WeakerKind, SaysOfAllWhatHoldsOfEach) {
  EXPECT_EQ(WeakerKind(LogitKind::kExact, LogitKind::kExact), LogitKind::kExact);
  EXPECT_EQ(WeakerKind(LogitKind::kExact, LogitKind::kLseUpper), LogitKind::kLseUpper);
  EXPECT_EQ(WeakerKind(LogitKind::kLseUpper, LogitKind::kSampledLower), LogitKind::kSampledLower);
  EXPECT_EQ(WeakerKind(LogitKind::kNormProduct, LogitKind::kExact), LogitKind::kNormProduct);
  EXPECT_EQ(WeakerKind(LogitKind::kExact, LogitKind::kUnknown), LogitKind::kUnknown);
}

}  // namespace
}  // namespace gyrostat::client
