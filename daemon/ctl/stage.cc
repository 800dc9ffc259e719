#include "ctl/stage.h"

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "ctl/request.h"

namespace gyrostat::ctl {
namespace {

constexpr std::array<int, 6> kSignals = {SIGWINCH, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
// Second screen, no cursor, no wrapping at the edge; and back.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr int kPatienceMs = 1000, kTryMs = 10;
constexpr unsigned char kEnd = 0;  // In the pipe: no signal has this number.

volatile std::sig_atomic_t wake_fd = -1;  // What a signal's handler writes to.

extern "C" void OnSignal(int number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number);
  (void)!write(wake_fd, &byte, 1);  // A full pipe holds what wakes the thread.
  errno = saved;
}

bool WriteAll(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Each line is written over the old one and its rest cleared; the last has no newline, or the screen would scroll.
std::string Frame(std::string_view picture) {
  std::string frame = "\x1b[H";
  if (!picture.empty() && picture.back() == '\n') picture.remove_suffix(1);
  for (const char each : picture) {
    if (each == '\n') frame += "\x1b[K\r\n";
    else frame.push_back(each);
  }
  return frame + "\x1b[J";
}

class TerminalStage final : public Stage {
 public:
  TerminalStage(std::function<Size()> size, Picture picture) : size_(std::move(size)), picture_(std::move(picture)) {
    GYROSTAT_CHECK(wake_fd < 0);  // One at a time.
    GYROSTAT_CHECK(pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    wake_fd = pipe_[1];
    struct sigaction action {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], nullptr, &before_[i]);
      // What the shell has told us to ignore (nohup) stays so.
      if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
    {
      base::MutexLock lock(mutex_);
      Enter();
    }
    thread_ = std::thread([this] { Listen(); });
  }

  ~TerminalStage() override {
    (void)!write(pipe_[1], &kEnd, 1);
    thread_.join();
    {
      base::MutexLock lock(mutex_);
      Leave();
    }
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    wake_fd = -1;
    for (const int each : pipe_) close(each);
  }

  bool Redraw() override {
    base::MutexLock lock(mutex_);
    return Draw();
  }

 private:
  // Keys are the terminal's only where this program is in its foreground: another one's would stop us.
  bool OwnsKeys() const { return isatty(STDIN_FILENO) != 0 && tcgetpgrp(STDIN_FILENO) == getpgrp(); }

  void Enter() GYROSTAT_REQUIRES(mutex_) {
    keys_ = OwnsKeys() && tcgetattr(STDIN_FILENO, &cooked_) == 0;
    if (keys_) {
      termios raw = cooked_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // ISIG stays: Ctrl-C and Ctrl-Z are signals.
      raw.c_cc[VMIN] = 1;
      raw.c_cc[VTIME] = 0;
      tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    open_ = WriteAll(kEnter);
  }

  void Leave() GYROSTAT_REQUIRES(mutex_) {
    (void)WriteAll(kLeave);
    if (keys_ && OwnsKeys()) tcsetattr(STDIN_FILENO, TCSANOW, &cooked_);
    open_ = false;
  }

  bool Draw() GYROSTAT_REQUIRES(mutex_) {
    if (open_) open_ = WriteAll(Frame(picture_(size_())));
    return open_;
  }

  void Listen() {
    bool keys = true;
    while (true) {
      std::array<pollfd, 2> on = {{{pipe_[0], POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
      keys = keys && keys_;  // Without the lock: who draws may hold it for as long as the terminal takes nothing.
      if (poll(on.data(), keys ? 2 : 1, -1) < 0) continue;  // EINTR: the handler has written.
      if (on[0].revents != 0) {
        unsigned char number = kEnd;
        if (read(pipe_[0], &number, 1) == 1 && !Take(number)) return;
      }
      if (keys && on[1].revents != 0) {
        char key = 0;
        const ssize_t got = read(STDIN_FILENO, &key, 1);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) keys = false;  // The keyboard is gone.
        if (got == 1 && (key == 'q' || key == 'Q')) Quit();
      }
    }
  }

  // False: the stage ends.
  bool Take(int number) GYROSTAT_EXCLUDES(mutex_) {
    if (number == kEnd) return false;
    if (number != SIGWINCH && number != SIGTSTP) End(number);
    base::MutexLock lock(mutex_);
    if (number == SIGTSTP) {
      Leave();
      raise(SIGSTOP);  // Stops all threads; SIGCONT goes on here.
      Enter();
    }
    (void)Draw();
    return true;
  }

  // Gives the terminal back and keeps the lock, so that nothing is drawn any more. A terminal that takes nothing (a
  // line that hangs) is waited for no longer than some kPatienceMs: who ends a program wants it to end.
  void LeaveForGood() GYROSTAT_TSA(no_thread_safety_analysis) {
    bool mine = mutex_.try_lock();
    for (int tries = 0; !mine && tries < kPatienceMs / kTryMs; ++tries) {
      poll(nullptr, 0, kTryMs);
      mine = mutex_.try_lock();
    }
    pollfd out{STDOUT_FILENO, POLLOUT, 0};
    if (mine && poll(&out, 1, kPatienceMs) > 0) Leave();
  }

  // The signal does what it always does, so that a shell sees how the program ended.
  [[noreturn]] void End(int number) GYROSTAT_EXCLUDES(mutex_) {
    LeaveForGood();
    std::signal(number, SIG_DFL);
    kill(getpid(), number);
    while (true) pause();
  }

  // The other thread waits for the daemon, maybe for long; there is nothing of it to save.
  [[noreturn]] void Quit() GYROSTAT_EXCLUDES(mutex_) {
    LeaveForGood();
    _exit(kDone);
  }

  const std::function<Size()> size_;
  const Picture picture_;
  std::array<int, 2> pipe_{};
  std::array<struct sigaction, kSignals.size()> before_{};
  std::thread thread_;
  std::atomic<bool> keys_{false};

  base::Mutex mutex_;
  bool open_ GYROSTAT_GUARDED_BY(mutex_) = false;
  termios cooked_ GYROSTAT_GUARDED_BY(mutex_){};
};

}  // namespace

std::unique_ptr<Stage> OpenStage(std::function<Size()> size, Picture picture) {
  return std::make_unique<TerminalStage>(std::move(size), std::move(picture));
}

}  // namespace gyrostat::ctl
