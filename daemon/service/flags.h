// gyrostatd's command line: words in, what to do out. flags.cc is the only file of the daemon that knows CLI11.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/config.h"

namespace gyrostat::service {

inline constexpr int kExitDone = 0, kExitRefused = 1, kExitUsage = 2;

enum class Task { kServe, kCheck, kListMetrics, kPrintDefaultConfig, kTestNotify };

struct Flags {
  Task task = Task::kServe;
  std::string config_file;  // Empty: defaults only.
  // These win over the file.
  std::optional<std::string> grpc_listen, http_listen, data_dir;
};

struct ParsedFlags {
  std::optional<Flags> flags;  // Nothing: print `out` and `err` and exit with `exit_code`.
  int exit_code = kExitDone;
  std::string out, err;
};

// `args` without the program's name.
ParsedFlags ParseFlags(const std::vector<std::string>& args, const std::string& version);

// The file with the flags on top, data_dir filled in. Errors are config::LoadFile's, or about a flag: "--data-dir: …".
absl::StatusOr<config::Config> LoadConfig(const Flags& flags);

}  // namespace gyrostat::service
