#include "logs/tensorboard.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace gyrostat::logs {
namespace {

// Fields of tensorflow.Event, Summary, Summary.Value and TensorProto that are read here.
constexpr uint32_t kEventStep = 2, kEventSummary = 5, kSummaryValue = 1;
constexpr uint32_t kValueTag = 1, kValueSimple = 2, kValueTensor = 8;
constexpr uint32_t kTensorType = 1, kTensorShape = 2, kTensorContent = 4, kTensorFloat = 5, kTensorDouble = 6,
                   kTensorInt = 7, kTensorInt64 = 10, kTensorHalf = 13;
constexpr uint64_t kTypeFloat = 1, kTypeDouble = 2, kTypeInt32 = 3, kTypeInt64 = 9, kTypeBfloat16 = 14, kTypeHalf = 19;

// Walks the fields of one message in the protocol buffers' wire format; stops at bytes that are none.
class Wire {
 public:
  explicit Wire(std::string_view message) : left_(message) {}

  uint32_t field = 0;
  uint64_t number = 0;      // Of a varint or fixed field.
  std::string_view bytes;   // Of a length-delimited or fixed field.

  bool Next() {
    uint64_t key = 0;
    if (!Varint(&key) || key > UINT32_MAX) return false;
    field = static_cast<uint32_t>(key >> 3);
    bytes = {};
    number = 0;
    switch (key & 7) {
      case 0: return Varint(&number);
      case 1: return Take(8);
      case 2: return Varint(&number) && Take(number);
      case 5: return Take(4);
      default: return false;
    }
  }
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_[0]);
      left_.remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

 private:
  bool Take(uint64_t size) {
    if (size > left_.size()) return false;
    bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return true;
  }
  std::string_view left_;
};

template <class T>
std::optional<double> As(std::string_view bytes) {
  if (bytes.size() != sizeof(T)) return std::nullopt;  // Not one element.
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return static_cast<double>(value);
}

double OfBfloat16(uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

double OfHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

std::optional<double> OfContent(uint64_t type, std::string_view content) {
  uint16_t bits = 0;
  if (content.size() == 2) std::memcpy(&bits, content.data(), 2);
  switch (type) {
    case kTypeFloat: return As<float>(content);
    case kTypeDouble: return As<double>(content);
    case kTypeInt32: return As<int32_t>(content);
    case kTypeInt64: return As<int64_t>(content);
    case kTypeBfloat16: return content.size() == 2 ? std::optional(OfBfloat16(bits)) : std::nullopt;
    case kTypeHalf: return content.size() == 2 ? std::optional(OfHalf(bits)) : std::nullopt;
    default: return std::nullopt;
  }
}

// Repeated numbers come packed (`bytes`) or one by one (`number`).
std::optional<double> OfVarints(const Wire& wire, uint64_t type) {
  uint64_t value = wire.number;
  if (!wire.bytes.empty() && !Wire(wire.bytes).Varint(&value)) return std::nullopt;
  if (type == kTypeHalf) return OfHalf(static_cast<uint16_t>(value));
  if (type == kTypeBfloat16) return OfBfloat16(static_cast<uint16_t>(value));
  return static_cast<double>(static_cast<int64_t>(value));
}

}  // namespace

std::optional<double> ScalarOfTensor(std::string_view tensor) {
  uint64_t type = 0;
  for (Wire wire(tensor); wire.Next();) {
    if (wire.field == kTensorType) type = wire.number;
    if (wire.field != kTensorShape) continue;
    // A shape with dimensions is no scalar, unless there is one element in all.
    for (Wire shape(wire.bytes); shape.Next();)
      for (Wire dimension(shape.bytes); shape.field == 2 && dimension.Next();)
        if (dimension.field == 1 && dimension.number != 1) return std::nullopt;
  }
  for (Wire wire(tensor); wire.Next();) {
    switch (wire.field) {
      case kTensorContent: return OfContent(type, wire.bytes);
      case kTensorFloat: return As<float>(wire.bytes);
      case kTensorDouble: return As<double>(wire.bytes);
      case kTensorInt:
      case kTensorInt64:
      case kTensorHalf: return OfVarints(wire, type);
      default: break;
    }
  }
  return std::nullopt;
}

void TensorboardReader::OnEvent(std::string_view event) {
  record_.Clear();
  record_.line = number_;
  record_.step = 0;  // Proto3 leaves a zero out.
  std::string_view summary;
  for (Wire wire(event); wire.Next();) {
    if (wire.field == kEventStep) record_.step = static_cast<int64_t>(wire.number);
    if (wire.field == kEventSummary) summary = wire.bytes;
  }
  for (Wire values(summary); values.Next();) {
    if (values.field != kSummaryValue) continue;
    std::string_view tag;
    std::optional<double> value;
    for (Wire wire(values.bytes); wire.Next();) {
      if (wire.field == kValueTag) tag = wire.bytes;
      if (wire.field == kValueSimple) value = As<float>(wire.bytes);
      if (wire.field == kValueTensor) value = ScalarOfTensor(wire.bytes);
    }
    if (value && !tag.empty()) record_.Add(tag, *value);
  }
  if (record_.size() > 0) sink_->TakeRecord(record_);
}

void TensorboardReader::Feed(std::string_view bytes) {
  if (lost_) return;
  splitter_.Feed(bytes);
  for (std::string_view record;;) {
    switch (splitter_.Take(&record)) {
      case TfrecordSplitter::Next::kRecord:
        ++number_;
        OnEvent(record);
        break;
      case TfrecordSplitter::Next::kDamaged:
        sink_->Skip(++number_, "the record's checksum is wrong, or it is too long for a scalar");
        break;
      case TfrecordSplitter::Next::kLost:
        lost_ = true;
        sink_->Skip(++number_, "the checksum of the record's length is wrong; nothing behind it was read");
        return;
      case TfrecordSplitter::Next::kMore: return;
    }
  }
}

void TensorboardReader::Finish() {
  if (!lost_ && !splitter_.empty()) sink_->Warn("the last record is cut off in the middle, as in a file still written");
}

}  // namespace gyrostat::logs
