#include "store/audit.h"

#include <gtest/gtest.h>

namespace gyrostat::store {
namespace {

TEST(Audit, HashesAsSha256Does) {
  std::string hex;
  for (const char c : Sha256("abc")) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    hex += digits;
  }
  EXPECT_EQ(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-2 B.1.
}

TEST(Audit, CoversEveryFieldAndTheHashBefore) {
  const AuditRow row{"run", 1, 2, "approve", "run/1", "anna", "fine"};
  const std::string hash = ChainHash("before", row);
  EXPECT_EQ(hash.size(), 32u);
  EXPECT_NE(ChainHash("another", row), hash);
  const auto differs = [&](auto change) {
    AuditRow other = row;
    change(&other);
    return ChainHash("before", other) != hash;
  };
  EXPECT_TRUE(differs([](AuditRow* r) { r->run = "ruin"; }));
  EXPECT_TRUE(differs([](AuditRow* r) { r->unix_ms = 2; }));
  EXPECT_TRUE(differs([](AuditRow* r) { r->mono_ms = 1; }));
  EXPECT_TRUE(differs([](AuditRow* r) { r->action = "reject"; }));
  EXPECT_TRUE(differs([](AuditRow* r) { r->subject = "run/2"; }));
  EXPECT_TRUE(differs([](AuditRow* r) { r->author = "otto"; }));
  EXPECT_TRUE(differs([](AuditRow* r) { r->detail = ""; }));
  // Moving a character from one field to the next is a change too.
  EXPECT_TRUE(differs([](AuditRow* r) { r->author = "ann", r->detail = "afine"; }));
}

}  // namespace
}  // namespace gyrostat::store
