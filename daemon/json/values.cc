#include "json/values.h"

#include <cmath>

#include "model/report.h"
#include "model/signal.h"

namespace gyrostat::json {

std::string Dump(const Value& value) { return value.dump(-1, ' ', false, Value::error_handler_t::replace); }

Value Real(double value) {
  if (model::IsAbsent(value)) return nullptr;
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

void PutFinding(const model::Finding& finding, Value* out) {
  Value& o = *out;
  o["detector"] = finding.detector;
  o["severity"] = model::Token(finding.severity);
  o["signal"] = finding.signal == model::Signal::kNone ? Value(nullptr)
                                                       : Value(std::string(model::SignalName(finding.signal)));
  o["layer"] = OrNull(finding.layer);
  o["head"] = OrNull(finding.head);
  o["rank"] = OrNull(finding.rank);
  o["step_begin"] = finding.step_begin;
  o["step_detected"] = finding.step_detected;
  o["step_end"] = OrNull(finding.step_end);
  o["healed"] = OrNull(finding.healed);
  o["value"] = Real(finding.value);
  o["expected"] = Real(finding.expected);
  o["message"] = finding.message;
  o["recommend"] = TokenOrNull(finding.recommend);
}

}  // namespace gyrostat::json
