// TensorFlow's record framing: length (8 bytes, little-endian), its masked CRC32C, the bytes, theirs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gyrostat::logs {

// CRC32C (Castagnoli), rotated and offset as TFRecord stores it.
uint32_t MaskedCrc32c(std::string_view bytes);

// Whether `head` begins with a length and the checksum of it: nothing else does by chance.
bool IsTfrecordHeader(std::string_view head);

// Bytes in, records out, as a stream.
class TfrecordSplitter {
 public:
  static constexpr uint64_t kRecordBytesMax = uint64_t{1} << 30;  // What is longer is no record.
  static constexpr size_t kRecordBytesKept = size_t{16} << 20;    // Longer ones (images) pass by unread.

  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  enum class Next : uint8_t {
    kRecord,   // `*record` holds one until the next call.
    kDamaged,  // One whose checksum is wrong, or one too long to keep, was passed over.
    kMore,     // More bytes are needed.
    kLost,     // A length whose checksum is wrong: where the next record begins is not known.
  };
  Next Take(std::string_view* record);
  bool empty() const { return buffer_.size() == used_; }  // No torn record is left.

 private:
  std::string buffer_;
  size_t used_ = 0;        // Of the buffer.
  uint64_t skip_ = 0;      // Bytes of an unread record that are still to come.
};

}  // namespace gyrostat::logs
