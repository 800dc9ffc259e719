#include "notify/signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/check.h"

namespace gyrostat::notify {

std::string Signature(std::string_view key, int64_t unix_s, std::string_view body) {
  std::string signed_text = std::to_string(unix_s) + ".";
  signed_text += body;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  GYROSTAT_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(signed_text.data()), signed_text.size(), digest,
                      &size) != nullptr);
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "v1=";
  for (unsigned int i = 0; i < size; ++i) text += {kHex[digest[i] >> 4], kHex[digest[i] & 15]};
  return text;
}

std::vector<std::string> SignatureHeaders(std::string_view key, int64_t unix_s, std::string_view body) {
  return {"X-Gyrostat-Timestamp: " + std::to_string(unix_s), "X-Gyrostat-Signature: " + Signature(key, unix_s, body)};
}

}  // namespace gyrostat::notify
