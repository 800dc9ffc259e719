// What the policy itself has to report: orders that come too late, heads that need too much clipping, a kind switched
// off, an order that failed half-way. Each is open at most once; it begins, and may end.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/finding.h"
#include "policy/intents.h"
#include "remedy/clip_ledger.h"

namespace gyrostat::policy {

class Alarms {
 public:
  // The keys of findings; their detector is "policy".
  enum class Key : uint8_t {
    kLate = 1, kTugOfWar = 2, kDisabled = 3, kFailed = 4, kRayLost = 5, kAlphaLost = 6,
    kKindDisabled = 16,  // + the number of a kind other than qk_clip.
  };
  static Key DisabledKey(model::InterventionKind kind) {
    return static_cast<Key>(static_cast<uint8_t>(Key::kKindDisabled) + static_cast<uint8_t>(kind));
  }

  // Begins unless it is open already.
  void Begin(Key key, model::Severity severity, model::Finding finding, std::vector<model::Finding>* out);
  // Ends what is open under the key; `finding` keeps what it said at its beginning.
  void End(Key key, model::Step step, std::vector<model::Finding>* out);
  bool IsOpen(Key key) const { return open_.count(static_cast<uint8_t>(key)) > 0; }

  template <class Archive>
  void Fields(Archive& a) { a(open_); }

 private:
  std::map<uint8_t, model::Finding> open_;
};

// How much each head was clipped lately: protocol.md §1.6 blames the learning rate above 20 nats within 1000
// boundaries. Two windows of 1000 boundaries, half a window apart, instead of a history per head: a steady pull always
// shows, a burst shows when it fits into 500.
class TugOfWar {
 public:
  static constexpr remedy::Ticks kTicksMax = 20 * remedy::kTicksPerNat;

  void Open(const remedy::ClipLedger& ledger, RunTime now);

  struct Hit {
    uint32_t layer = 0, head = 0;
    double nats = 0;
  };
  // The head that was clipped most within a window, if that is more than the bound.
  std::optional<Hit> Observe(const remedy::ClipLedger& ledger, RunTime now);

  template <class Archive>
  void Fields(Archive& a) {
    a(windows_);
  }

 private:
  struct Window {
    RunTime until = 0;
    std::vector<remedy::Ticks> base;  // Lambda at its beginning, layer-major.
    template <class Archive>
    void Fields(Archive& a) { a(until, base); }
  };
  std::array<Window, 2> windows_;
};

}  // namespace gyrostat::policy
