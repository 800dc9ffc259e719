// The keys of policy/: what may be done about a run. All of them reload. Private to config/.
#pragma once

#include <vector>

#include "config/keys.h"

namespace gyrostat::config {

void AppendPolicyKeys(std::vector<Key>* keys);

}  // namespace gyrostat::config
