// What an intervention of a kind other than qk_clip shall do, as far as somebody has said; the rest are defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/archive.h"
#include "model/ids.h"
#include "model/intervention.h"

namespace gyrostat::policy {

struct Proposal {
  model::InterventionKind kind = model::InterventionKind::kLrScale;
  std::optional<model::Step> warmup_end = {};   // warmup_extension: W'.
  std::optional<double> alpha = {}, beta = {};  // deepnorm_alpha.
  std::optional<uint32_t> ramp = {};            // deepnorm_alpha: boundaries.
  std::optional<double> scale = {};             // lr_scale.
  std::optional<uint64_t> for_boundaries = {};  // lr_scale; 0: for good.
  std::optional<double> max_norm = {};          // grad_clip.
  std::optional<model::Step> at_step = {};      // skip_step; needed.
  std::string author = {}, reason = {};         // Of a person.

  template <class Archive>
  void Fields(Archive& a) {
    a(kind, warmup_end, alpha, beta, ramp, scale, for_boundaries, max_norm, at_step, author, reason);
  }
};

// What is wrong with it whatever the job: a value that its kind does not take, or one out of bounds ("scale is 2,
// wanted 0.01 to 1"). Empty: nothing.
std::string CheckProposal(const Proposal& proposal);

}  // namespace gyrostat::policy
