// Reads one log, as a stream: bytes in, in pieces of any size, records out.
//
// A reader never fails on bytes: what it cannot read it skips, counts and tells (RecordSink). Memory is bounded by the
// longest row. Cutting the input anywhere else gives the same records. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "logs/record.h"

namespace gyrostat::logs {

enum class Format : uint8_t {
  kAuto, kHfTrainer, kMegatron, kDeepspeed, kLlmc, kNanogpt, kTorchtitan, kFairseq, kJsonl, kJson, kCsv, kWandb,
  kTensorboard, kText, kGyrostat,
};

// In the order of --help. Token("hf-trainer") and back.
std::span<const Format> Formats();
const char* Token(Format format);
std::optional<Format> FormatOf(std::string_view token);

class Reader {
 public:
  virtual ~Reader() = default;
  virtual void Feed(std::string_view bytes) = 0;
  // No more bytes come: a last row without a newline is read, a torn one told.
  virtual void Finish() = 0;
};

// kAuto gives sniff.h's reader. `sink` must outlive the reader.
std::unique_ptr<Reader> MakeReader(Format format, RecordSink* sink);

}  // namespace gyrostat::logs
