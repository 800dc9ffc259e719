// A signal over its steps as a figure of a page: axes, bands and pins of findings, values. Shapes stretch with the page
// and text does not: labels are placed by percent, values in a box of 1000 by its height that is drawn to any width.
// Colours are classes that the page's style gives. What is under the pointer is said by the page's script. Pure.
#pragma once

#include <span>
#include <string>

#include "ctl/axis.h"
#include "ctl/curve.h"
#include "ctl/finding_list.h"

namespace gyrostat::ctl {

struct CurveLook {
  std::string id;            // Of the figure; unique in the page.
  std::string title, about;  // Plain text.
  ScaleKind scale = ScaleKind::kByRange;
  int height = 130;  // Pixels of the values' box.
};

// `bands`: findings about this signal. `pins`: those that are marked, which may be more.
std::string CurveFigure(const CurveLook& look, const Curve& curve, const StepAxis& steps,
                        std::span<const NumberedFinding> bands, std::span<const NumberedFinding> pins);

// A curve without axes, for a row of a table.
std::string CurveGlyph(const Curve& curve, const StepAxis& steps);

}  // namespace gyrostat::ctl
