// An order as the trainer gets to see it: the page that gyro_order's pointers point into until its ack.
#pragma once

#include <vector>

#include "gyrostat/gyrostat.h"
#include "model/intervention.h"
#include "remedy/qk_clip.h"
#include "remedy/registers.h"

namespace gyrostat::client {

class OrderPage {
 public:
  // So that Show does not allocate.
  void Reserve(size_t heads, size_t keys);
  // A clip. Both write at most out->struct_size bytes.
  void Show(const model::Order& order, bool local, const remedy::ClipPlan& plan, gyro_order* out);
  // An order of another kind, with what its registers say before it.
  void Show(const model::Order& order, const remedy::RegisterFile& before, model::Boundary boundary, gyro_order* out);

 private:
  std::vector<gyro_head_factor> q_, k_;
  std::vector<gyro_register> registers_;
};

// An id for a local clip: its boundary, so that an ack can only mean the clip that is open.
model::OrderId LocalClipId(model::Boundary boundary);

}  // namespace gyrostat::client
