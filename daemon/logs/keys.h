// What a name in a log means: one table for all formats, and for --map.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/model_spec.h"
#include "model/signal.h"

namespace gyrostat::logs {

struct Meaning {
  enum class Kind : uint8_t { kNothing, kStep, kSignal, kRun, kSplit };
  Kind kind = Kind::kNothing;
  model::Signal signal = model::Signal::kNone;
  // Among names of the same thing the lowest wins: `loss` before `train/loss`.
  uint8_t rank = 0;
  std::optional<uint32_t> layer, head;  // Of a name that is one cell of an array: "logits/layer5/max_p95".
  model::LogitKind logit_kind = model::LogitKind::kUnknown;  // kSampledLower for percentiles.
};

// One --map: `signal` is a name of design.md §4 or "step"; `column` is a name as the file writes it, where {layer} and
// {head} (or the first and second *) stand for numbers.
struct Mapping {
  std::string signal, column;
};

// "signal=column" → a Mapping. Nothing where there is no such signal; `*error` then lists those there are.
std::optional<Mapping> ParseMapping(const std::string& text, std::string* error);

struct KeyOptions {
  std::vector<Mapping> map;  // What is mapped by hand is looked for under no other name.
  std::string run_column;    // Empty: run_id, else run.
};

// Not thread-safe: it remembers what it was asked.
class KeyMap {
 public:
  explicit KeyMap(KeyOptions options) : options_(std::move(options)) {}
  const Meaning& Find(const std::string& key);
  // Whether `key` is a --map column that does not follow any rule of ours: a reader must not overlook it.
  const KeyOptions& options() const { return options_; }

 private:
  Meaning Work(std::string_view key) const;
  bool ByHand(model::Signal signal) const;

  KeyOptions options_;
  std::unordered_map<std::string, Meaning> known_;
};

// Lower case, with _ for everything between words: "lm loss" and "train/LM-loss" are lm_loss and train_lm_loss.
std::string Normalised(std::string_view key);

}  // namespace gyrostat::logs
