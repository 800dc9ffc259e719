// What gyrostatd is told by its file: YAML → the options of every room. No room knows that YAML exists.
//
// Every key is optional. Each is declared once (keys.h) with its name, meaning, default, range and whether it can be
// changed while the daemon runs; parser, complaints and the commented default file all come from that declaration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "engine/engine.h"
#include "notify/webhook.h"
#include "rpc/server.h"
#include "store/store.h"
#include "telemetry/metrics.h"
#include "telemetry/remote_write.h"
#include "web/server.h"

namespace gyrostat::config {

struct Config {
  std::string http_listen = "127.0.0.1:7432";
  std::string data_dir;  // Empty: DefaultDataDir().
  base::LogLevel log_level = base::LogLevel::kInfo;
  engine::EngineOptions engine;
  store::StoreOptions store;  // Its data_dir is unused: the one above counts.
  rpc::ServerOptions rpc;
  telemetry::MetricsOptions telemetry;
  telemetry::RemoteWriteOptions remote_write;
  notify::NotifyOptions notify;
  web::ServerOptions web;
};

// Reads a file. NOT_FOUND or INVALID_ARGUMENT with one line for each problem, all of them:
// "FILE:LINE: key: saw this, accepted: that".
absl::StatusOr<Config> LoadFile(const std::string& path);

// The same for text that came from `file`.
absl::StatusOr<Config> Parse(std::string_view text, const std::string& file);

// Sets one key as a file would. INVALID_ARGUMENT, "ORIGIN: saw this, accepted is that", leaves the config unchanged.
absl::Status Set(const std::string& key, const std::string& text, const std::string& origin, Config* config);

// Every key with its default, commented: what --print-default-config shows and deploy/gyrostat.yaml is. Parses to the
// defaults.
std::string DefaultYaml();

// Keys that differ between the two and take effect only after a restart.
std::vector<std::string> KeysNeedingRestart(const Config& running, const Config& wanted);

// $XDG_STATE_HOME/gyrostat, else $HOME/.local/state/gyrostat; for root, and where there is neither, /var/lib/gyrostat.
std::string DefaultDataDir();

}  // namespace gyrostat::config
