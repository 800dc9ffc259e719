// The keys of policy/ and detect/: how runs are judged and what may be done about it. All of them reload. Private to
// config/.
#pragma once

#include <vector>

#include "config/keys.h"

namespace gyrostat::config {

void AppendPolicyKeys(std::vector<Key>* keys);
void AppendDetectKeys(std::vector<Key>* keys);
void AppendDetectOrders(std::vector<Order>* orders);

}  // namespace gyrostat::config
