// One list of fields serves both directions: a type that is saved writes
//   template <class Archive> void Fields(Archive& a) { a(step, name, values); }
// and SaveTo/LoadFrom turn it into bytes and back. Plain values, strings, optionals, vectors, deques, pairs, arrays,
// maps and types with Fields() nest freely. Reading is safe on any input (base/bytes.h).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace gyrostat::base {

template <class T, class Archive>
concept HasFields = requires(T& value, Archive& archive) { value.Fields(archive); };

class SaveArchive {
 public:
  explicit SaveArchive(ByteWriter* out) : out_(out) {}
  static constexpr bool kLoading = false;

  template <class... T>
  void operator()(T&... values) { (Put(values), ...); }

 private:
  template <Plain T>
  void Put(T& v) { out_->Put(v); }
  void Put(std::string& v) { out_->PutString(v); }
  template <Plain T>
  void Put(std::vector<T>& v) { out_->PutVector(v); }
  void Put(std::vector<bool>& v) {
    out_->Put(static_cast<uint32_t>(v.size()));
    for (const bool b : v) out_->Put(b);
  }
  template <class T>
  void Put(std::vector<T>& v) { PutRange(v); }
  template <class T>
  void Put(std::deque<T>& v) { PutRange(v); }
  template <class T>
  void Put(std::optional<T>& v) {
    out_->Put(v.has_value());
    if (v) Put(*v);
  }
  template <class A, class B>
  void Put(std::pair<A, B>& v) { Put(v.first), Put(v.second); }
  template <class T, size_t N>
  void Put(std::array<T, N>& v) {
    for (T& item : v) Put(item);
  }
  template <class K, class V>
  void Put(std::map<K, V>& v) {
    out_->Put(static_cast<uint32_t>(v.size()));
    for (auto& [key, value] : v) {
      K copy = key;
      Put(copy), Put(value);
    }
  }
  template <class T>
    requires HasFields<T, SaveArchive>
  void Put(T& v) { v.Fields(*this); }

  template <class Range>
  void PutRange(Range& v) {
    out_->Put(static_cast<uint32_t>(v.size()));
    for (auto& item : v) Put(item);
  }

  ByteWriter* out_;
};

class LoadArchive {
 public:
  explicit LoadArchive(ByteReader* in) : in_(in) {}
  static constexpr bool kLoading = true;

  template <class... T>
  void operator()(T&... values) { (Take(values), ...); }
  // For Fields() that find a value impossible.
  void Fail() { in_->Fail(); }

 private:
  template <Plain T>
  void Take(T& v) { v = in_->Get<T>(); }
  void Take(std::string& v) { v = in_->GetString(); }
  template <Plain T>
  void Take(std::vector<T>& v) { in_->GetVector(&v); }
  void Take(std::vector<bool>& v) {
    v.clear();
    for (uint32_t n = in_->Get<uint32_t>(); n > 0 && in_->ok(); --n) v.push_back(in_->Get<bool>());
  }
  template <class T>
  void Take(std::vector<T>& v) { TakeRange(v); }
  template <class T>
  void Take(std::deque<T>& v) { TakeRange(v); }
  template <class T>
  void Take(std::optional<T>& v) {
    v.reset();
    if (in_->Get<bool>()) Take(v.emplace());
  }
  template <class A, class B>
  void Take(std::pair<A, B>& v) { Take(v.first), Take(v.second); }
  template <class T, size_t N>
  void Take(std::array<T, N>& v) {
    for (T& item : v) Take(item);
  }
  template <class K, class V>
  void Take(std::map<K, V>& v) {
    v.clear();
    for (uint32_t n = in_->Get<uint32_t>(); n > 0 && in_->ok(); --n) {
      K key{};
      Take(key);
      Take(v[key]);
    }
  }
  template <class T>
    requires HasFields<T, LoadArchive>
  void Take(T& v) { v.Fields(*this); }

  template <class Range>
  void TakeRange(Range& v) {
    v.clear();
    for (uint32_t n = in_->Get<uint32_t>(); n > 0 && in_->ok(); --n) Take(v.emplace_back());
  }

  ByteReader* in_;
};

template <class T>
void SaveTo(ByteWriter* out, const T& value) {
  SaveArchive archive(out);
  archive(const_cast<T&>(value));  // Fields() is one function for both directions; saving changes nothing.
}

// False on short or impossible input; `*value` is then unspecified but safe to destroy or assign.
template <class T>
bool LoadFrom(ByteReader* in, T* value) {
  LoadArchive archive(in);
  archive(*value);
  return in->ok();
}

}  // namespace gyrostat::base
