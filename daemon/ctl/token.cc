#include "ctl/token.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "ctl/address.h"

namespace gyrostat::ctl {
namespace {
constexpr size_t kTokenBytesMax = 4096;  // What fits into one gRPC header with room to spare.
}  // namespace

absl::StatusOr<std::string> ReadToken(const std::string& file, const std::string& address) {
  if (!IsOnThisMachine(address))
    return absl::InvalidArgumentError(
        "--token-file with --address " + address +
        ": a token is only sent to this machine (127.0.0.1, [::1], localhost or unix:PATH), "
        "since there is no TLS yet");
  errno = 0;
  std::ifstream in(file);
  std::string line;
  if (!in || (!std::getline(in, line) && in.bad()))
    return absl::InvalidArgumentError("--token-file " + file + " cannot be read: " + std::strerror(errno));
  line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
  line.erase(line.find_last_not_of(" \t\r") + 1);
  if (line.empty())
    return absl::InvalidArgumentError("--token-file " + file + " has an empty first line, wanted a token");
  const bool printable = std::all_of(line.begin(), line.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (!printable || line.size() > kTokenBytesMax)
    return absl::InvalidArgumentError("--token-file " + file + " holds " + std::to_string(line.size()) +
                                      " characters or blanks between them, wanted at most " +
                                      std::to_string(kTokenBytesMax) + " printable ones without blanks");
  return line;
}

}  // namespace gyrostat::ctl
