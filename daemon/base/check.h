// Our own invariants. GYROSTAT_CHECK ends the process with a message, in every build: a supervisor restarts the daemon
// and its journal brings it back. Daemon only: nothing that the client links may include this file.
#pragma once

namespace gyrostat::base {
// Prints `file:line: check failed: text` to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* text);
}  // namespace gyrostat::base

#define GYROSTAT_CHECK(condition) \
  ((condition) ? (void)0 : ::gyrostat::base::CheckFailed(__FILE__, __LINE__, #condition))
