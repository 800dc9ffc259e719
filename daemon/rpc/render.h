// To the wire: orders for jobs, and what operators are shown. The other direction, where judging happens, is convert.h.
#pragma once

#include <set>
#include <string>

#include "diagnose/diagnosis.h"
#include "engine/ports.h"
#include "engine/views.h"
#include "gyrostat/v1/control.pb.h"
#include "gyrostat/v1/report.pb.h"
#include "model/finding.h"
#include "model/ids.h"
#include "model/intervention.h"

namespace gyrostat::rpc {

// An Order, or a LocalClip where clipping is local.
void ToWire(const model::Order& in, v1::DaemonMessage* out);

v1::Mode ToWire(model::Mode in);
void ToWire(const engine::RunState& in, v1::RunSummary* out);
void ToWire(const engine::RunState& in, v1::RunView* out);  // Without head_attn_logit_max.
void AddHeads(const engine::RunState& in, v1::RunView* out);  // head_attn_logit_max alone.
void ToWire(const model::Finding& in, const std::string& run, const model::AttemptId& attempt, v1::Finding* out);
void ToWire(const diagnose::Diagnosis& in, const std::string& run, const model::AttemptId& attempt, v1::Episode* out);
void ToWire(const model::Intervention& in, const std::string& run, const model::AttemptId& attempt,
            v1::Intervention* out);
void ToWire(const model::ModelSpec& in, v1::ModelSpec* out);
void ToWire(const model::Hello& in, const model::AttemptId& attempt, v1::ExportAttempt* out);
void ToWire(const engine::HistoryNotes& in, v1::SeriesChunk* out);  // Sets nothing where there is nothing to note.
// Bit for bit. Of signals and user scalars those that `names` has; all where it is empty.
void ToWire(const model::Report& in, const std::set<std::string>& names, v1::Report* out);

}  // namespace gyrostat::rpc
