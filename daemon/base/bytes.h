// Little-endian bytes: how state, reports and events are written to disk. Reading never trusts the input:
// the first short or oversized read marks the reader bad, and everything read after that is zero or empty.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gyrostat::base {

static_assert(std::endian::native == std::endian::little, "the byte formats assume a little-endian host");

template <class T>
concept Plain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class ByteWriter {
 public:
  template <Plain T>
  void Put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
  }
  void PutString(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  template <Plain T>
  void PutVector(const std::vector<T>& values) {
    Put(static_cast<uint32_t>(values.size()));
    if (!values.empty())
      bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void Clear() { bytes_.clear(); }  // Keeps the capacity.
  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  // `bytes` must outlive the reader.
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  template <Plain T>
  T Get() {
    if constexpr (std::is_same_v<T, bool>) return Get<uint8_t>() != 0;  // Other bytes than 0 and 1 are no bool.
    T value{};
    if (left_.size() < sizeof(T)) {
      Fail();
      return value;
    }
    std::memcpy(&value, left_.data(), sizeof(T));
    left_.remove_prefix(sizeof(T));
    return value;
  }
  template <Plain T>
  void Get(T* value) { *value = Get<T>(); }

  std::string GetString() {
    const auto size = Get<uint32_t>();
    if (size > left_.size()) {
      Fail();
      return {};
    }
    std::string text(left_.substr(0, size));
    left_.remove_prefix(size);
    return text;
  }
  template <Plain T>
  void GetVector(std::vector<T>* values) {
    const auto size = Get<uint32_t>();
    if (size > left_.size() / sizeof(T)) {
      Fail();
      values->clear();
      return;
    }
    values->resize(size);
    if (size > 0) std::memcpy(values->data(), left_.data(), size * sizeof(T));
    left_.remove_prefix(size * sizeof(T));
  }

  void Fail() {
    ok_ = false;
    left_ = {};
  }
  bool ok() const { return ok_; }
  bool AtEnd() const { return left_.empty(); }

 private:
  std::string_view left_;
  bool ok_ = true;
};

}  // namespace gyrostat::base
