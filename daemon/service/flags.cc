#include "service/flags.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <sstream>

#include "absl/status/status.h"

namespace gyrostat::service {
namespace {

constexpr char kAbout[] =
    "gyrostatd watches training runs for instability and, where it may, clips runaway attention logits in the job.\n"
    "Jobs connect over gRPC (Python: gyrostat.watch(model)); people use gyrostatctl; Prometheus scrapes /metrics.";

constexpr char kExamples[] =
    "Examples:\n"
    "  gyrostatd                                   defaults: gRPC on 127.0.0.1:7431, HTTP on 127.0.0.1:7432\n"
    "  gyrostatd --print-default-config > g.yaml   every key with its default and what it means\n"
    "  gyrostatd --check --config g.yaml           say all that is wrong with a file\n"
    "  gyrostatd --test-notify --config g.yaml     post a test message to each webhook\n"
    "  gyrostatd --config g.yaml                   SIGHUP, or a change of the file, reloads policy and thresholds\n"
    "\n"
    "Once it serves it prints one line: gyrostatd ready grpc=HOST:PORT http=HOST:PORT; the same stands in\n"
    "DATA_DIR/endpoints.json. SIGTERM ends it within 5 s. Exit codes: 0 done, 1 refused or invalid, 2 usage.\n";

}  // namespace

ParsedFlags ParseFlags(const std::vector<std::string>& args, const std::string& version) {
  Flags flags;
  bool check = false, list_metrics = false, print_default_config = false, test_notify = false;
  CLI::App app(kAbout, "gyrostatd");
  app.footer(kExamples);
  app.set_version_flag("--version", "gyrostatd " + version, "Print the version and exit");
  app.add_option("--config", flags.config_file, "Configuration file (YAML)")->type_name("FILE");
  app.add_option("--grpc-listen", flags.grpc_listen, "Where jobs and gyrostatctl connect; port 0: any free one")
      ->type_name("HOST:PORT");
  app.add_option("--http-listen", flags.http_listen, "Where /metrics, /healthz and /readyz are; port 0: any free one")
      ->type_name("HOST:PORT");
  app.add_option("--data-dir", flags.data_dir, "What is kept: journal, history, endpoints.json")->type_name("DIR");
  CLI::Option* const tasks[] = {
      app.add_flag("--check", check, "Check the configuration and exit"),
      app.add_flag("--list-metrics", list_metrics, "List every metric (name, type, labels, help) and exit"),
      app.add_flag("--print-default-config", print_default_config, "Print every key with its default and exit"),
      app.add_flag("--test-notify", test_notify, "Post a test message to each webhook of the configuration and exit")};
  for (CLI::Option* const one : tasks)
    for (CLI::Option* const other : tasks)
      if (one != other) one->excludes(other);
  ParsedFlags parsed;
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());  // As CLI11 wants them.
    app.parse(reversed);
  } catch (const CLI::ParseError& e) {
    std::ostringstream out, err;
    const int code = app.exit(e, out, err);
    parsed.exit_code = code == 0 ? kExitDone : kExitUsage;
    parsed.out = out.str();
    parsed.err = err.str();
    return parsed;
  }
  if (check) flags.task = Task::kCheck;
  if (list_metrics) flags.task = Task::kListMetrics;
  if (test_notify) flags.task = Task::kTestNotify;
  if (print_default_config) flags.task = Task::kPrintDefaultConfig;
  parsed.flags = flags;
  return parsed;
}

absl::StatusOr<config::Config> LoadConfig(const Flags& flags) {
  absl::StatusOr<config::Config> config =
      flags.config_file.empty() ? config::Config{} : config::LoadFile(flags.config_file);
  if (!config.ok()) return config;
  const struct {
    const char* flag;
    const char* key;
    const std::optional<std::string>& value;
  } overrides[] = {{"--grpc-listen", "listen.grpc", flags.grpc_listen},
                   {"--http-listen", "listen.http", flags.http_listen},
                   {"--data-dir", "data_dir", flags.data_dir}};
  for (const auto& each : overrides) {
    if (!each.value) continue;
    const absl::Status set = config::Set(each.key, *each.value, each.flag, &*config);
    if (!set.ok()) return set;
  }
  if (config->data_dir.empty()) config->data_dir = config::DefaultDataDir();
  return config;
}

}  // namespace gyrostat::service
