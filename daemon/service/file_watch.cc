#include "service/file_watch.h"

#include <sys/stat.h>

#include <utility>

namespace gyrostat::service {

FileWatch::FileWatch(std::string path) : path_(std::move(path)), known_(Look()), seen_(known_) {}

FileWatch::Mark FileWatch::Look() const {
  struct stat info {};
  if (path_.empty() || stat(path_.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

void FileWatch::SetKnown() { known_ = seen_ = Look(); }

bool FileWatch::Changed() {
  const Mark now = Look();
  const bool stands_still = now == std::exchange(seen_, now);
  if (!stands_still || now == known_ || now == Mark{}) return false;
  known_ = now;
  return true;
}

}  // namespace gyrostat::service
