// The findings of a run as a page shows them: numbered, as rows of a table and as pins on the curves. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ctl/axis.h"
#include "ctl/replayed.h"

namespace gyrostat::ctl {

struct NumberedFinding {
  const RuledFinding* ruled = nullptr;
  size_t number = 0;   // From 1.
  std::string anchor;  // Id of its row; "" where the table has none.
  // Whose curve shows it: what is said about a spike score belongs to the curve that it scores. kNone: no curve does.
  model::Signal drawn = model::Signal::kNone;
  std::string figure;  // Id of that curve, of the loss's where it has none; "" where there is no picture.
};

// Ours before those of other tools, then worst first, then earlier first; numbered in this order. Ids begin with the
// section's. `run` must outlive the answer.
std::vector<NumberedFinding> NumberedFindings(const Replayed& run, const std::string& section);

// The id of a signal's curve in the page.
std::string FigureId(const std::string& section, model::Signal signal);

// The table. What is only information folds away where it is much; what is beyond a few hundred is counted.
std::string FindingRows(std::span<const NumberedFinding> findings, const StepAxis& steps);

// A lane of pins for the top of a picture, each a link to its row. Pins that would hide each other become one.
std::string PinLane(std::span<const NumberedFinding> findings, const StepAxis& steps);

// Shapes that the pins and rows use. Once a page.
std::string PinDefinitions();

// "attn_logit_max, layer 3, head 1".
std::string PlaceOf(const model::Finding& finding);

}  // namespace gyrostat::ctl
