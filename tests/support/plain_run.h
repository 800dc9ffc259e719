// Hellos, reports and other plain values of a small training run, for tests of rooms that know no wire.
#pragma once

#include <cstdint>
#include <string>

#include "model/intervention.h"
#include "model/report.h"

namespace gyrostat::testing {

inline constexpr uint32_t kPlainLayers = 2, kPlainHeads = 4;

// The n-th of an endless row of ids.
inline model::Id128 IdOf(uint8_t n) {
  model::Id128 id;
  id.bytes.fill(n);
  return id;
}

inline model::Hello PlainHello(const std::string& run, const model::AttemptId& attempt) {
  model::Hello hello;
  hello.run = run;
  hello.attempt = attempt;
  hello.model.layers = kPlainLayers;
  hello.model.heads = kPlainHeads;
  hello.model.attention = model::Attention::kMha;
  hello.model.qk_norm = model::QkNorm::kNone;
  hello.model.master_fp32 = true;
  hello.attn_logit = {model::LogitKind::kExact, true, true, true, true};
  hello.allow = {"qk_clip"};
  return hello;
}

// The n-th report of an attempt, n from 1: a falling loss, a steady gradient norm, attention maxima near 8.
inline model::Report PlainReport(uint64_t n) {
  model::Report report;
  report.sequence = n;
  report.boundary = n - 1;
  report.step = static_cast<model::Step>(n);
  report.step_time_ms = 100;
  report.attn_logit_kind = model::LogitKind::kExact;
  const double wiggle = static_cast<double>((n * 2654435761u) % 1000) / 1000 - 0.5;
  report.SetScalar(model::Signal::kLoss, 2 + 4 / (1 + 0.01 * static_cast<double>(n)) + 0.05 * wiggle);
  report.SetScalar(model::Signal::kGradNorm, 1 + 0.1 * wiggle);
  // The largest, of the last head, stays; the first ones move as real ones do.
  for (uint32_t i = 0; i < kPlainLayers * kPlainHeads; ++i)
    report.MutableArray(model::Signal::kAttnLogitMax)
        .push_back(8 + static_cast<float>(i) / 8 + (i == 0 ? 0.1f * static_cast<float>(wiggle) : 0));
  // Together less than the global norm: the rest is the embedding's.
  for (uint32_t i = 0; i < kPlainLayers; ++i)
    report.MutableArray(model::Signal::kLayerGradNorm).push_back(0.5f + 0.1f * static_cast<float>(i));
  return report;
}

}  // namespace gyrostat::testing
