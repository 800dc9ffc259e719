#include "logs/out_file.h"

#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gyrostat::logs {
namespace {

constexpr size_t kWriteBytesMax = size_t{1} << 30;  // Of one call of zlib, which counts in int.

bool IsGzip(const std::string& path) { return path.size() > 3 && path.compare(path.size() - 3, 3, ".gz") == 0; }

}  // namespace

struct OutFile::Gz {
  gzFile file = nullptr;
};

OutFile::OutFile(const std::string& path) : path_(path) {
  // T: as it is, without gzip around it.
  const gzFile file = gzopen((path_ + ".partial").c_str(), IsGzip(path_) ? "wb6" : "wbT");
  if (file != nullptr) gz_ = std::make_unique<Gz>(Gz{file});
  else Fail();
}

OutFile::~OutFile() {
  if (gz_ == nullptr) return;
  gzclose_w(gz_->file);
  std::remove((path_ + ".partial").c_str());
}

bool OutFile::Fail() {
  if (error_.empty()) error_ = path_ + " cannot be written: " + std::strerror(errno);
  return false;
}

bool OutFile::Write(std::string_view bytes) {
  if (!error_.empty()) return false;
  while (!bytes.empty()) {
    const std::string_view some = bytes.substr(0, kWriteBytesMax);
    if (gzwrite(gz_->file, some.data(), static_cast<unsigned>(some.size())) <= 0) return Fail();
    bytes.remove_prefix(some.size());
  }
  return true;
}

bool OutFile::Close() {
  if (!error_.empty()) return false;
  const std::string partial = path_ + ".partial";
  const bool closed = gzclose_w(gz_->file) == Z_OK;
  gz_.reset();
  if (closed && std::rename(partial.c_str(), path_.c_str()) == 0) return true;
  Fail();
  std::remove(partial.c_str());
  return false;
}

}  // namespace gyrostat::logs
