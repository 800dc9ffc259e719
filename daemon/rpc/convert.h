// From the wire: the single place where a client's words are judged. What comes out of here is safe for every other
// room: bounded sizes, numbers in range, valid names, ids of the right length, parallel arrays of one length.
//
// A refusal is INVALID_ARGUMENT with "FIELD is SEEN, wanted WANTED". Numbers and tokens of a newer client (signals,
// kinds, spec tokens) are not errors: they are skipped or become kUnknown. A value that is not finite is data, never an
// error, where a signal is measured. proto/README.md has the rules.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ports.h"
#include "gyrostat/v1/control.pb.h"
#include "gyrostat/v1/report.pb.h"
#include "model/intervention.h"
#include "model/report.h"
#include "policy/proposal.h"

namespace gyrostat::rpc {

inline constexpr uint32_t kProtocolVersion = 1;

// Heads of one model. 512 x 512, sixteen times 128 x 128: every array of a report and a whole ledger then fit into one
// message of kMessageBytesMax.
inline constexpr uint32_t kLayerHeadsMax = 1u << 18;
inline constexpr size_t kMessageBytesMax = size_t{4} << 20;

// Steps and counts stay exact in a double and their sums far from overflow.
inline constexpr int64_t kStepMax = int64_t{1} << 53;
inline constexpr uint64_t kCountMax = uint64_t{1} << 53;

// What one boundary may add to a head (a thousand nats, where one clip is at most ln 10), and what an odometer may
// show.
inline constexpr int64_t kDeltaTicksMax = int64_t{1} << 30;
inline constexpr int64_t kReadingTicksMax = int64_t{1} << 50;

// Rates, scales, boundaries below 2^24, norms: none comes near.
inline constexpr double kRegisterValueMax = 1e30;

inline constexpr int kOutcomesMax = 256;
inline constexpr int kUserScalarsMax = 64;
inline constexpr uint32_t kWorldSizeMax = 1u << 24;
inline constexpr uint32_t kLagMax = 64;

absl::Status FromWire(const v1::Hello& in, model::Hello* out);

// `spec` is the hello's. `unknown_signals` grows by the numbers that were skipped.
absl::Status FromWire(const v1::Report& in, const model::ModelSpec& spec, model::Report* out,
                      uint64_t* unknown_signals);

absl::Status FromWire(const v1::Ack& in, const model::ModelSpec& spec, model::Ack* out);

// A person's wish; INVALID_ARGUMENT where no job could take it. Author and reason are the caller's to clean.
absl::StatusOr<policy::Proposal> FromWire(const v1::ProposeRequest& in);

// Nothing where the mode is unspecified or unknown.
std::optional<model::Mode> FromWire(v1::Mode in);

absl::StatusOr<engine::SeriesQuery> FromWire(const v1::GetSeriesRequest& in);
absl::StatusOr<engine::ReportQuery> FromWire(const v1::ExportRequest& in);

// INVALID_ARGUMENT when `run` cannot be the name of a run.
absl::Status CheckRunName(const std::string& field, const std::string& run);

}  // namespace gyrostat::rpc
