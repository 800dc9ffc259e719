#include "store/audit.h"

#include <openssl/evp.h>

#include "base/bytes.h"

namespace gyrostat::store {

std::string Sha256(std::string_view bytes) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), &size, EVP_sha256(),
                 nullptr) != 1)
    size = 0;  // Only where a policy of the machine forbids SHA-256: then no row verifies, and that is said.
  digest.resize(size);
  return digest;
}

std::string ChainHash(std::string_view before, const AuditRow& row) {
  base::ByteWriter bytes;
  bytes.PutString(before);
  bytes.PutString(row.run);
  bytes.Put(row.unix_ms);
  bytes.Put(row.mono_ms);
  for (const std::string& text : {row.action, row.subject, row.author, row.detail}) bytes.PutString(text);
  return Sha256(bytes.bytes());
}

absl::Status VerifyAudit(Db* db) {
  absl::StatusOr<Statement> rows =
      db->Prepare("SELECT id, run, unix_ms, mono_ms, action, subject, author, detail, hash FROM audit ORDER BY id");
  if (!rows.ok()) return rows.status();
  std::string hash;
  int64_t wanted_id = 1;
  for (rows->Bind(); rows->Step(); ++wanted_id) {
    const AuditRow row{rows->Bytes(1), rows->Int(2),   rows->Int(3),  rows->Bytes(4),
                       rows->Bytes(5), rows->Bytes(6), rows->Bytes(7)};
    hash = ChainHash(hash, row);
    if (rows->Int(0) != wanted_id || rows->Bytes(8) != hash || hash.empty())
      return absl::DataLossError("audit row " + std::to_string(wanted_id) + " is missing or has been changed");
  }
  return rows->status();
}

}  // namespace gyrostat::store
