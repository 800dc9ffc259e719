// Values of the model as JSON, written one way wherever gyrostat writes JSON: numbers that are not finite are the
// strings "NaN", "Infinity" and "-Infinity"; what was not measured or does not exist is null. Pure; thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "diagnose/diagnosis.h"
#include "model/finding.h"
#include "model/intervention.h"

namespace gyrostat::json {

using Value = nlohmann::ordered_json;

// One line. What is not UTF-8 is replaced, never refused.
std::string Dump(const Value& value);

Value Real(double value);

template <class T>
Value OrNull(const std::optional<T>& value) {
  return value ? Value(*value) : Value(nullptr);
}
template <class T>
Value TokenOrNull(const std::optional<T>& value) {
  return value ? Value(Token(*value)) : Value(nullptr);
}

// Appends what every place says of a finding, from "detector" to "recommend"; ids are the caller's.
void PutFinding(const model::Finding& finding, Value* out);

// A finding with its ids, an episode with its ranked causes and its page of text ("page"), and an intervention; run and
// attempt are the caller's.
Value FindingValue(const model::Finding& in);
Value EpisodeValue(const diagnose::Diagnosis& in);
Value InterventionValue(const model::Intervention& in);

}  // namespace gyrostat::json
