#include "client/src/clip_state.h"

#include <optional>

namespace gyrostat::client {

void LocalEntries(std::span<const float> maxima, const LocalRegister& local, bool master_fp32,
                  const remedy::ClipLedger& ledger, uint64_t version, std::vector<model::ClipEntry>* entries) {
  entries->clear();
  if (!local.on() || maxima.size() != size_t{ledger.layers()} * ledger.heads()) return;
  const double threshold = remedy::ClipThreshold(local.tau, local.variant, master_fp32);
  for (size_t i = 0; i < maxima.size(); ++i) {
    if (!(maxima[i] > threshold)) continue;  // Also what is NaN or absent.
    const auto layer = static_cast<uint32_t>(i / ledger.heads()), head = static_cast<uint32_t>(i % ledger.heads());
    const std::optional<remedy::Ticks> lambda = ledger.At(version, layer, head);
    if (!lambda) return entries->clear();
    const auto target = remedy::ClipTarget(maxima[i], local.tau, *lambda);
    if (target) entries->push_back({layer, head, maxima[i], *target});
  }
}

}  // namespace gyrostat::client
