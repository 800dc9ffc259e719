#include "json/values.h"

#include <cmath>

#include "model/report.h"
#include "model/signal.h"

namespace gyrostat::json {
namespace {

Value SignalOrNull(model::Signal signal) {
  return signal == model::Signal::kNone ? Value(nullptr) : Value(std::string(model::SignalName(signal)));
}

}  // namespace

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
  o["signal"] = SignalOrNull(finding.signal);
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

Value FindingValue(const model::Finding& in) {
  Value out;
  out["id"] = in.id;
  out["episode"] = in.episode != 0 ? Value(in.episode) : Value(nullptr);
  PutFinding(in, &out);
  return out;
}

Value EpisodeValue(const diagnose::Diagnosis& in) {
  Value out;
  out["id"] = in.episode;
  out["closed"] = in.closed;
  out["findings"] = in.findings;
  out["severity"] = model::Token(in.severity);
  out["cause"] = in.ranked.empty() ? Value(nullptr) : Value(diagnose::Token(in.ranked.front().cause));
  out["causes"] = Value::array();
  for (const diagnose::Candidate& each : in.ranked)
    out["causes"].push_back({{"cause", diagnose::Token(each.cause)}, {"weight", each.weight}});
  out["step_begin"] = in.step_begin;
  out["step_end"] = OrNull(in.step_end);
  out["healed"] = OrNull(in.healed);
  out["detector"] = in.detector;
  out["signal"] = SignalOrNull(in.signal);
  out["layer"] = OrNull(in.layer);
  out["head"] = OrNull(in.head);
  out["rank"] = OrNull(in.rank);
  out["first_step"] = in.first_step;
  out["common_mode"] = in.common_mode;
  out["recommend"] = TokenOrNull(in.recommend);
  out["headline"] = in.headline;
  out["evidence"] = in.evidence;
  out["likely"] = in.likely.empty() ? Value(nullptr) : Value(in.likely);
  out["advice"] = in.advice;
  out["less_likely"] = in.LessLikely();
  out["page"] = in.Text();
  return out;
}

Value InterventionValue(const model::Intervention& in) {
  Value out;
  out["id"] = in.id;
  out["kind"] = model::Token(in.kind);
  out["state"] = model::Token(in.state);
  out["outcome"] = TokenOrNull(in.outcome);
  out["mode"] = model::Token(in.mode);
  out["reason"] = in.reason;
  out["author"] = in.author;
  out["step_proposed"] = in.step_proposed;
  out["step_applied"] = OrNull(in.step_applied);
  out["orders"] = in.orders;
  out["orders_applied"] = in.orders_applied;
  out["heads"] = in.heads;
  out["median_delay_steps"] = in.median_delay_boundaries ? Real(*in.median_delay_boundaries) : Value(nullptr);
  return out;
}

}  // namespace gyrostat::json
