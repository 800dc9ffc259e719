// The chain of the audit: each row's hash covers the row and the hash before it, so that a change to any row, or a
// missing one, shows. SHA-256.
//
// It proves that the file was not edited by hand since the last copy somebody kept of its newest hash; it is no defence
// against one who rewrites the whole chain.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "store/db.h"

namespace gyrostat::store {

struct AuditRow {
  std::string run;
  int64_t unix_ms = 0, mono_ms = 0;
  std::string action;   // mode, approve, reject, intervention or order.
  std::string subject;  // The intent's or order's id, or the new mode.
  std::string author, detail;
};

// The hash of `row` after one whose hash is `before` (empty: the first).
std::string ChainHash(std::string_view before, const AuditRow& row);

std::string Sha256(std::string_view bytes);

// OK, or DATA_LOSS naming the first row whose hash is not what the rows give.
absl::Status VerifyAudit(Db* db);

}  // namespace gyrostat::store
