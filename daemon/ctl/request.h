// What the command line asked for, as plain values. cli.h makes it, the commands read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "logs/log_file.h"

namespace gyrostat::ctl {

// Exit codes, fixed by the contract: scripts rely on them.
enum ExitCode : int {
  kDone = 0,
  kRefused = 1,  // Refused by the daemon, unreadable or invalid input, or findings asked for with --fail-on.
  kUsage = 2,
  kUnreachable = 3,
};

enum class Command {
  kRuns, kShow, kFindings, kInterventions, kApprove, kReject, kMode, kWatch, kSeries, kCheckConfig, kDoctor, kQkClip,
  kCompletion, kReplay, kCheckModel, kExport, kDeepNorm, kWarmup, kEpisodes, kPropose,
};

// What `warmup` is asked.
struct WarmupQuestion {
  std::string kind;  // A schedule's token.
  double peak = 0;
  uint64_t warmup = 0, total = 0, at = 0;  // Steps; total 0: not known.
  std::optional<uint64_t> to;
  double floor = 0.3;  // Of a notch.
  uint32_t fall = 50;
  std::vector<uint64_t> steps;  // Empty: some that show the shape.
};

// What `propose` asks for; absent: the daemon's default.
struct ProposeQuestion {
  std::string kind;  // A token of a kind.
  std::optional<int64_t> to_step, at_step;
  std::optional<double> alpha, beta, scale, max_norm;
  std::optional<uint32_t> ramp;
  std::optional<uint64_t> for_boundaries;
};

// Widths of an MLA head, to name its rows; all 0: not asked.
struct MlaWidths {
  uint32_t nope = 0, rope = 0, value = 0;
};

inline constexpr char kDefaultAddress[] = "127.0.0.1:7431";

struct Request {
  Command command = Command::kRuns;
  bool json = false;
  std::string address;     // As given or from the environment; never empty.
  std::string token_file;  // Empty: no token.

  std::string run;         // Of show, episodes, findings, interventions, watch, series, mode, propose.
  bool open_only = false;  // findings
  std::string fail_on;     // findings, replay: "", "warning" or "critical".
  std::string id;          // approve, reject
  std::string reason, author;
  bool all = false;        // mode
  std::string mode;        // "observe", "advise" or "act".
  uint32_t interval_ms = 1000;  // watch
  uint64_t count = 0;           // watch: updates before it ends; 0: for ever.
  bool once = false;            // watch: one page, printed.
  std::string signal;           // series
  std::optional<uint32_t> layer, head;
  uint32_t points = 0;  // Of a series, at most; 0: all.
  std::optional<int64_t> from_step, to_step;
  std::string file;      // check-config, check-model
  std::vector<std::string> files, rules;  // replay; rules are names that ctl/judge.h knows.
  logs::ReadOptions reading;
  bool list_findings = false;  // replay: each finding, below the diagnoses.
  std::string export_format;  // export: "jsonl" or "csv".
  std::string out;            // export; empty: the output stream.
  std::vector<std::string> signals;  // export; empty: all.
  std::string model, html, config;  // replay: files, model also a preset's name; empty: none.
  std::string data_dir;  // doctor; empty: ask the daemon.
  double tau = 0;        // qk-clip
  std::vector<double> logits;
  uint32_t kv_heads = 0;  // 0: as many as logits.
  std::string variant;    // Empty: what the shape takes.
  MlaWidths mla;
  std::string arch;  // deepnorm: encoder, decoder or encoder-decoder.
  uint64_t layers = 0, decoder_layers = 0;
  WarmupQuestion warmup;
  ProposeQuestion propose;
};

}  // namespace gyrostat::ctl
