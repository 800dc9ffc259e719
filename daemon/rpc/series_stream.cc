#include "rpc/series_stream.h"

#include <algorithm>
#include <utility>

#include "rpc/grpc_status.h"
#include "rpc/render.h"

namespace gyrostat::rpc {

void SeriesStream::Begin(absl::StatusOr<engine::SeriesData> series) {
  if (!series.ok()) return End(ToGrpc(series.status()));
  points_ = std::move(series->points);
  ToWire(series->notes, &chunk_);
  if (!chunk_.has_notes()) return Next();
  Fill();
  StartWrite(&chunk_);
}

void SeriesStream::Next() {
  if (next_ == points_.size()) return End(grpc::Status::OK);
  chunk_.Clear();
  Fill();
  StartWrite(&chunk_);
}

void SeriesStream::Fill() {
  const size_t end = std::min(points_.size(), next_ + kPointsPerChunk);
  for (; next_ < end; ++next_) {
    chunk_.add_step(points_[next_].step);
    chunk_.add_value(points_[next_].value);
  }
}

void SeriesStream::OnWriteDone(bool ok) {
  if (!ok) return End(grpc::Status(grpc::StatusCode::CANCELLED, "the stream broke"));
  Next();
}

// The reader hears of the end before OnDone comes, and may ask for the next series at once.
void SeriesStream::End(const grpc::Status& status) {
  points_ = {};
  --*open_;
  Finish(status);
}

void SeriesStream::OnDone() { delete this; }

}  // namespace gyrostat::rpc
