// What --json prints: one object a line, with the field names of the contract (README.md here lists them).
//
// Pure. Numbers that are not finite are the strings "NaN", "Infinity" and "-Infinity"; a value that does not exist is
// null; bytes that are not UTF-8 become U+FFFD. Field order is fixed, so that two runs can be compared with diff.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "gyrostat/v1/control.pb.h"

namespace gyrostat::ctl {

// Each without the newline.
std::string Json(const v1::RunSummary& run);
std::string Json(const v1::Finding& finding);
std::string Json(const v1::Episode& episode);
std::string Json(const v1::Intervention& intervention);
std::string Json(const v1::RunView& view);
// A header of gyrostat JSONL (design.md §8), with the attempt that begins there.
std::string JsonHeader(const std::string& run, const v1::ExportAttempt& attempt);
// What export --out tells under --json.
std::string JsonExport(const std::string& run, const std::string& file, const std::string& format, uint64_t reports,
                       uint64_t attempts);
std::string JsonPoint(int64_t step, double value);
std::string JsonMode(const std::string& run, v1::Mode mode);

// An object of strings, in the order given: what commands without numbers print.
std::string JsonStrings(std::span<const std::pair<std::string, std::string>> fields);

// One head of the clip calculator.
struct ClippedHead {
  uint32_t head = 0;
  double max = 0;    // As given.
  double gamma = 1;  // (0, 1].
  double q = 1, k = 1;
  std::optional<double> q_rope;  // Of MLA.
  // What the factors go on, as "q_b_proj rows 0..127" → factor; empty where nobody asked.
  std::vector<std::pair<std::string, double>> rows = {};
};
std::string JsonQkClip(double tau, const std::string& variant, std::span<const ClippedHead> heads);

// A stack of `deepnorm`: "encoder" or "decoder". The other one is null.
struct DeepNormStack {
  std::string name;
  double alpha = 1, beta = 1, budget = 1;
};
std::string JsonDeepNorm(const std::string& arch, std::span<const DeepNormStack> stacks);

// A step of `warmup`: the schedule's own rate, and the one with the extension.
struct WarmupStep {
  uint64_t step = 0;
  double base = 0, rate = 0;
};
std::string JsonWarmup(const std::string& kind, uint64_t at, uint64_t to, std::span<const WarmupStep> steps);

// What check-config prints; `errors` is empty for a valid file.
std::string JsonConfig(const std::string& file, std::span<const std::string> errors);

// Tokens of the wire's enumerators; "" for unspecified and for strangers.
const char* Token(v1::Mode mode);
const char* Token(v1::InterventionKind kind);
const char* Token(v1::AttnLogitInfo::Kind kind);

// 32 hex digits of an attempt's 16 bytes; "" for anything else.
std::string AttemptHex(const std::string& bytes);

}  // namespace gyrostat::ctl
