// What each detector's word is evidence of, what a placement makes likely, and what to do about each cause. Private to
// the room.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/diagnosis.h"

namespace gyrostat::diagnose {

inline constexpr size_t kCauses = 15;

struct Vote {
  Cause cause = Cause::kUnknown;
  double weight = 0;  // 3: made for this; 2: strong; 1: goes with it; 0: none.
};
using Votes = std::array<Vote, 2>;

// What else was found: the same word means another thing in other company.
struct Company {
  // First step of a NaN or Inf that lasts.
  std::optional<model::Step> lasting_nonfinite;
  // Something that can end in NaN stood open before it.
  bool forerunner = false;
  // The gradient norm jumped before the loss: the batch of one step moves both at that step.
  bool gradient_led = false;
  // The gradient norm of the whole model got rough: not yet a run that diverges.
  bool gradient_rough = false;
  uint32_t spikes = 0;  // Of loss and gradient norm.
};
// From so many on they are no accident.
inline constexpr uint32_t kRecurringSpikes = 4;
Company CompanyOf(const std::vector<model::Finding>& findings);

Votes VotesOf(const model::Finding& finding, const Company& company, const model::ModelSpec& spec);

// How likely the cause is in this model before anything was seen: 1.5 where the placement is prone to it, 0.5 where it
// is known and is not, 1 elsewhere.
double Prior(Cause cause, const model::ModelSpec& spec);

std::string_view Sentence(Cause cause);  // Begins a headline: "Attention logits run away".
std::string Likely(Cause cause, const model::ModelSpec& spec);

struct Advice {
  std::optional<model::InterventionKind> kind;
  std::string text;
};
Advice AdviceFor(Cause cause, const Company& company, const Diagnosis& diagnosis, const model::ModelSpec& spec);

}  // namespace gyrostat::diagnose
