// A daemon that answers from memory and remembers what it was asked.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "ctl/control.h"

namespace gyrostat::ctl {

class FakeControl : public Control {
 public:
  // Every call answers this where it is not OK.
  absl::Status failure;
  v1::ListRunsResponse runs;
  v1::GetRunResponse run;
  v1::ListFindingsResponse findings;
  v1::ListEpisodesResponse episodes;
  v1::ListInterventionsResponse interventions;
  v1::Intervention answered;
  std::vector<std::string> mode_runs;
  std::vector<std::pair<int64_t, double>> series;
  // Each stream that Watch opens sends `views` and then breaks with the first of these (UNAVAILABLE when there is
  // none).
  std::vector<v1::RunView> views;
  std::deque<absl::Status> watch_ends;
  // Export sends `chunks`, then ends with this.
  std::vector<v1::ExportChunk> chunks;
  absl::Status export_end;
  int connections = 0;

  v1::ListFindingsRequest asked_findings;
  v1::ApproveRequest approved;
  v1::RejectRequest rejected;
  v1::ProposeRequest proposed;
  v1::SetModeRequest mode;
  v1::Mode start_mode = v1::OBSERVE;  // Of new runs, once SetMode was called.
  v1::GetSeriesRequest asked_series;
  v1::HistoryNotes notes;
  v1::WatchRequest watched;
  v1::ExportRequest exported;

  absl::StatusOr<v1::ListRunsResponse> ListRuns() override { return Or(runs); }
  absl::StatusOr<v1::GetRunResponse> GetRun(const std::string&) override { return Or(run); }
  absl::StatusOr<v1::ListFindingsResponse> ListFindings(const v1::ListFindingsRequest& request) override {
    asked_findings = request;
    return Or(findings);
  }
  absl::StatusOr<v1::ListEpisodesResponse> ListEpisodes(const std::string&) override { return Or(episodes); }
  absl::StatusOr<v1::ListInterventionsResponse> ListInterventions(const std::string&) override {
    return Or(interventions);
  }
  absl::StatusOr<v1::ProposeResponse> Propose(const v1::ProposeRequest& request) override {
    proposed = request;
    v1::ProposeResponse response;
    *response.mutable_intervention() = answered;
    return Or(response);
  }
  absl::StatusOr<v1::ApproveResponse> Approve(const v1::ApproveRequest& request) override {
    approved = request;
    v1::ApproveResponse response;
    *response.mutable_intervention() = answered;
    return Or(response);
  }
  absl::StatusOr<v1::RejectResponse> Reject(const v1::RejectRequest& request) override {
    rejected = request;
    v1::RejectResponse response;
    *response.mutable_intervention() = answered;
    return Or(response);
  }
  absl::StatusOr<v1::SetModeResponse> SetMode(const v1::SetModeRequest& request) override {
    mode = request;
    v1::SetModeResponse response;
    response.set_default_mode(start_mode);
    for (const std::string& each : mode_runs) response.add_runs(each);
    return Or(response);
  }
  absl::StatusOr<v1::GetStatusResponse> GetStatus() override { return Or(v1::GetStatusResponse()); }
  absl::StatusOr<v1::HistoryNotes> GetSeries(const v1::GetSeriesRequest& request,
                                             const std::function<void(int64_t, double)>& point) override {
    asked_series = request;
    if (!failure.ok()) return failure;
    for (const auto& [step, value] : series) point(step, value);
    return notes;
  }
  absl::Status Export(const v1::ExportRequest& request,
                      const std::function<bool(const v1::ExportChunk&)>& take) override {
    exported = request;
    for (const v1::ExportChunk& each : chunks)
      if (!take(each)) return absl::OkStatus();
    return export_end;
  }
  absl::Status Watch(const v1::WatchRequest& request, const std::function<bool(const v1::RunView&)>& view) override {
    watched = request;
    if (!failure.ok()) return failure;
    for (const v1::RunView& each : views)
      if (!view(each)) return absl::OkStatus();
    if (watch_ends.empty()) return absl::UnavailableError("the stream broke");
    const absl::Status end = watch_ends.front();
    watch_ends.pop_front();
    return end;
  }
  absl::Status CheckHealth() override { return failure; }
  bool WaitForConnection(std::chrono::milliseconds) override { return ++connections > 0; }

 private:
  template <class T>
  absl::StatusOr<T> Or(const T& answer) const {
    if (!failure.ok()) return failure;
    return answer;
  }
};

}  // namespace gyrostat::ctl
