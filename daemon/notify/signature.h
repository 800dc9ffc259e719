// Proves to a webhook that a request is ours, unchanged and recent.
//
//   X-Gyrostat-Timestamp: SECONDS                 Since the Unix epoch, of this try.
//   X-Gyrostat-Signature: v1=HEX                  HMAC-SHA256 with the key over SECONDS, a dot and the body, as sent.
//
// The receiver computes the same over the bytes that it got, compares in constant time, and refuses what is older than
// some minutes: nobody can replay a request or change its time. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyrostat::notify {

std::string Signature(std::string_view key, int64_t unix_s, std::string_view body);  // "v1=" and 64 hex digits.
std::vector<std::string> SignatureHeaders(std::string_view key, int64_t unix_s, std::string_view body);

}  // namespace gyrostat::notify
