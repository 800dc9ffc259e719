// Plays reports through a detector twice, once saved and loaded before each report, and compares every word.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "detect/detector.h"

namespace gyrostat::detect {

using Maker = std::function<std::unique_ptr<Detector>()>;

inline std::string BytesOf(const std::vector<model::Finding>& findings) {
  base::ByteWriter out;
  base::SaveTo(&out, findings);
  return out.Take();
}

// Returns what was said. An intervention breaks in before report `break_at`, if there is one.
inline std::vector<model::Finding> ExpectResumable(const Maker& make, const std::vector<model::Report>& reports,
                                                   size_t break_at = SIZE_MAX) {
  std::vector<model::Finding> said;
  std::unique_ptr<Detector> whole = make(), broken = make();
  for (size_t i = 0; i < reports.size(); ++i) {
    base::ByteWriter saved;
    broken->Save(&saved);
    broken = make();
    base::ByteReader in(saved.bytes());
    EXPECT_TRUE(broken->Load(&in)) << "report " << i;
    EXPECT_TRUE(in.AtEnd());
    std::vector<model::Finding> a, b;
    if (i == break_at) {
      whole->OnBreak(Break::kIntervention, reports[i].step, &a);
      broken->OnBreak(Break::kIntervention, reports[i].step, &b);
    }
    whole->Observe(reports[i], &a);
    broken->Observe(reports[i], &b);
    EXPECT_EQ(BytesOf(a), BytesOf(b)) << "report " << i;
    if (::testing::Test::HasFailure()) return said;
    said.insert(said.end(), a.begin(), a.end());
  }
  // Foreign bytes leave it as new.
  base::ByteWriter fresh, after, saved;
  make()->Save(&fresh);
  whole->Save(&saved);
  for (size_t size = 0; size < saved.bytes().size(); size += 1 + saved.bytes().size() / 50) {
    base::ByteReader cut(std::string_view(saved.bytes()).substr(0, size));
    EXPECT_FALSE(whole->Load(&cut)) << "cut at " << size;
  }
  whole->Save(&after);
  EXPECT_EQ(after.bytes(), fresh.bytes());
  return said;
}

// `count` reports with steps from 0 on, each filled by `fill(step, &report)`.
inline std::vector<model::Report> Reports(int count, const std::function<void(int, model::Report*)>& fill) {
  std::vector<model::Report> reports(static_cast<size_t>(count));
  for (int step = 0; step < count; ++step) {
    model::Report& report = reports[static_cast<size_t>(step)];
    report.step = step;
    report.sequence = report.boundary = static_cast<uint64_t>(step) + 1;
    fill(step, &report);
  }
  return reports;
}

inline model::ModelSpec Placed(model::NormPlacement placement, uint32_t layers) {
  model::ModelSpec spec;
  spec.norm_placement = placement;
  spec.layers = layers;
  return spec;
}

}  // namespace gyrostat::detect
