// Why nothing arrives: facts about this machine and the daemon in, a verdict with advice for each out.
//
// Pure; doctor_facts.h gathers the facts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ctl/text.h"
#include "gyrostat/v1/control.pb.h"

namespace gyrostat::ctl {

enum class Verdict { kOk, kWarn, kFail };

struct Check {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string seen;    // One line: what is so.
  std::string advice;  // What to do; empty where ok.
};

struct DoctorFacts {
  std::string address;  // The daemon was sought here.
  absl::StatusOr<v1::GetStatusResponse> status = absl::UnknownError("not asked");
  absl::Status health;  // Of the gRPC health service.

  struct Http {
    int code = 0;        // 0: no answer, see `text`.
    std::string text;    // The body, or why there is none.
  };
  std::optional<Http> readyz;  // Nothing: no HTTP address is known.

  // DATA_DIR/endpoints.json: where the daemon of that directory listens; empty: not readable.
  std::string endpoints_file, endpoints_grpc;

  struct DataDir {
    std::string path, error;  // `error` not empty: it cannot be looked at.
    uint32_t mode = 0;        // Permission bits.
    uint64_t bytes_free = 0, bytes_total = 0;
  };
  std::optional<DataDir> data_dir;  // Nothing: the daemon is on another machine, or none is known.

  std::string library, library_version, library_error;  // libgyrostat.so as the loader finds it.
  std::vector<std::pair<std::string, std::string>> environment;  // GYROSTAT_*, sorted.
  std::string python, torch;  // Versions; empty: not found.
  int64_t now_unix_ms = 0;
};

std::vector<Check> Judge(const DoctorFacts& facts);

// A line for each check and a closing sentence.
std::string RenderChecks(const std::vector<Check>& checks, const Style& style);
std::string Json(const Check& check);

bool AnyFailed(const std::vector<Check>& checks);
// kUnreachable where no gyrostatd answered, else kRefused where a check failed.
int ExitCode(const DoctorFacts& facts, const std::vector<Check>& checks);

}  // namespace gyrostat::ctl
