// What a report shows of the heads, and which of them an order has to name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/intervention.h"
#include "remedy/clip_ledger.h"

namespace gyrostat::policy {

struct HeadPlace {
  uint32_t layer = 0, head = 0;
  double max = 0;
};

// The maxima of one report at a glance. Heads that were not measured count nowhere.
struct Look {
  uint32_t measured = 0;
  uint32_t nonfinite = 0;  // NaN and infinities.
  uint32_t above = 0;      // Above tau, finite.
  uint32_t flagged = 0;    // Above the threshold, finite: what would be clipped.
  HeadPlace worst;         // The largest finite one.
  HeadPlace first_nonfinite;
  bool identical = false;  // Four or more heads measured, all with one value: no instrument that works shows that.

  // "3 heads above tau 30, worst L1 H2 at 45.3".
  std::string Sentence(double tau) const;
};
Look LookAt(std::span<const float> maxima, uint32_t heads, double tau, double threshold);

// What a plan is made from, besides the maxima. All vectors are layer-major.
struct PlanBasis {
  double tau = 0, threshold = 0;
  remedy::Ticks step_min = 1;                     // Less than this beyond what is on its way is not worth an order.
  const std::vector<remedy::Ticks>* at_forward;   // The ledger under which the report's forward ran.
  const std::vector<remedy::Ticks>* on_its_way;   // The largest target that was sent and is not settled; 0: none.
  const remedy::ClipLedger* now = nullptr;
};

// An entry for every head above the threshold whose target exceeds both the ledger now and what is on its way: the same
// evidence is not sent twice, a larger target is. In order of layer and head.
std::vector<model::ClipEntry> PlanEntries(std::span<const float> maxima, const PlanBasis& basis);

}  // namespace gyrostat::policy
