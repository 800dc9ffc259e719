// QK-Clip on paper: what `gyrostatctl qk-clip` shows for one layer's maxima. The textbook formula in doubles, without
// the ledger and without the bound of ln 10 on a single order; what is really applied comes from qk_clip.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/intervention.h"

namespace gyrostat::remedy {

struct ClipRow {
  uint32_t head = 0;
  double max = 0;
  std::optional<double> gamma;  // tau / max(S, tau) of this head by itself; nothing where its maximum is not finite.
  double q = 1;                 // The factor for this head's rows of W_q ...
  double k = 1;                 // ... and for its key head's rows of W_k. (0, 1].
  double q_rope = 1;            // kMla: for its rotary rows of W_q; elsewhere as q.
};

// One row per entry of `max_logits`, the query heads of one layer. `kv_heads` 0: as many. kMha needs kv_heads equal to
// the heads, kGroupMin, kQOnly and kLayerGain a divisor; kMla has a key for every head, whatever is said. Nothing, and
// a sentence in `*why`, on arguments that cannot be.
std::optional<std::vector<ClipRow>> ClipTable(const std::vector<double>& max_logits, double tau, uint32_t kv_heads,
                                              model::ClipVariant variant, std::string* why);

}  // namespace gyrostat::remedy
