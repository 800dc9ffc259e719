// The tables, and how an older database becomes today's.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "store/db.h"

namespace gyrostat::store {

// Brings `db`, at `path`, to this program's schema, in one transaction. Refuses, and changes nothing, when the file is
// not a gyrostat database or comes from a newer version.
absl::Status Migrate(const std::string& path, Db* db);

}  // namespace gyrostat::store
