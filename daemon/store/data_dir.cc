#include "store/data_dir.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"

namespace gyrostat::store {
namespace {

absl::Status Denied(const std::string& path, const std::string& what, int error) {
  return absl::PermissionDeniedError("data directory " + path + ": " + what + ": " + std::strerror(error));
}

std::string HolderOf(int lock_fd) {
  char text[32] = {};
  const ssize_t size = pread(lock_fd, text, sizeof(text) - 1, 0);
  const std::string pid(text, size > 0 ? std::strcspn(text, "\n") : 0);
  return pid.empty() ? "" : " (pid " + pid + ")";
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataDir>> DataDir::Open(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    std::filesystem::create_directories(path, error);
    if (error) return Denied(path, "cannot be made", error.value());
    std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
  }
  struct statfs where {};
  if (statfs(path.c_str(), &where) == 0 && where.f_type == NFS_SUPER_MAGIC)
    return absl::FailedPreconditionError("data directory " + path +
                                         " is on NFS, where SQLite's log is not safe: use a local disk");
  const std::string lock_path = path + "/lock";
  const int fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return Denied(path, "cannot be written", errno);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int lock_errno = errno;
    const std::string holder = HolderOf(fd);
    close(fd);
    if (lock_errno == EWOULDBLOCK)
      return absl::FailedPreconditionError("data directory " + path + " is in use by another gyrostatd" + holder);
    return Denied(path, "cannot be locked", lock_errno);
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  // For the message above only, so a full disk does not matter here.
  [[maybe_unused]] const bool told = ftruncate(fd, 0) == 0 && pwrite(fd, pid.data(), pid.size(), 0) > 0;
  return std::unique_ptr<DataDir>(new DataDir(path, fd));
}

DataDir::~DataDir() { close(lock_fd_); }

}  // namespace gyrostat::store
