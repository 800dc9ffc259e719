// absl::Status as gRPC's: the codes are the same numbers.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "base/text.h"

namespace gyrostat::rpc {

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // The text travels as a header: far below the 8 KiB that a peer need take.
  constexpr size_t kTextBytesMax = 2048;
  const absl::string_view text = status.message();
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      base::CleanText({text.data(), text.size()}, kTextBytesMax));
}

}  // namespace gyrostat::rpc
