#include "client/src/state.h"

#include "base/archive.h"
#include "base/bytes.h"
#include "client/src/actuator.h"

namespace gyrostat::client {
namespace {

constexpr uint32_t kMagic = 0x53595247;  // "GRYS" in the file.
constexpr uint16_t kFormat = 3;

// FNV-1a: finds a torn or overwritten checkpoint; nobody forges one against himself.
uint64_t Checksum(std::string_view bytes) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : bytes) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}

struct Contents {
  uint32_t magic = kMagic;
  uint16_t format = kFormat;
  model::AttemptId attempt;  // Who wrote it, and when; for people.
  uint32_t epoch = 0;
  model::Boundary boundary = 0;
  uint32_t layers = 0, heads = 0;
  uint64_t ledger_version = 0;
  model::LedgerDelta ledger;
  std::vector<model::RegisterReading> registers;
  remedy::LrEnvelope envelope;
  std::vector<std::pair<model::OrderId, model::AckOutcome>> outcomes;

  template <class Archive>
  void Fields(Archive& a) {
    a(magic, format);
    if (magic != kMagic || format != kFormat) return;
    a(attempt, epoch, boundary, layers, heads, ledger_version, ledger, registers, envelope, outcomes);
  }
};

}  // namespace

std::string SaveState(const model::AttemptId& attempt, uint32_t epoch, model::Boundary boundary,
                      const remedy::ClipLedger& ledger,
                      const std::vector<std::pair<model::OrderId, model::AckOutcome>>& outcomes,
                      const JobRegisters& registers) {
  Contents contents;
  contents.attempt = attempt;
  contents.epoch = epoch;
  contents.boundary = boundary;
  contents.layers = ledger.layers();
  contents.heads = ledger.heads();
  contents.ledger_version = ledger.version();
  contents.ledger = ledger.Sparse();
  contents.outcomes = outcomes;
  contents.registers = registers.file().Saved();
  contents.envelope = registers.envelope();
  base::ByteWriter writer;
  base::SaveTo(&writer, contents);
  writer.Put(Checksum(writer.bytes()));
  return writer.Take();
}

std::unique_ptr<RestoredState> LoadState(std::string_view bytes, uint32_t layers, uint32_t heads, std::string* error) {
  const auto fail = [error](std::string why) {
    *error = std::move(why);
    return nullptr;
  };
  base::ByteReader reader(bytes);
  Contents contents;
  const bool read = base::LoadFrom(&reader, &contents);
  if (read && contents.magic != kMagic) return fail("the state does not begin as a state of gyrostat does");
  if (read && contents.format != kFormat)
    return fail("the state has format " + std::to_string(contents.format) + ", wanted " + std::to_string(kFormat));
  const auto checksum = reader.Get<uint64_t>();
  if (!reader.ok() || !reader.AtEnd() || checksum != Checksum(bytes.substr(0, bytes.size() - sizeof(checksum))))
    return fail("the state of " + std::to_string(bytes.size()) + " bytes is cut or damaged");
  if (contents.layers != layers || contents.heads != heads)
    return fail("the state is of " + std::to_string(contents.layers) + " layers and " + std::to_string(contents.heads) +
                " heads, the model has " + std::to_string(layers) + " and " + std::to_string(heads));
  if (contents.outcomes.size() > kOutcomesKept)
    return fail("the state holds " + std::to_string(contents.outcomes.size()) + " outcomes, wanted at most 256");
  if (contents.registers.size() > remedy::kRegistersMax)
    return fail("the state holds " + std::to_string(contents.registers.size()) + " registers, wanted at most " +
                std::to_string(remedy::kRegistersMax));
  auto state = std::make_unique<RestoredState>();
  state->boundary = contents.boundary;
  state->registers = std::move(contents.registers);
  state->envelope = std::move(contents.envelope);
  state->ledger_version = contents.ledger_version;
  state->ledger = std::move(contents.ledger);
  state->outcomes = std::move(contents.outcomes);
  return state;
}

}  // namespace gyrostat::client
