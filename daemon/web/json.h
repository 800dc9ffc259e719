// What the API says, as JSON text. Fields are named as those of `gyrostatctl --json` where they are the same.
//
// Numbers that are not finite are the strings "NaN", "Infinity", "-Infinity"; what was not measured is null. Arrays by
// layer and head are base64 of little-endian float32, layer-major: -FLT_MAX is "not measured", NaN is NaN. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ports.h"
#include "engine/views.h"
#include "web/http.h"
#include "web/past.h"

namespace gyrostat::web {

// A stranger's word as a sentence names it: without control characters, at most 64 bytes, in double quotes.
std::string Quoted(std::string_view text);
// {"error": sentence}
Reply JsonError(int status, std::string_view sentence);
Reply JsonReply(std::string body);

// {"version", "not_ready": sentence or null, "runs": [summary…]}
std::string RunsJson(const std::string& version, const std::string& not_ready_reason,
                     const std::vector<std::shared_ptr<const engine::RunState>>& runs);

// What is kept of a run, the newest of each last.
struct Kept {
  std::vector<engine::History::FindingRow> findings;
  std::vector<engine::History::EpisodeRow> episodes;
  std::vector<engine::History::InterventionRow> interventions;
};
// Summary, scalars, model, allow, tau, worst heads, findings, episodes with their page, interventions, decisions.
// `*_left_out` tell how many older rows are not shown: at most 500 findings, 50 episodes and 200 interventions are.
std::string RunJson(const engine::RunState& run, const Kept& kept);

std::string InterventionJson(const engine::RunState& run, const engine::History::InterventionRow& row);

// One event of the stream: summary, scalars, the arrays attn_logit_max, hidden_ms and layer_grad_norm of the newest
// report, and `revision`, which changes when RunJson says something new besides numbers.
std::string EventJson(const engine::RunState& run);

struct SeriesText {
  std::string signal;
  size_t points_max = 0;  // What was asked for; the store has thinned a longer series.
  std::span<const engine::SeriesPoint> points;
  engine::HistoryNotes notes = {};
};
// {"signal", "points_max", "points": [[step, value]…], "history": {"reduced": [{"from_step", "to_step",
// "resolution"}…], "chunks_damaged", "reports_dropped"}}: what retention has left of it.
std::string SeriesJson(const SeriesText& series);

// {"signal", "step", "layers", "heads", "values", "resolution"} of one report. Empty where it does not hold the signal.
std::string ArrayJson(const engine::RunState& run, const StoredReport& stored, model::Signal signal);

// {"signal", "layers", "sampled", "resolution", "steps": [step…], "values": column by column}
std::string LayerMapJson(const std::string& signal, const LayerMap& map);

std::string Base64(std::span<const float> values);

}  // namespace gyrostat::web
