#include "client/src/clip_state.h"

#include <bit>
#include <cstring>

#include "client/src/transport.h"

namespace gyrostat::client {
namespace {

// splitmix64's finaliser (Steele, Lea, Flood 2014): a cheap mix whose every output bit depends on every input bit.
uint64_t Mix(uint64_t h, uint64_t word) {
  h = (h ^ word) + 0x9e3779b97f4a7c15;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

uint64_t MixBytes(uint64_t h, std::string_view bytes) {
  for (const char c : bytes) h = Mix(h, static_cast<uint8_t>(c));
  return Mix(h, bytes.size());
}

}  // namespace

uint64_t StateDigest(const Settings& settings, const model::AttemptId& attempt, uint32_t epoch,
                     const remedy::ClipLedger& ledger, const LocalRegister& local) {
  uint64_t h = MixBytes(kTransportAbi, attempt.AsBytes());
  h = Mix(h, epoch);
  h = Mix(h, ledger.version());
  for (uint32_t layer = 0; layer < ledger.layers(); ++layer)
    for (uint32_t head = 0; head < ledger.heads(); ++head)
      if (const remedy::Ticks lambda = ledger.At(layer, head); lambda != 0)
        h = Mix(Mix(h, uint64_t{layer} << 32 | head), static_cast<uint64_t>(lambda));
  h = Mix(h, std::bit_cast<uint64_t>(local.tau));
  h = Mix(h, static_cast<uint64_t>(local.variant));
  h = Mix(h, std::bit_cast<uint64_t>(local.split));
  for (const std::string& kind : settings.allow) h = MixBytes(h, kind);
  return Mix(h, std::bit_cast<uint64_t>(settings.tau_min));
}

void LocalEntries(std::span<const float> maxima, const LocalRegister& local, bool master_fp32,
                  const remedy::ClipLedger& ledger, std::vector<model::ClipEntry>* entries) {
  entries->clear();
  if (!local.on() || maxima.size() != size_t{ledger.layers()} * ledger.heads()) return;
  const double threshold = remedy::ClipThreshold(local.tau, local.variant, master_fp32);
  for (size_t i = 0; i < maxima.size(); ++i) {
    if (!(maxima[i] > threshold)) continue;  // Also what is NaN or absent.
    const auto layer = static_cast<uint32_t>(i / ledger.heads()), head = static_cast<uint32_t>(i % ledger.heads());
    const auto target = remedy::ClipTarget(maxima[i], local.tau, ledger.At(layer, head));
    if (target) entries->push_back({layer, head, maxima[i], *target});
  }
}

}  // namespace gyrostat::client
