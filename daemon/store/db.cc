#include "store/db.h"

#include <sqlite3.h>

namespace gyrostat::store {
namespace {

// Write-ahead logging hardly ever makes anybody wait; who must, waits so long at most.
constexpr int kBusyMs = 5000;

absl::StatusCode CodeOf(int sqlite_code) {
  switch (sqlite_code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return absl::StatusCode::kOk;
    case SQLITE_FULL: return absl::StatusCode::kResourceExhausted;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return absl::StatusCode::kDataLoss;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR: return absl::StatusCode::kUnavailable;
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH: return absl::StatusCode::kPermissionDenied;
    default: return absl::StatusCode::kInternal;
  }
}

absl::Status StatusOf(sqlite3* db, const std::string& tried) {
  const int code = sqlite3_extended_errcode(db);
  return {CodeOf(code), tried + ": " + sqlite3_errmsg(db) + " (SQLite " + std::to_string(code) + ")"};
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

bool Statement::Step() {
  if (!status_.ok()) return false;
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) {
    status_ = StatusOf(sqlite3_db_handle(statement_.get()), sqlite3_sql(statement_.get()));
    sqlite3_reset(statement_.get());  // Repeats the error, which is kept.
  }
  return false;
}

void Statement::Restart() {
  if (statement_ != nullptr) sqlite3_reset(statement_.get());
}

bool Statement::IsNull(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }
int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }
double Statement::Double(int column) const { return sqlite3_column_double(statement_.get(), column); }
std::string Statement::Bytes(int column) const {
  const void* bytes = sqlite3_column_blob(statement_.get(), column);  // Before the size: it may convert.
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), static_cast<size_t>(size));
}

void Statement::Check(int code) {
  if (code != SQLITE_OK) status_ = StatusOf(sqlite3_db_handle(statement_.get()), sqlite3_sql(statement_.get()));
}
void Statement::BindInt(int index, int64_t value) { Check(sqlite3_bind_int64(statement_.get(), index, value)); }
void Statement::BindDouble(int index, double value) { Check(sqlite3_bind_double(statement_.get(), index, value)); }
void Statement::BindText(int index, std::string_view value) {
  // A null pointer would bind NULL where empty text is meant.
  const char* data = value.empty() ? "" : value.data();
  Check(sqlite3_bind_text64(statement_.get(), index, data, value.size(), SQLITE_STATIC, SQLITE_UTF8));
}
void Statement::BindBlob(int index, std::string_view value) {
  const char* data = value.empty() ? "" : value.data();
  Check(sqlite3_bind_blob64(statement_.get(), index, data, value.size(), SQLITE_STATIC));
}
void Statement::BindNull(int index) { Check(sqlite3_bind_null(statement_.get(), index)); }

void Db::Close::operator()(sqlite3* db) const { sqlite3_close_v2(db); }

absl::StatusOr<std::unique_ptr<Db>> Db::Open(const std::string& path, Access access) {
  std::unique_ptr<Db> db(new Db(path));
  // Readers, too, need to write the shared memory of the log; query_only keeps them from anything else.
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (access == Access::kWrite ? SQLITE_OPEN_CREATE : 0);
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  db->db_.reset(raw);
  if (code != SQLITE_OK) return db->Error("open");
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyMs);
  // Debian builds SQLite to overwrite what is deleted: twice the writing, for events that are nobody's secret.
  absl::Status status = db->Exec("PRAGMA secure_delete=OFF; PRAGMA temp_store=MEMORY; PRAGMA foreign_keys=ON;");
  if (status.ok() && access == Access::kRead) status = db->Exec("PRAGMA query_only=ON;");
  if (!status.ok()) return status;
  return db;
}

absl::Status Db::Exec(const std::string& sql) {
  return sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK ? absl::OkStatus() : Error(sql);
}

absl::StatusOr<Statement> Db::Prepare(const std::string& sql) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v3(db_.get(), sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &raw, nullptr) != SQLITE_OK)
    return Error(sql);
  Statement statement;
  statement.statement_.reset(raw);
  return statement;
}

absl::StatusOr<int64_t> Db::Number(const std::string& sql) {
  absl::StatusOr<Statement> statement = Prepare(sql);
  if (!statement.ok()) return statement.status();
  if (statement->Step()) return statement->Int(0);
  if (!statement->status().ok()) return statement->status();
  return absl::InternalError(path_ + ": " + sql + ": no row");
}

bool Db::InTransaction() const { return sqlite3_get_autocommit(db_.get()) == 0; }

absl::Status Db::ReadBlob(const char* table, const char* column, int64_t rowid, size_t offset, size_t size, char* out) {
  sqlite3_blob* blob = nullptr;
  if (sqlite3_blob_open(db_.get(), "main", table, column, rowid, 0, &blob) != SQLITE_OK) return Error("open blob");
  const size_t whole = static_cast<size_t>(sqlite3_blob_bytes(blob));
  absl::Status status;
  if (offset > whole || size > whole - offset) {
    status = absl::DataLossError(path_ + ": " + table + " " + std::to_string(rowid) + " is cut short");
  } else if (sqlite3_blob_read(blob, out, static_cast<int>(size), static_cast<int>(offset)) != SQLITE_OK) {
    status = Error("read blob");
  }
  sqlite3_blob_close(blob);
  return status;
}

absl::Status Db::Error(const std::string& tried) const { return StatusOf(db_.get(), path_ + ": " + tried); }

}  // namespace gyrostat::store
