// GetSeries: what the disk has, in chunks of bounded size.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ports.h"
#include "gyrostat/v1/control.grpc.pb.h"

namespace gyrostat::rpc {

// One write at a time, each made when the one before it has gone. Owns itself: deleted in OnDone, which comes only
// after Begin, so the disk's thread may hold a plain pointer until it has called that.
class SeriesStream final : public grpc::ServerWriteReactor<v1::SeriesChunk> {
 public:
  static constexpr size_t kPointsPerChunk = 1024;  // 10 KiB or so: far below a message, far above its overhead.

  // `open` counts the streams that hold a series; it outlives this one.
  explicit SeriesStream(std::atomic<uint32_t>* open) : open_(open) { ++*open_; }

  // Sends the points, or ends with the status. Once.
  void Begin(absl::StatusOr<engine::SeriesData> series);

  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  void Next();
  void Fill();  // Adds the next points to chunk_.
  void End(const grpc::Status& status);

  std::atomic<uint32_t>* const open_;
  std::vector<engine::SeriesPoint> points_;
  size_t next_ = 0;
  v1::SeriesChunk chunk_;
};

}  // namespace gyrostat::rpc
