#include "web/bounded_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gyrostat::web {
namespace {

// Request line and headers of any scraper or browser fit in a fraction of this; bodies are never read.
constexpr size_t kRequestBytesMax = 64 << 10;
// What a peer may still send after its answer before the connection is cut.
constexpr size_t kLingerBytesMax = 64 << 10;
constexpr base::Milliseconds kLingerMax{500};

}  // namespace

BoundedStream::BoundedStream(int socket, int stop_fd, base::Milliseconds timeout, const base::Clock* clock)
    : socket_(socket), stop_fd_(stop_fd), timeout_(timeout), clock_(clock), read_deadline_(clock->Now() + timeout) {}

// True once `events` are there; false at the deadline, or when the daemon stops while we wait to read. What is there
// counts after the deadline as well: a daemon that got no core meanwhile must not blame its peer.
bool BoundedStream::Wait(short events, base::MonotonicTime deadline) const {
  while (true) {
    const auto left = std::chrono::ceil<base::Milliseconds>(deadline - clock_->Now());
    pollfd fds[2] = {{socket_, events, 0}, {stop_fd_, POLLIN, 0}};
    const nfds_t count = events == POLLIN ? 2 : 1;  // An answer under way is finished even when stopping.
    const int ready = poll(fds, count, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60000)));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0 && left.count() <= 0) return false;
    if (ready <= 0) continue;
    if (fds[0].revents != 0) return true;
    return false;
  }
}

bool BoundedStream::is_readable() const { return begin_ < end_ || Wait(POLLIN, read_deadline_); }

bool BoundedStream::is_writable() const { return Wait(POLLOUT, clock_->Now() + timeout_); }

ssize_t BoundedStream::read(char* to, size_t size) {
  if (begin_ == end_) {
    if (read_bytes_ >= kRequestBytesMax || !Wait(POLLIN, read_deadline_)) {
      timed_out_ = true;
      return -1;
    }
    const ssize_t got = recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (got <= 0) return got;
    read_bytes_ += static_cast<size_t>(got);
    begin_ = 0;
    end_ = static_cast<size_t>(got);
  }
  const size_t n = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t BoundedStream::write(const char* from, size_t size) {
  return muted_ ? static_cast<ssize_t>(size) : WriteSome(from, size);
}

bool BoundedStream::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = WriteSome(bytes.data(), bytes.size());
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

ssize_t BoundedStream::WriteSome(const char* from, size_t size) {
  if (write_deadline_ == base::MonotonicTime{}) write_deadline_ = clock_->Now() + timeout_;
  while (true) {
    if (!Wait(POLLOUT, write_deadline_)) return -1;
    const ssize_t sent = send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0 || (errno != EAGAIN && errno != EINTR)) return sent;
  }
}

// Nobody may be told apart by address: all peers are loopback.
void BoundedStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}
void BoundedStream::get_local_ip_and_port(std::string& ip, int& port) const { get_remote_ip_and_port(ip, port); }

void BoundedStream::Finish() {
  shutdown(socket_, SHUT_WR);
  const base::MonotonicTime deadline = clock_->Now() + std::min(kLingerMax, timeout_);
  size_t taken = 0;
  while (taken < kLingerBytesMax && Wait(POLLIN, deadline)) {
    const ssize_t got = recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (got <= 0) return;
    taken += static_cast<size_t>(got);
  }
}

}  // namespace gyrostat::web
