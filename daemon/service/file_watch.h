// Says that a file has another content than when it was last read, by asking its status from time to time: works with
// editors that replace the file and with links that are turned to another one (Kubernetes).
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

namespace gyrostat::service {

// Not thread-safe.
class FileWatch {
 public:
  // Takes the file as it is now for known. Empty path: never changes.
  explicit FileWatch(std::string path);

  // True once for each change, at the first look that finds the file as the look before found it: a file that is being
  // written is left alone. A file that is missing is no change.
  bool Changed();

  // Takes the file as it is now for known: it is read for another reason.
  void SetKnown();

 private:
  using Mark = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>;  // Device, inode, size, seconds, nanoseconds.
  Mark Look() const;

  const std::string path_;
  Mark known_, seen_;
};

}  // namespace gyrostat::service
