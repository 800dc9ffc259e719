// How others find a running daemon: DATA_DIR/endpoints.json.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace gyrostat::service {

struct Endpoints {
  std::string grpc, http;  // As dialled: HOST:PORT, or unix:PATH.
};

// Replaces the file atomically: a reader sees the old one or the new one, never half of one.
absl::Status WriteEndpoints(const std::string& data_dir, const Endpoints& endpoints);
// Removes it, so that nobody dials a daemon that has gone. No file is fine.
void RemoveEndpoints(const std::string& data_dir);

}  // namespace gyrostat::service
