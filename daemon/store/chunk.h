// Up to 64 reports of one attempt as one blob: how the history of signals lies on disk.
//
// Column by column, each column by series (all steps of a head lie together), bit-shuffled and packed by blosc's lz4,
// so that neighbours in time compress and one signal can be read without the others. Values are kept to the last bit:
// replaying an order needs the maximum that the client reported (protocol.md §8). An array of which most values are
// absent, as retention leaves it, holds only the others and where they are.
//
// Layout: head, directory, then the sections that the directory names, each packed by itself and with a CRC-32 of its
// packed bytes; the head has one of the directory. Chunks of before ("GYC1": no CRC, no times of arrival) are read too.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/report.h"
#include "model/signal.h"

namespace gyrostat::store {

inline constexpr size_t kChunkReportsMax = 64;

// Reports and, one each or none at all, when they arrived (Unix milliseconds).
struct ChunkContent {
  std::vector<model::Report> reports;
  std::vector<int64_t> arrived_unix_ms;
};

// Packs at least one and at most kChunkReportsMax reports.
std::string PackChunk(std::span<const model::Report> reports, std::span<const int64_t> arrived_unix_ms = {});

// Brings all of it back; times that were not kept are 0. DATA_LOSS on bytes that PackChunk did not write.
absl::Status UnpackChunk(std::string_view bytes, ChunkContent* content);

// One signal of a chunk.
struct ChunkColumn {
  std::vector<model::Step> steps;  // One per report.
  // Per report: how many values it holds; 0: not reported. A scalar holds one.
  std::vector<uint32_t> sizes;
  uint32_t width = 0;          // The largest of sizes.
  std::vector<double> values;  // Series by series: value i of report r is values[i * steps.size() + r].
  // Where `sparse`, `values` is empty and this has all that is not absent, in order of reports and then of indices.
  struct Kept {
    uint32_t report = 0, index = 0;
    float value = 0;
  };
  bool sparse = false;
  std::vector<Kept> kept;
};

// Reads `size` bytes at `offset` of the chunk.
using ReadChunk = std::function<absl::Status(size_t offset, size_t size, char* out)>;

// Reads one signal (kNone: the user scalar `user_name`) and no more of the chunk than that needs.
absl::StatusOr<ChunkColumn> ReadColumn(const ReadChunk& read, size_t chunk_size, model::Signal signal,
                                       const std::string& user_name);

}  // namespace gyrostat::store
