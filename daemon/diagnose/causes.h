// What each detector's word is evidence of, what a placement makes likely, and what to do about each cause. Private to
// the room.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "diagnose/diagnosis.h"

namespace gyrostat::diagnose {

inline constexpr size_t kCauses = 14;

struct Vote {
  Cause cause = Cause::kUnknown;
  double weight = 0;  // 3: made for this; 2: strong; 1: goes with it; 0: none.
};
using Votes = std::array<Vote, 2>;
Votes VotesOf(const model::Finding& finding, const model::ModelSpec& spec);

// How likely the cause is in this model before anything was seen: 1.5 where the placement is prone to it, 0.5 where it
// is known and is not, 1 elsewhere.
double Prior(Cause cause, const model::ModelSpec& spec);

std::string_view Sentence(Cause cause);  // Begins a headline: "Attention logits run away".
std::string Likely(Cause cause, const model::ModelSpec& spec);

struct Advice {
  std::optional<model::InterventionKind> kind;
  std::string text;
};
Advice AdviceFor(Cause cause, const Diagnosis& diagnosis, const model::ModelSpec& spec);

}  // namespace gyrostat::diagnose
