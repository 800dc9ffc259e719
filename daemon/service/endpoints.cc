#include "service/endpoints.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace gyrostat::service {
namespace {

std::string PathIn(const std::string& data_dir) { return data_dir + "/endpoints.json"; }

}  // namespace

absl::Status WriteEndpoints(const std::string& data_dir, const Endpoints& endpoints) {
  const nlohmann::json json = {{"grpc", endpoints.grpc}, {"http", endpoints.http}};
  // A path of a Unix socket may hold any byte; what is no UTF-8 is shown as U+FFFD.
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const std::string path = PathIn(data_dir), draft = path + ".new";
  const int fd = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool ok = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  int error = errno;
  if (fd >= 0) close(fd);
  if (ok && std::rename(draft.c_str(), path.c_str()) != 0) {
    ok = false;
    error = errno;
  }
  if (ok) return absl::OkStatus();
  return absl::UnavailableError(path + ": cannot be written: " + std::strerror(error));
}

void RemoveEndpoints(const std::string& data_dir) { unlink(PathIn(data_dir).c_str()); }

}  // namespace gyrostat::service
