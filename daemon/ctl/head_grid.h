// Layers against heads in a terminal: one character cell for each block of heads, coloured by the block's largest
// attention logit. (heat_map.h draws the same for a page.)
//
// Layers run down, heads across, as in the matrix that a report has. What does not fit is taken together in blocks of
// equal size, each shown by its largest value, so no head over tau is lost. Colours are 8 of the 256 that nearly all
// terminals have, from dark to bright along viridis, which the colour-blind can read too; without colour a ramp of
// characters stands in. What must not depend on colour is a mark: ! over tau, x not finite, . not measured.
//
// Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ctl/text.h"

namespace gyrostat::ctl {

// The values of layers x heads, layers outermost; -FLT_MAX where a head was not measured.
struct HeadGrid {
  size_t layers = 0;
  std::span<const float> values;  // A multiple of `layers`.
  double tau = 0;                 // 0: none, nothing is marked.

  size_t heads() const { return layers == 0 ? 0 : values.size() / layers; }
  bool empty() const { return layers == 0 || values.empty() || values.size() % layers != 0; }
};

// How many lines the picture would take at most: two of words and one for each layer. 0 for an empty grid.
size_t GridRowsWanted(const HeadGrid& grid);

// Lines without a newline, none wider than style.columns (0: 80), at most `rows` of them: a heading that tells the
// shape and, where heads are taken together, the scale; the blocks; a key that tells the colours' range, tau and the
// worst head. Lines may hold escape sequences, which take no column, where the style has colour. Empty for an empty
// grid, below 4 rows, and where no block fits beside its layer's name.
std::vector<std::string> DrawGrid(const Style& style, const HeadGrid& grid, size_t rows);

}  // namespace gyrostat::ctl
