#include "logs/tfrecord.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace gyrostat::logs {
namespace {

constexpr uint32_t kMaskDelta = 0xa282ead8u;  // tensorflow/core/lib/hash/crc32c.h.
constexpr size_t kHeaderBytes = 12, kFooterBytes = 4;

constexpr std::array<uint32_t, 256> Table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = Table();

template <class T>
T Load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

}  // namespace

uint32_t MaskedCrc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + kMaskDelta;
}

bool IsTfrecordHeader(std::string_view head) {
  return head.size() >= kHeaderBytes && Load<uint32_t>(head.data() + 8) == MaskedCrc32c(head.substr(0, 8));
}

TfrecordSplitter::Next TfrecordSplitter::Take(std::string_view* record) {
  if (skip_ > 0) {
    const size_t passed = std::min<uint64_t>(skip_, buffer_.size() - used_);
    skip_ -= passed;
    used_ += passed;
  }
  if (used_ > (size_t{1} << 20) || used_ == buffer_.size()) {  // What was handed out is over.
    buffer_.erase(0, used_);
    used_ = 0;
  }
  const std::string_view rest = std::string_view(buffer_).substr(used_);
  if (skip_ > 0 || rest.size() < kHeaderBytes) return Next::kMore;
  const auto length = Load<uint64_t>(rest.data());
  if (!IsTfrecordHeader(rest) || length > kRecordBytesMax) return Next::kLost;
  const size_t whole = kHeaderBytes + length + kFooterBytes;
  if (length > kRecordBytesKept) {
    skip_ = whole;
    return Next::kDamaged;
  }
  if (rest.size() < whole) return Next::kMore;
  used_ += whole;
  *record = rest.substr(kHeaderBytes, length);
  return Load<uint32_t>(rest.data() + kHeaderBytes + length) == MaskedCrc32c(*record) ? Next::kRecord : Next::kDamaged;
}

}  // namespace gyrostat::logs
