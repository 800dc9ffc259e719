// The access token of --token-file: the one secret gyrostatctl handles. It is never printed.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace gyrostat::ctl {

// The first line of `file`, without blanks at its ends: 1 to 4096 printable ASCII characters. Refused, with a sentence
// that names the file, when it cannot be read or holds something else, and when `address` is not on this machine:
// without TLS a token on the network is everybody's.
absl::StatusOr<std::string> ReadToken(const std::string& file, const std::string& address);

}  // namespace gyrostat::ctl
