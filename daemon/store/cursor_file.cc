#include "store/cursor_file.h"

#include <utility>

namespace gyrostat::store {

absl::StatusOr<std::unique_ptr<CursorFile>> CursorFile::Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<Db>> db = Db::Open(path, Db::Access::kWrite);
  if (!db.ok()) return db.status();
  const absl::Status made = (*db)->Exec(
      "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
      "CREATE TABLE IF NOT EXISTS cursors(name TEXT PRIMARY KEY, bytes BLOB NOT NULL) WITHOUT ROWID;");
  if (!made.ok()) return made;
  std::unique_ptr<CursorFile> file(new CursorFile(*std::move(db)));
  const std::pair<Statement*, const char*> all[] = {
      {&file->select_, "SELECT bytes FROM cursors WHERE name=?1"},
      {&file->upsert_, "INSERT INTO cursors VALUES(?1, ?2) ON CONFLICT(name) DO UPDATE SET bytes=?2"},
  };
  for (const auto& [statement, sql] : all) {
    absl::StatusOr<Statement> prepared = file->db_->Prepare(sql);
    if (!prepared.ok()) return prepared.status();
    *statement = *std::move(prepared);
  }
  return file;
}

absl::StatusOr<std::string> CursorFile::Load(const std::string& name) {
  std::string bytes;
  if (select_.Bind(name).Step()) bytes = select_.Bytes(0);
  select_.Restart();
  if (!select_.status().ok()) return select_.status();
  return bytes;
}

absl::Status CursorFile::Save(const std::string& name, const std::string& bytes) {
  return upsert_.Run(name, Blob{bytes});
}

}  // namespace gyrostat::store
