// A file to write that is whole or not there, gzipped where its name ends in .gz.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace gyrostat::logs {

// Not thread-safe.
class OutFile {
 public:
  // The file is written as PATH.partial.
  explicit OutFile(const std::string& path);
  ~OutFile();  // Without Close, the partial file goes.
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;

  // False once something could not be written; error() says what.
  bool Write(std::string_view bytes);
  // Gives the file its name. Once.
  bool Close();
  const std::string& error() const { return error_; }

 private:
  struct Gz;
  bool Fail();

  const std::string path_;
  std::unique_ptr<Gz> gz_;
  std::string error_;
};

}  // namespace gyrostat::logs
