#include "ctl/qk_clip.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "ctl/json.h"
#include "ctl/render.h"
#include "model/intervention.h"
#include "remedy/clip_table.h"

namespace gyrostat::ctl {
namespace {

model::ClipVariant VariantOf(const Request& request) {
  const bool grouped = request.kv_heads != 0 && request.kv_heads != request.logits.size();
  return model::ClipVariantOf(request.variant)
      .value_or(grouped ? model::ClipVariant::kGroupMin : model::ClipVariant::kMha);
}

// The quotient of a tiny tau and a huge maximum may underflow, and a factor of 0 would erase the head.
double AboveZero(double factor) { return std::max(factor, std::numeric_limits<double>::min()); }

}  // namespace

int QkClip(const Request& request, const Console& console) {
  const model::ClipVariant variant = VariantOf(request);
  std::string why;
  const auto rows = remedy::ClipTable(request.logits, request.tau, request.kv_heads, variant, &why);
  if (!rows) {
    console.err << "gyrostatctl: qk-clip: " << why << "\n";
    return kRefused;
  }
  std::vector<ClippedHead> heads;
  for (const remedy::ClipRow& row : *rows)
    heads.push_back({row.head, row.max, AboveZero(row.gamma.value_or(1)), AboveZero(row.q), AboveZero(row.k)});
  if (request.json) console.out << JsonQkClip(request.tau, model::Token(variant), heads) << "\n";
  else console.out << RenderQkClip(request.tau, model::Token(variant), heads, console.style);
  return kDone;
}

}  // namespace gyrostat::ctl
