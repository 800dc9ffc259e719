// Other tools' training logs → reports. One file per format; everything streams, so a log may be larger than memory.
//
// A reader turns lines or records into rows for a Sink and never judges them: the same report reaches the same detectors as
// live. What it cannot use it counts (skipped rows, warnings), never hides. Not thread-safe; files may be read in parallel by
// readers of their own. Any bytes are legal input: a bad file is a Status that names file, line and what was expected.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model/model_spec.h"
#include "model/report.h"

namespace gyrostat::logs {

enum class Format : uint8_t {
  kAuto, kHfTrainer, kMegatron, kDeepspeed, kLlmc, kNanogpt, kTorchtitan, kFairseq, kJsonl, kJson, kCsv, kWandb,
  kTensorboard, kText, kGyrostat,
};
const char* Token(Format format);                       // As --format spells it.
std::optional<Format> FormatOf(std::string_view token);

struct ReadOptions {
  Format format = Format::kAuto;
  std::string run_column;  // Empty: run_id or run where there is one.
  std::vector<std::pair<std::string, std::string>> map;  // signal name → column name, as --map gives them.
  std::function<void(uint64_t bytes_read, uint64_t bytes_total)> progress;  // May be null; called now and then.
};

// Where rows go. Calls come in the order of the file.
class Sink {
 public:
  virtual ~Sink() = default;
  // Before the first row of a run, at most once: what the file says about it. `run` is the file's base name where it
  // names none.
  virtual void OnRun(const std::string& run, const model::ModelSpec& spec, const model::AttnLogitInfo& attn_logit) = 0;
  // One step. Only step, scalars, arrays, user values and attn_logit_kind are set. A step that repeats or goes back is
  // passed on as it is: whoever judges opens a new attempt.
  virtual void OnRow(const std::string& run, const model::Report& report) = 0;
  // A row that should have been one and is lost. `line` counts from 1 (records for binary formats).
  virtual void OnSkipped(uint64_t line, std::string_view why) = 0;
  // Something a person should know, e.g. "grad_norm -1 means not measured (DeepSpeed)". Each text once.
  virtual void OnWarning(const std::string& text) = 0;
};

// The format that the beginning of a file looks like, or kAuto when nothing fits. `head` is its first 64 KiB,
// decompressed; `name` its file name.
Format Guess(std::string_view name, std::string_view head);

// Reads one file (".gz" accepted) to its end, or until an error: rows before it have been passed on.
// NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (not this format; names line and what was expected), DATA_LOSS (cut short).
absl::Status ReadFile(const std::string& path, const ReadOptions& options, Sink* sink);

}  // namespace gyrostat::logs
