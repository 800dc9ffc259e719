// One accepted socket as the HTTP library sees it, with an end: the request has a deadline and a size, the answer a
// deadline.
#pragma once

#include <httplib.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace gyrostat::web {

// Owns nothing: the caller closes `socket`. Not thread-safe.
class BoundedStream final : public httplib::Stream {
 public:
  // The request ends `timeout` from now; the answer may take as long again from its first byte. After that nothing is
  // waited for: what is there already is taken, as far as the size allows. Reading also ends when `stop_fd` becomes
  // readable.
  BoundedStream(int socket, int stop_fd, base::Milliseconds timeout, const base::Clock* clock);

  bool is_readable() const override;
  bool is_writable() const override;
  // -1 once the deadline, the size or the daemon's end is reached.
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

  // Whether the peer ran into the deadline or the size while sending its request.
  bool timed_out() const { return timed_out_; }

  // From now on what is written goes nowhere: the connection is about to be handed over.
  void Mute() { muted_ = true; }
  // Sends all of `bytes`, muted or not; false at the deadline or when the peer is gone.
  bool Send(std::string_view bytes);

  // Ends the answer in order: says that no more comes, then takes what the peer still sends, within bounds, so that its
  // kernel does not throw the answer away.
  void Finish();

 private:
  bool Wait(short events, base::MonotonicTime deadline) const;
  ssize_t WriteSome(const char* from, size_t size);

  const int socket_, stop_fd_;
  const base::Milliseconds timeout_;
  const base::Clock* const clock_;
  const base::MonotonicTime read_deadline_;
  base::MonotonicTime write_deadline_{};  // Set by the first write.
  size_t read_bytes_ = 0;
  bool timed_out_ = false, muted_ = false;
  std::array<char, 4096> buffer_;  // The library asks for one byte at a time.
  size_t begin_ = 0, end_ = 0;
};

}  // namespace gyrostat::web
