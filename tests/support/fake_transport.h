// A daemon at the other end of the client's seam, without gRPC: a transport library (libgyrostat_fake_transport.so)
// whose link goes up and down, whose daemon answers or does not, as a test says. Everything the client sent is there to
// be read.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "client/src/transport.h"
#include "model/intervention.h"
#include "model/report.h"

namespace gyrostat::testing {

// Thread-safe. There is one at a time: the functions of the table act on the newest.
class FakeDaemon {
 public:
  FakeDaemon();
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  // The stream breaks (with `detail`), or a new one opens.
  void GoDown(std::string detail = "the fake daemon is down");
  void GoUp();
  // Answers of the daemon. Welcomes and acknowledgements come by themselves unless switched off.
  void AutoWelcome(bool on);
  void AutoAcknowledge(bool on);
  void Welcome(uint64_t sequence);
  void Acknowledge(uint64_t sequence);
  void Send(const model::Order& order);
  void SendGarbage();
  // Whether the transport takes messages; like a daemon that is stopped.
  void Jam(bool on);

  std::vector<model::Hello> hellos() const;
  std::vector<model::Report> reports() const;
  std::vector<model::Ack> acks() const;
  // Kinds in the order of sending: h r a b.
  std::string order_of_messages() const;
  std::vector<std::string> byes() const;
  int opened() const;
  int closed() const;

  // Waits until `condition` of this daemon holds, for at most five minutes, which only what hangs meets. True when it
  // did.
  bool Wait(const std::function<bool(const FakeDaemon&)>& condition) const;

  // The table's functions.
  static const client::TransportApi* Table();

 private:
  friend struct FakeTable;
  struct Down {
    client::DownKind kind;
    uint64_t sequence = 0;
    std::string bytes;
  };
  bool Take(client::WireKind kind, std::string_view bytes);
  bool Give(client::DownMessage* message);

  mutable std::recursive_mutex mutex_;
  bool up_ = true, jammed_ = false, auto_welcome_ = true, auto_acknowledge_ = true;
  uint64_t stream_ = 1;
  uint64_t safe_ = 0;
  std::string detail_;
  std::deque<Down> down_;
  std::string current_;
  std::vector<model::Hello> hellos_;
  std::vector<model::Report> reports_;
  std::vector<model::Ack> acks_;
  std::vector<std::string> byes_;
  std::string kinds_;
  int opened_ = 0, closed_ = 0;
};

}  // namespace gyrostat::testing
