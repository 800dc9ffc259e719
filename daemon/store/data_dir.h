// The directory that holds everything a daemon remembers, and the lock that keeps a second daemon out of it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace gyrostat::store {

class DataDir {
 public:
  // Makes the directory (mode 0700) where it is missing and locks it until destruction; the lock dies with the process.
  // Errors name the directory: in use by another daemon, not writable, on a network file system.
  static absl::StatusOr<std::unique_ptr<DataDir>> Open(const std::string& path);
  ~DataDir();
  DataDir(const DataDir&) = delete;
  DataDir& operator=(const DataDir&) = delete;

  const std::string& path() const { return path_; }
  std::string FilePath(const std::string& name) const { return path_ + "/" + name; }

 private:
  DataDir(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
  const std::string path_;
  const int lock_fd_;
};

}  // namespace gyrostat::store
