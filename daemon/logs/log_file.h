// One log on disk → rows. Gzip is unpacked on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "logs/assembler.h"
#include "logs/keys.h"
#include "logs/reader.h"

namespace gyrostat::logs {

struct ReadOptions {
  Format format = Format::kAuto;
  KeyOptions keys;
};

struct ReadOutcome {
  std::string error;  // Not empty: what stands in the way, after "FILE:LINE: " or "FILE: ". Rows may have come before.
  Format format = Format::kAuto;  // As found.
  Losses losses;
};

// Called from time to time with how much of the file has been read.
using Progress = std::function<void(uint64_t bytes_done, uint64_t bytes_total)>;

// Reads the whole file, blocking. Rows go to `sink` as they are read. "-" is the standard input.
ReadOutcome ReadLog(const std::string& path, const ReadOptions& options, RowSink* sink, const Progress& progress);

// The last part of a path.
std::string BaseName(const std::string& path);

}  // namespace gyrostat::logs
