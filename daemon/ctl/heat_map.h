// Layers against time, and layers against heads, as colour. The picture is an indexed bitmap in a data: address: one
// byte a cell, so that the page's script can read the value under the pointer back out of the picture. Pure.
#pragma once

#include <string>
#include <string_view>

#include "ctl/axis.h"
#include "ctl/curve.h"

namespace gyrostat::ctl {

struct MapLook {
  std::string id;            // Of the figure; unique in the page.
  std::string title, about;  // Plain text.
  std::string row = "layer";   // What a row is.
};

// Layer 0 at the bottom, steps to the right. "" where nothing finite was measured.
std::string LayerMapFigure(const MapLook& look, const LayerMap& map, const StepAxis& steps);

// Layer 0 at the bottom, heads to the right; each cell its worst value, and the worst heads as text.
std::string HeadMapFigure(const MapLook& look, const HeadMap& map);

// The gradient that the legends of all maps show. Once a page.
std::string RampDefinition();

}  // namespace gyrostat::ctl
