// The keys of detect/: thresholds and windows of each detector, whether it speaks, and how loud. All of them reload.
// Private to config/.
#pragma once

#include <vector>

#include "config/keys.h"

namespace gyrostat::config {

void AppendDetectKeys(std::vector<Key>* keys);
void AppendDetectOrders(std::vector<Order>* orders);

}  // namespace gyrostat::config
