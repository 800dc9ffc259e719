// Small values by name that survive the end of the process at any moment: how far somebody has read. A database of its
// own beside the journal's, so that noting a cursor never waits for the journal nor it for that. A loss of power may
// take the last ones.
//
// Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "store/db.h"

namespace gyrostat::store {

class CursorFile {
 public:
  // Creates the file where it is missing. Errors name it.
  static absl::StatusOr<std::unique_ptr<CursorFile>> Open(const std::string& path);

  absl::StatusOr<std::string> Load(const std::string& name);  // Empty: none.
  absl::Status Save(const std::string& name, const std::string& bytes);

 private:
  explicit CursorFile(std::unique_ptr<Db> db) : db_(std::move(db)) {}
  const std::unique_ptr<Db> db_;
  Statement select_, upsert_;
};

}  // namespace gyrostat::store
