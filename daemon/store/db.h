// SQLite as values that clean up after themselves and errors that say what was tried. Only db.cc names the C API.
//
// Not thread-safe: one connection belongs to one thread at a time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace gyrostat::store {

// Bytes, where a plain string would be bound as text.
struct Blob {
  std::string_view bytes;
};

// One prepared statement. Bound text and blobs must outlive the stepping.
class Statement {
 public:
  Statement() = default;

  // Binds `values` to ?1, ?2, … and starts over.
  template <class... T>
  Statement& Bind(const T&... values) {
    Restart();
    status_ = absl::OkStatus();
    int index = 0;
    (BindOne(++index, values), ...);
    return *this;
  }
  // The next row. False: no more, or an error, which status() then holds.
  bool Step();
  absl::Status status() const { return status_; }
  // Binds, and steps to the end.
  template <class... T>
  absl::Status Run(const T&... values) {
    Bind(values...);
    while (Step()) {
    }
    Restart();
    return status_;
  }
  // Lets go of the row and of what it locks.
  void Restart();

  // Columns of the row, from 0. Text and bytes are copies.
  bool IsNull(int column) const;
  int64_t Int(int column) const;
  double Double(int column) const;
  std::string Bytes(int column) const;
  template <class T>
  std::optional<T> Optional(int column) const {
    if (IsNull(column)) return std::nullopt;
    if constexpr (std::floating_point<T>) {
      return static_cast<T>(Double(column));
    } else {
      return static_cast<T>(Int(column));
    }
  }

 private:
  friend class Db;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  void Check(int code);
  void BindInt(int index, int64_t value);
  void BindDouble(int index, double value);
  void BindText(int index, std::string_view value);
  void BindBlob(int index, std::string_view value);
  void BindNull(int index);
  template <class T>
  void BindOne(int index, const T& value) {
    if constexpr (std::same_as<T, Blob>) {
      BindBlob(index, value.bytes);
    } else if constexpr (std::floating_point<T>) {
      BindDouble(index, value);
    } else if constexpr (std::integral<T> || std::is_enum_v<T>) {
      BindInt(index, static_cast<int64_t>(value));
    } else {
      BindText(index, value);
    }
  }
  template <class T>
  void BindOne(int index, const std::optional<T>& value) {
    if (value) {
      BindOne(index, *value);
    } else {
      BindNull(index);
    }
  }

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  absl::Status status_;
};

// One connection.
class Db {
 public:
  enum class Access { kWrite, kRead };

  // Opens, or with kWrite creates, the database in write-ahead mode. Errors name the file.
  static absl::StatusOr<std::unique_ptr<Db>> Open(const std::string& path, Access access);

  // Runs statements without parameters.
  absl::Status Exec(const std::string& sql);
  absl::StatusOr<Statement> Prepare(const std::string& sql);
  // The first column of the first row, e.g. of a pragma.
  absl::StatusOr<int64_t> Number(const std::string& sql);
  // False once an error has ended the transaction by itself (a full disk does).
  bool InTransaction() const;
  // Reads part of a stored blob without the rest of it.
  absl::Status ReadBlob(const char* table, const char* column, int64_t rowid, size_t offset, size_t size, char* out);

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  explicit Db(std::string path) : path_(std::move(path)) {}
  absl::Status Error(const std::string& tried) const;

  const std::string path_;
  std::unique_ptr<sqlite3, Close> db_;
};

}  // namespace gyrostat::store
