// The daemon as the commands see it. grpc_control.h is the real one; tests use a fake.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyrostat/v1/control.pb.h"

namespace gyrostat::ctl {

// Every call but Export and Watch ends within a deadline. UNAVAILABLE and DEADLINE_EXCEEDED mean that no daemon
// answered; any other error is the daemon's own, with its sentence. Not thread-safe.
class Control {
 public:
  virtual ~Control() = default;

  virtual absl::StatusOr<v1::ListRunsResponse> ListRuns() = 0;
  virtual absl::StatusOr<v1::GetRunResponse> GetRun(const std::string& run) = 0;
  virtual absl::StatusOr<v1::ListFindingsResponse> ListFindings(const v1::ListFindingsRequest& request) = 0;
  virtual absl::StatusOr<v1::ListEpisodesResponse> ListEpisodes(const std::string& run) = 0;
  virtual absl::StatusOr<v1::ListInterventionsResponse> ListInterventions(const std::string& run) = 0;
  virtual absl::StatusOr<v1::ApproveResponse> Approve(const v1::ApproveRequest& request) = 0;
  virtual absl::StatusOr<v1::RejectResponse> Reject(const v1::RejectRequest& request) = 0;
  virtual absl::StatusOr<v1::ProposeResponse> Propose(const v1::ProposeRequest& request) = 0;
  virtual absl::StatusOr<v1::SetModeResponse> SetMode(const v1::SetModeRequest& request) = 0;
  virtual absl::StatusOr<v1::GetStatusResponse> GetStatus() = 0;

  // Calls `point` for each value, in order of steps; returns what the history could not show.
  virtual absl::StatusOr<v1::HistoryNotes> GetSeries(
      const v1::GetSeriesRequest& request, const std::function<void(int64_t step, double value)>& point) = 0;

  // Calls `take` for each message until it returns false (OK) or the last has come (OK). No deadline: a run's whole
  // history may come, and whoever takes it may be slow.
  virtual absl::Status Export(const v1::ExportRequest& request,
                              const std::function<bool(const v1::ExportChunk&)>& take) = 0;

  // Calls `view` for each update until it returns false (OK) or the stream breaks (never OK).
  virtual absl::Status Watch(const v1::WatchRequest& request, const std::function<bool(const v1::RunView&)>& view) = 0;

  // Asks the standard gRPC health service; OK: SERVING.
  virtual absl::Status CheckHealth() = 0;

  // Blocks until there is a new connection, at most twice for `limit`. One that stands is first given `limit` to break:
  // a daemon that ends streams while it drains is not asked again and again.
  virtual bool WaitForConnection(std::chrono::milliseconds limit) = 0;
};

}  // namespace gyrostat::ctl
