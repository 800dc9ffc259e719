// Up to 64 reports of one attempt as one blob: how the history of signals lies on disk.
//
// Column by column, each column by series (all steps of a head lie together), bit-shuffled and packed by blosc's lz4,
// so that neighbours in time compress and one signal can be read without the others. Values are kept to the last bit:
// replaying an order needs the maximum that the client reported (protocol.md §8).
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

// Packs at least one and at most kChunkReportsMax reports.
std::string PackChunk(std::span<const model::Report> reports);

// Brings all of it back. DATA_LOSS on bytes that PackChunk did not write.
absl::Status UnpackChunk(std::string_view bytes, std::vector<model::Report>* reports);

// One signal of a chunk.
struct ChunkColumn {
  std::vector<model::Step> steps;  // One per report.
  // Per report: how many values it holds; 0: not reported. A scalar holds one.
  std::vector<uint32_t> sizes;
  uint32_t width = 0;          // The largest of sizes.
  std::vector<double> values;  // Series by series: value i of report r is values[i * steps.size() + r].
};

// Reads `size` bytes at `offset` of the chunk.
using ReadChunk = std::function<absl::Status(size_t offset, size_t size, char* out)>;

// Reads one signal (kNone: the user scalar `user_name`) and no more of the chunk than that needs.
absl::StatusOr<ChunkColumn> ReadColumn(const ReadChunk& read, size_t chunk_size, model::Signal signal,
                                       const std::string& user_name);

}  // namespace gyrostat::store
