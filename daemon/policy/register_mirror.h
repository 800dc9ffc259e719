// The daemon's copy of the client's registers (remedy/registers.h). The client's are the truth: a hello replaces the
// copy, an order that was applied moves it. When it cannot be right any more it says so, and nothing that sets
// registers is ordered until the next hello.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/intervention.h"

namespace gyrostat::policy {

class RegisterMirror {
 public:
  // As a hello tells them.
  void Settle(const std::vector<model::RegisterReading>& readings);
  // The client applied `order` at that boundary.
  void Take(const model::Order& order, model::Boundary boundary);
  // An answer that the copy does not explain.
  void Doubt(std::string why) { doubt_ = std::move(why); }

  // Why the copy cannot be relied on; empty: it can.
  const std::string& doubt() const { return doubt_; }
  bool WasSet(uint32_t id) const { return registers_.count(id) > 0; }
  // What the register says from that boundary on; `initial` where it was never set.
  float At(uint32_t id, model::Boundary boundary, float initial) const;
  bool Ramping(uint32_t id, model::Boundary boundary) const;
  // A set of the register that expects what it stands at.
  model::RegisterSet Set(uint32_t id, float value) const;
  // Whether every set of the order still expects what its register stands at.
  bool Expects(const model::Order& order) const;

  template <class Archive>
  void Fields(Archive& a) {
    a(registers_, doubt_);
    if constexpr (Archive::kLoading)
      if (!IsSound()) a.Fail();
  }

 private:
  uint32_t Version(uint32_t id) const;  // Mod 2^24.
  bool IsSound() const;

  std::map<uint32_t, model::RegisterReading> registers_;
  std::string doubt_;
};

}  // namespace gyrostat::policy
