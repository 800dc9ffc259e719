// What people read: tables and pages of one answer of the daemon. json.h has the same for programs.
//
// Pure: terminal and time come in as arguments. Every text ends with a newline, also "there is none".
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ctl/json.h"
#include "ctl/text.h"
#include "gyrostat/v1/control.pb.h"

namespace gyrostat::ctl {

std::string RenderRuns(const v1::ListRunsResponse& runs, const Style& style, int64_t now_unix_ms);

using Findings = google::protobuf::RepeatedPtrField<v1::Finding>;
std::string RenderFindings(const Findings& findings, const Style& style);

using EpisodeList = google::protobuf::RepeatedPtrField<v1::Episode>;
std::string RenderEpisodes(const EpisodeList& episodes, const Style& style);

using Interventions = google::protobuf::RepeatedPtrField<v1::Intervention>;
std::string RenderInterventions(const Interventions& interventions, const Style& style);

// Everything about one run: `show`.
std::string RenderView(const v1::RunView& view, const Style& style, int64_t now_unix_ms);

// Where a finding is: "layer 3 head 1", "rank 2", "" for the whole model.
std::string Place(const v1::Finding& finding);

// A signal's history as one look: count, steps, range, and a sparkline.
struct SeriesPoint {
  int64_t step = 0;
  double value = 0;
};
std::string RenderSeriesSummary(const std::string& name, std::span<const SeriesPoint> points, const Style& style);

// The clip calculator's table, with a sentence for each head that is not finite or needs more than one order.
std::string RenderQkClip(double tau, const std::string& variant, std::span<const ClippedHead> heads,
                         const Style& style);

// The tables of `deepnorm` and `warmup`.
std::string RenderDeepNorm(const std::string& arch, std::span<const DeepNormStack> stacks, const Style& style);
std::string RenderWarmup(uint64_t at, uint64_t to, std::span<const WarmupStep> steps, const Style& style);

int SeverityRank(const std::string& severity);  // 0 info, 1 warning, 2 critical.
Tint TintOfSeverity(const std::string& severity);
Tint TintOfState(const std::string& state);  // live silent ended

}  // namespace gyrostat::ctl
