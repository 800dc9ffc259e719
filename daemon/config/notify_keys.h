// The keys of notify/: who is told, and of what. All of them reload. Private to config/.
#pragma once

#include <string>
#include <vector>

#include "config/keys.h"

namespace gyrostat::config {

void AppendNotifyKeys(std::vector<Key>* keys);

// What is wrong with webhooks as a whole: each is {path of the webhook or the list, what}.
struct Fault {
  std::string path, text;
};
std::vector<Fault> NotifyFaults(const Config& config);

}  // namespace gyrostat::config
