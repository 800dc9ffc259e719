#include "client/src/order_page.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace gyrostat::client {
namespace {

void CopyFactors(const std::vector<remedy::HeadFactor>& from, std::vector<gyro_head_factor>* to) {
  to->clear();
  for (const remedy::HeadFactor& f : from) to->push_back({f.layer, f.head, f.factor});
}

template <size_t N>
void CopyText(std::string_view text, char (&out)[N]) {
  const size_t size = std::min(text.size(), N - 1);
  text.copy(out, size);
  out[size] = '\0';
}

gyro_order Begin(const model::Order& order) {
  gyro_order full{};
  std::memcpy(full.id, order.id.bytes.data(), sizeof(full.id));
  CopyText(model::Token(order.kind), full.kind);
  CopyText(order.intent_id, full.intent_id);
  full.basis_boundary = order.basis;
  full.expires_boundary = order.expires_boundary;
  return full;
}

void Finish(gyro_order full, gyro_order* out) {
  full.struct_size = out->struct_size;
  std::memcpy(out, &full, std::min<size_t>(out->struct_size, sizeof(full)));
}

}  // namespace

void OrderPage::Reserve(size_t heads, size_t keys) {
  q_.reserve(heads);
  k_.reserve(keys);
}

void OrderPage::Show(const model::Order& order, bool local, const remedy::ClipPlan& plan, gyro_order* out) {
  CopyFactors(plan.q, &q_);
  CopyFactors(plan.k, &k_);
  gyro_order full = Begin(order);
  full.local = local ? 1 : 0;
  full.tau = order.tau;
  full.q_count = static_cast<uint32_t>(q_.size());
  full.q = q_.data();
  full.k_count = static_cast<uint32_t>(k_.size());
  full.k = k_.data();
  Finish(full, out);
}

void OrderPage::Show(const model::Order& order, const remedy::RegisterFile& before, model::Boundary boundary,
                     gyro_order* out) {
  registers_.clear();
  for (const model::RegisterSet& set : order.sets)
    registers_.push_back({set.id, before.at(set.id).At(boundary), set.value});
  gyro_order full = Begin(order);
  full.register_count = static_cast<uint32_t>(registers_.size());
  full.registers = registers_.data();
  full.ramp = order.ramp;
  Finish(full, out);
}

model::OrderId LocalClipId(model::Boundary boundary) {
  model::OrderId id;
  std::memcpy(id.bytes.data(), "local\0\0\0", 8);
  std::memcpy(id.bytes.data() + 8, &boundary, 8);
  return id;
}

}  // namespace gyrostat::client
