// The thresholds and rules under which a run is judged. They are part of its recorded history (OptionsEvent,
// Run::Save): a replay judges old reports by the rules of their time, whatever the configuration says today.
#pragma once

#include "detect/catalog.h"
#include "policy/run_policy.h"

namespace gyrostat::engine {

struct RunOptions {
  detect::DetectOptions detect;
  policy::PolicyOptions policy;
  template <class Archive>
  void Fields(Archive& a) { a(detect, policy); }
};

}  // namespace gyrostat::engine
