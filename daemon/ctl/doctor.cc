#include "ctl/doctor.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ctl/json.h"
#include "ctl/request.h"
#include "model/ids.h"

namespace gyrostat::ctl {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kBytesFail = 64 * kMiB;    // Below this SQLite's log may not find room for one checkpoint.
constexpr uint64_t kBytesWarn = 1024 * kMiB;  // About a day of one large run's history.
constexpr int64_t kSkewMs = 1000;
constexpr uint32_t kWorldWritable = 0002;

// What clients and tools read; anything else with our prefix is likely a slip of the pen.
constexpr std::array<std::string_view, 9> kVariables = {
    "GYROSTAT_ADDRESS", "GYROSTAT_RUN",  "GYROSTAT_DISABLE",        "GYROSTAT_LIBRARY",      "GYROSTAT_KEEPALIVE_MS",
    "GYROSTAT_CORPUS",  "GYROSTAT_RUNS", "GYROSTAT_GRAFANA_SCHEMA", "GYROSTAT_UPDATE_GOLDEN"};

const char* VerdictToken(Verdict verdict) {
  return verdict == Verdict::kOk ? "ok" : verdict == Verdict::kWarn ? "warn" : "fail";
}

class Report {
 public:
  void Ok(std::string name, std::string seen) {
    checks_.push_back({std::move(name), Verdict::kOk, std::move(seen), ""});
  }
  void Warn(std::string name, std::string seen, std::string advice) {
    checks_.push_back({std::move(name), Verdict::kWarn, std::move(seen), std::move(advice)});
  }
  void Fail(std::string name, std::string seen, std::string advice) {
    checks_.push_back({std::move(name), Verdict::kFail, std::move(seen), std::move(advice)});
  }
  std::vector<Check> Take() { return std::move(checks_); }

 private:
  std::vector<Check> checks_;
};

// Who holds new runs below the configuration's mode; empty where `mode --all act`, or nobody, lets it have its way.
std::string Limit(const v1::GetStatusResponse& status) {
  if (status.mode_limit() != v1::OBSERVE && status.mode_limit() != v1::ADVISE) return "";
  return std::string(" (mode --all ") + Token(status.mode_limit()) + ", by " + status.mode_limit_author() +
         ", until somebody says mode --all act)";
}

void JudgeDaemon(const DoctorFacts& facts, Report* report) {
  if (!facts.status.ok()) {
    std::string advice = "Start gyrostatd, or give the right address with --address or GYROSTAT_ADDRESS.";
    if (!facts.endpoints_grpc.empty() && facts.endpoints_grpc != facts.address)
      advice = "The daemon of this data directory listens at " + facts.endpoints_grpc + ": use --address " +
               facts.endpoints_grpc + ".";
    else if (facts.endpoints_grpc.empty())
      advice += " With --data-dir DIR doctor reads from DIR/endpoints.json where it listens.";
    report->Fail("daemon", "no answer at " + facts.address + ": " + std::string(facts.status.status().message()),
                 advice);
    return;
  }
  const v1::GetStatusResponse& status = *facts.status;
  report->Ok("daemon", "answers at " + facts.address + ", " + Count(status.runs(), "run") + ", " +
                           Count(status.streams(), "stream") + ", " + Count(status.reports_total(), "report") +
                           ", new runs begin in mode " + Token(status.default_mode()) + Limit(status));
  if (status.version() == GYROSTAT_VERSION) report->Ok("version", "daemon and gyrostatctl are both " GYROSTAT_VERSION);
  else
    report->Warn("version", "daemon " + status.version() + ", gyrostatctl " GYROSTAT_VERSION,
                 "Use the gyrostatctl that came with the daemon.");
  if (status.ready()) report->Ok("ready", "the daemon takes reports");
  else
    report->Fail("ready", "not ready: " + status.not_ready_reason(), "Look into the daemon's log for the cause.");
  if (facts.health.ok()) report->Ok("grpc health", "SERVING");
  else
    report->Fail("grpc health", std::string(facts.health.message()),
                 "Something between here and the daemon does not pass gRPC on, or the daemon is shutting down.");
  if (status.journal_failures_total() > 0)
    report->Fail("journal", std::to_string(status.journal_failures_total()) + " entries could not be written",
                 "Look at the disk of " + status.data_dir() + "; the daemon's log names the error.");
  else
    report->Ok("journal", "no write failed, " + std::to_string(status.journal_queue()) + " waiting");
  if (status.reports_refused_total() > 0)
    report->Warn("reports", std::to_string(status.reports_refused_total()) + " refused",
                 "The daemon's log says why each stream was refused; wrong shapes and bad run names are common.");
  if (status.streams() == 0)
    report->Warn(
        "streams", "no job is connected",
        "In the job: is GYROSTAT_ADDRESS set, and GYROSTAT_DISABLE not? gyrostat.watch(...) tells in its log.");
  if (status.started_at_ms() > facts.now_unix_ms + kSkewMs)
    report->Warn("clock", "the daemon started " +
                              std::to_string((status.started_at_ms() - facts.now_unix_ms) / 1000) + " s in the future",
                 "Clocks differ: \"last report\" times will be wrong. Run an NTP client on both machines.");
  else
    report->Ok("clock", "daemon up since " + Rfc3339(status.started_at_ms()));
}

void JudgeHttp(const DoctorFacts& facts, Report* report) {
  if (!facts.readyz) return;
  const std::string url = "http://" + (facts.status.ok() ? facts.status->http_address() : "") + "/readyz";
  if (facts.readyz->code == 200) report->Ok("http", url + " answers 200");
  else if (facts.readyz->code == 0)
    report->Fail("http", url + ": " + facts.readyz->text,
                 "Prometheus and the page cannot reach it either; is a firewall or another network namespace between?");
  else
    report->Fail("http", url + " answers " + std::to_string(facts.readyz->code) + ": " + facts.readyz->text,
                 "The daemon is up and not ready; the line above says why.");
}

void JudgeDisk(const DoctorFacts& facts, Report* report) {
  if (!facts.data_dir) return;
  const DoctorFacts::DataDir& dir = *facts.data_dir;
  if (!dir.error.empty()) {
    report->Warn("data dir", dir.path + ": " + dir.error, "Run doctor as the daemon's user to have it looked at.");
    return;
  }
  if ((dir.mode & kWorldWritable) != 0)
    report->Warn("data dir", dir.path + " is writable by everyone",
                 "chmod o-w " + dir.path + ": anyone could change what the journal says.");
  const std::string room = std::to_string(dir.bytes_free / kMiB) + " MiB free of " +
                           std::to_string(dir.bytes_total / kMiB) + " in " + dir.path;
  if (dir.bytes_free < kBytesFail) report->Fail("disk", room, "Make room: history is lost when the disk is full.");
  else if (dir.bytes_free < kBytesWarn)
    report->Warn("disk", room, "Make room soon: a day of history takes about 1 GiB.");
  else report->Ok("disk", room);
}

void JudgeClient(const DoctorFacts& facts, Report* report) {
  if (facts.library_error.empty())
    report->Ok("client library", facts.library + ", version " + facts.library_version);
  else
    report->Warn("client library", facts.library_error,
                 "Only needed where jobs run: add its folder to LD_LIBRARY_PATH, or install it.");
  if (facts.python.empty())
    report->Warn("python", "no python3 in PATH", "Only needed where jobs run.");
  else if (facts.torch.empty())
    report->Warn("python", "python " + facts.python + ", no torch", "Only needed where PyTorch jobs run.");
  else
    report->Ok("python", "python " + facts.python + ", torch " + facts.torch);
}

void JudgeEnvironment(const DoctorFacts& facts, Report* report) {
  for (const auto& [name, value] : facts.environment) {
    const std::string seen = name + "=" + value;
    if (std::find(kVariables.begin(), kVariables.end(), name) == kVariables.end())
      report->Warn("environment", seen, "gyrostat reads no variable of this name; is it misspelt?");
    else if (name == "GYROSTAT_DISABLE" && value == "1")
      report->Warn("environment", seen, "Jobs started from this environment report nothing.");
    else if (name == "GYROSTAT_RUN" && !model::IsValidName(value))
      report->Fail("environment", seen, "A run is named with 1 to 128 of A-Z a-z 0-9 . _ : -");
    else
      report->Ok("environment", seen);
  }
}

}  // namespace

std::vector<Check> Judge(const DoctorFacts& facts) {
  Report report;
  JudgeDaemon(facts, &report);
  JudgeHttp(facts, &report);
  JudgeDisk(facts, &report);
  JudgeClient(facts, &report);
  JudgeEnvironment(facts, &report);
  return report.Take();
}

bool AnyFailed(const std::vector<Check>& checks) {
  return std::any_of(checks.begin(), checks.end(), [](const Check& each) { return each.verdict == Verdict::kFail; });
}

int ExitCode(const DoctorFacts& facts, const std::vector<Check>& checks) {
  if (!facts.status.ok()) return kUnreachable;
  return AnyFailed(checks) ? kRefused : kDone;
}

std::string Json(const Check& check) {
  const std::pair<std::string, std::string> fields[] = {
      {"check", check.name}, {"verdict", VerdictToken(check.verdict)}, {"seen", check.seen}, {"advice", check.advice}};
  return JsonStrings(fields);
}

std::string RenderChecks(const std::vector<Check>& checks, const Style& style) {
  Table table({{""}, {"CHECK"}, {"SEEN"}});
  size_t failed = 0, warned = 0;
  for (const Check& each : checks) {
    const Tint tint = each.verdict == Verdict::kOk     ? Tint::kGood
                      : each.verdict == Verdict::kWarn ? Tint::kWarn
                                                       : Tint::kBad;
    failed += each.verdict == Verdict::kFail ? 1 : 0;
    warned += each.verdict == Verdict::kWarn ? 1 : 0;
    table.Row({{VerdictToken(each.verdict), tint}, {each.name}, {each.seen}}, each.advice);
  }
  return table.Render(style) + "\n" + std::to_string(failed) + " failed, " + std::to_string(warned) + " to look at, " +
         std::to_string(checks.size() - failed - warned) + " ok.\n";
}

}  // namespace gyrostat::ctl
