// gyrostatd as an object: opens the store, brings runs back, serves, reloads, drains. Wires the rooms together; knows
// all of them and nothing of flags and signals.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "config/config.h"
#include "service/endpoints.h"

namespace gyrostat::service {

// Used from one thread.
class Service {
 public:
  // Serves when it returns. Errors say which part could not start and why; nothing is left running then.
  static absl::StatusOr<std::unique_ptr<Service>> Start(const config::Config& config, const std::string& version,
                                                        const base::Clock* clock);
  ~Service();  // Drains.

  const Endpoints& endpoints() const;

  // Takes over what can be changed while running. An error (a file with mistakes) is logged and changes nothing.
  void Reload(const absl::StatusOr<config::Config>& config);

  // Takes nothing new, makes durable what was taken, tells the jobs, closes. At most kDrainMax if the disk writes.
  // Idempotent.
  void Drain();

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A supervisor that waits longer than this before SIGKILL never cuts a drain short.
inline constexpr base::Milliseconds kDrainMax{5000};

}  // namespace gyrostat::service
