// Names and numbers that identify things. Text forms: hex, lower case.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gyrostat::model {

using Step = int64_t;       // The trainer's optimizer step. May repeat, jump or go back.
using Boundary = uint64_t;  // The b-th call of step() within an attempt: ours, strictly increasing.

// 128 random bits: names an attempt or an order.
struct Id128 {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const Id128&) const = default;
  template <class Archive>
  void Fields(Archive& a) { a(bytes); }
  bool IsZero() const { return *this == Id128{}; }
  std::string ToHex() const;
  static std::optional<Id128> FromHex(std::string_view hex);      // Exactly 32 hex digits.
  static std::optional<Id128> FromBytes(std::string_view bytes);  // Exactly 16 bytes.
  std::string_view AsBytes() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

using AttemptId = Id128;
using OrderId = Id128;

// What runs, user scalars and files may be called: [A-Za-z0-9._:-]{1,128}.
bool IsValidName(std::string_view name);

}  // namespace gyrostat::model
