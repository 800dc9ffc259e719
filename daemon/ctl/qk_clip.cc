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

std::string Rows(const std::string& weight, uint64_t first, uint64_t count) {
  return weight + " rows " + std::to_string(first) + ".." + std::to_string(first + count - 1);
}

// DeepSeek's layout: q_b_proj (q_proj without a query latent) holds each head's nope and rope rows, kv_b_proj its nope
// key and its value rows; kv_a_proj_with_mqa makes the shared rotary key, which no clip touches.
void NameRows(const MlaWidths& mla, ClippedHead* head) {
  if (mla.nope == 0) return;
  const uint64_t q = uint64_t{head->head} * (mla.nope + mla.rope), k = uint64_t{head->head} * (mla.nope + mla.value);
  head->rows.emplace_back(Rows("q_b_proj", q, mla.nope), head->q);
  if (mla.rope > 0) head->rows.emplace_back(Rows("q_b_proj", q + mla.nope, mla.rope), *head->q_rope);
  head->rows.emplace_back(Rows("kv_b_proj", k, mla.nope), head->k);
}

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
  for (const remedy::ClipRow& row : *rows) {
    heads.push_back({.head = row.head, .max = row.max, .gamma = AboveZero(row.gamma.value_or(1)),
                     .q = AboveZero(row.q), .k = AboveZero(row.k), .q_rope = {}});
    if (variant != model::ClipVariant::kMla) continue;
    heads.back().q_rope = AboveZero(row.q_rope);
    NameRows(request.mla, &heads.back());
  }
  if (request.json) console.out << JsonQkClip(request.tau, model::Token(variant), heads) << "\n";
  else console.out << RenderQkClip(request.tau, model::Token(variant), heads, console.style);
  return kDone;
}

}  // namespace gyrostat::ctl
