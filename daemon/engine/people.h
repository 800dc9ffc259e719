// What people say to runs, whichever way they come (gRPC, HTTP): made fit for the journal, and answered alike.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace gyrostat::engine {

// Who and why, cut to 128 and 1,024 bytes, without control characters. Nobody is "operator".
std::string AuthorOf(std::string_view name);
std::string ReasonOf(std::string_view text);

// As Engine::FindRun, but a NOT_FOUND names runs that are there, so that a slip of the pen shows itself.
absl::StatusOr<std::shared_ptr<const RunState>> FindRunFor(const Engine& engine, const std::string& run);

}  // namespace gyrostat::engine
