// A process that a bench starts, measures and ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gyrostat::bench {

class Child {
 public:
  // Starts `command` and blocks until its first line on stdout, which is kept. Ends the program when it cannot.
  explicit Child(const std::vector<std::string>& command);
  ~Child();  // SIGTERM, and waits.
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& first_line() const { return first_line_; }
  // What all its threads have used so far.
  int64_t CpuNs() const;

 private:
  pid_t pid_ = -1;
  int stdout_ = -1;
  std::string first_line_;
};

// A message to stderr, then exit code 2: a bench that cannot measure has failed.
[[noreturn]] void Die(const std::string& message);

}  // namespace gyrostat::bench
