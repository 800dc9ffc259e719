// Findings as detectors would say them, in one line each.
#pragma once

#include <string>

#include "model/finding.h"

namespace gyrostat::diagnose {

inline model::Finding Said(const std::string& detector, model::Severity severity, model::Step begin) {
  model::Finding finding;
  finding.detector = detector;
  finding.key = 1;
  finding.severity = severity;
  finding.step_begin = finding.step_detected = begin;
  finding.message = detector + " at step " + std::to_string(begin) + ".";
  return finding;
}
inline model::Finding At(model::Finding finding, uint32_t layer) {
  finding.layer = layer;
  return finding;
}
inline model::Finding Over(model::Finding finding, model::Step end) {
  finding.step_end = end;
  finding.healed = true;
  return finding;
}

}  // namespace gyrostat::diagnose
