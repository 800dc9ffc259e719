// A stranger's message: whatever parses is either refused with a sentence or keeps every promise of rpc/convert.h.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/archive.h"
#include "base/check.h"
#include "engine/event.h"
#include "gyrostat/v1/report.pb.h"
#include "model/ids.h"
#include "rpc/convert.h"
#include "rpc/render.h"

namespace gyrostat {
namespace {

void CheckRefusal(const absl::Status& status) {
  GYROSTAT_CHECK(absl::IsInvalidArgument(status));
  GYROSTAT_CHECK(!status.message().empty() && status.message().size() < 1024);
}

void CheckLedger(const model::LedgerDelta& ledger, int64_t ticks_max) {
  GYROSTAT_CHECK(ledger.layer.size() == ledger.head.size() && ledger.layer.size() == ledger.ticks.size());
  GYROSTAT_CHECK(ledger.size() <= rpc::kLayerHeadsMax);
  for (size_t i = 0; i < ledger.size(); ++i) {
    GYROSTAT_CHECK(ledger.layer[i] < model::kLayersMax && ledger.head[i] < model::kHeadsMax);
    GYROSTAT_CHECK(ledger.ticks[i] >= 0 && ledger.ticks[i] <= ticks_max);
  }
}

// What the journal keeps must come back: nothing that passes may be too large for it.
void CheckArchive(const engine::EventBody& body) {
  engine::Event event{{}, body}, back;
  GYROSTAT_CHECK(engine::Decode(engine::Encode(event), &back));
  GYROSTAT_CHECK(back.body.index() == body.index());
}

void Hello(const v1::Hello& in, model::ModelSpec* spec) {
  model::Hello out;
  if (const absl::Status status = rpc::FromWire(in, &out); !status.ok()) return CheckRefusal(status);
  GYROSTAT_CHECK(model::IsValidName(out.run) && !out.attempt.IsZero());
  GYROSTAT_CHECK(out.model.layers * out.model.heads <= rpc::kLayerHeadsMax);
  GYROSTAT_CHECK(out.model.heads == 0 || out.model.heads % out.model.KvHeads() == 0);
  GYROSTAT_CHECK(out.last_outcomes.size() <= size_t{rpc::kOutcomesMax} && out.rank < out.world_size);
  GYROSTAT_CHECK(std::isfinite(out.tau_min) && out.tau_min >= 0);
  CheckLedger(out.ledger, rpc::kReadingTicksMax);
  v1::Hello again = in;
  again.clear_model();
  rpc::ToWire(out.model, again.mutable_model());
  model::Hello back;
  GYROSTAT_CHECK(rpc::FromWire(again, &back).ok());
  CheckArchive(engine::HelloEvent{out});
  *spec = out.model;
}

void Report(const v1::Report& in, const model::ModelSpec& spec) {
  model::Report out;
  uint64_t unknown = 0;
  if (const absl::Status status = rpc::FromWire(in, spec, &out, &unknown); !status.ok()) return CheckRefusal(status);
  GYROSTAT_CHECK(out.sequence >= 1 && out.user.size() <= size_t{rpc::kUserScalarsMax});
  GYROSTAT_CHECK(unknown <= static_cast<uint64_t>(in.scalars_size() + in.arrays_size()));
  for (const model::SignalInfo& info : model::Signals())
    if (model::IsArray(info.signal)) GYROSTAT_CHECK(out.Array(info.signal).size() <= rpc::kLayerHeadsMax);
  CheckLedger(out.local_clips.applied, rpc::kDeltaTicksMax);
  CheckShapes(out, spec);
  CheckArchive(engine::ReportEvent{{}, out});
}

void Ack(const v1::Ack& in, const model::ModelSpec& spec) {
  model::Ack out;
  if (const absl::Status status = rpc::FromWire(in, spec, &out); !status.ok()) return CheckRefusal(status);
  GYROSTAT_CHECK(!out.order_id.IsZero() && out.ledger_version_before <= out.ledger_version_after);
  CheckLedger(out.applied, rpc::kDeltaTicksMax);
  CheckArchive(engine::AckEvent{{}, out});
}

}  // namespace
}  // namespace gyrostat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gyrostat::v1::ClientMessage message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  gyrostat::model::ModelSpec spec;  // Of no model: the widest bounds.
  if (message.has_hello()) gyrostat::Hello(message.hello(), &spec);
  if (message.has_report()) gyrostat::Report(message.report(), spec);
  if (message.has_ack()) gyrostat::Ack(message.ack(), spec);
  return 0;
}
