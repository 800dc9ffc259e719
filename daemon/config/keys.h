// The declaration of every key of the configuration file. Private to config/.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/yaml_reader.h"

namespace gyrostat::config {

// When a changed value takes effect.
enum class Change { kReload, kRestart };

struct Key {
  std::string name;         // "policy.qk_clip.tau"
  std::string description;  // Sentences.
  std::string accepted;     // "a number from 1 to 1000000"
  Change change;
  std::function<bool(const Entry&, Config*)> set;  // False: not accepted, the config is unchanged.
  std::function<std::string(const Config&)> show;  // As YAML would have it.
  // Text of its own about a value that was refused; empty: "saw …, accepted: …".
  std::function<std::string(const Entry&)> explain;
  // Of a list of maps: begins another item. The keys NAME[].x are then about the last one.
  std::function<void(Config*)> add = nullptr;
};

// A rule between two keys: `name` must not be above `limit`.
struct Order {
  std::string name, limit;
  std::function<bool(const Config&)> holds;
};

// In the order of the default file.
const std::vector<Key>& Keys();
const std::vector<Order>& Orders();

}  // namespace gyrostat::config
