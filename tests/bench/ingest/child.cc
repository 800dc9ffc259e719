#include "bench/ingest/child.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

extern char** environ;

namespace gyrostat::bench {

namespace {

// What Die must not leave behind.
std::vector<pid_t>& Running() {
  static std::vector<pid_t> running;
  return running;
}

}  // namespace

void Die(const std::string& message) {
  std::fprintf(stderr, "bench_ingest: %s\n", message.c_str());
  for (const pid_t each : Running()) kill(each, SIGTERM);
  std::exit(2);
}

Child::Child(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe(ends) != 0) Die("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  if (posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ) != 0)
    Die("cannot start " + command[0]);
  Running().push_back(pid_);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  stdout_ = ends[0];
  char byte = 0;
  while (read(stdout_, &byte, 1) == 1 && byte != '\n') first_line_.push_back(byte);
  if (first_line_.empty()) Die(command[0] + " ended before it was ready");
}

Child::~Child() {
  kill(pid_, SIGTERM);
  int status = 0;
  waitpid(pid_, &status, 0);
  close(stdout_);
  Running().erase(std::find(Running().begin(), Running().end(), pid_));
}

int64_t Child::CpuNs() const {
  clockid_t clock{};
  timespec used{};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) Die("the child is gone");
  return int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

}  // namespace gyrostat::bench
