// Pictures of a replayed run as SVG, for a page without scripts. Colours are classes that the page's style gives, so
// that they follow its light or dark. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ctl/curve.h"
#include "ctl/replayed.h"

namespace gyrostat::ctl {

// `text` with what HTML would read as markup written as entities; control characters as Escape (text.h) writes them.
std::string Html(std::string_view text);

// A signal over its steps, with a band for each finding about it. The scale is logarithmic where positive values span
// more than a factor of 30. Values that are not finite are marks at the top.
std::string CurveSvg(std::string_view name, const Curve& curve, std::span<const RuledFinding> findings,
                     model::Step first_step, model::Step last_step);

// Layers upwards, steps to the right, values as colour: 16 shades, those of one shade in one path.
std::string LayerMapSvg(std::string_view name, const LayerMap& map);

inline constexpr int kShades = 16;

}  // namespace gyrostat::ctl
