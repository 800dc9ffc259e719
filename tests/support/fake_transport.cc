#include "support/fake_transport.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/archive.h"
#include "base/bytes.h"

namespace gyrostat::testing {
namespace {

// The newest; null when no test has one, then the link is down for ever.
std::mutex g_mutex;
FakeDaemon* g_daemon = nullptr;

template <class T>
T Decode(std::string_view bytes) {
  base::ByteReader reader(bytes);
  T value;
  base::LoadFrom(&reader, &value);
  return value;
}

}  // namespace

struct FakeTable {
  static void* Open(const char* address, char* reason, size_t reason_size) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    if (std::strcmp(address, "bad") == 0) {
      std::strncpy(reason, "the address is bad", reason_size - 1);
      return nullptr;
    }
    if (g_daemon != nullptr) {
      const std::lock_guard<std::recursive_mutex> inner(g_daemon->mutex_);
      if (++g_daemon->opened_ > 1) ++g_daemon->stream_;
    }
    return &g_daemon;  // Any address that is not null.
  }
  static client::LinkState State(void*, uint64_t* stream, char* detail, size_t detail_size) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    if (g_daemon == nullptr) return client::LinkState::kDown;
    const std::lock_guard<std::recursive_mutex> inner(g_daemon->mutex_);
    *stream = g_daemon->stream_;
    if (g_daemon->up_) return client::LinkState::kUp;
    std::strncpy(detail, g_daemon->detail_.c_str(), detail_size - 1);
    return client::LinkState::kDown;
  }
  static bool Send(void*, client::WireKind kind, const char* bytes, size_t size) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    return g_daemon != nullptr && g_daemon->Take(kind, {bytes, size});
  }
  static bool Receive(void*, client::DownMessage* message) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    return g_daemon != nullptr && g_daemon->Give(message);
  }
  static bool Flushed(void*) { return true; }
  static void Close(void*, uint32_t) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    if (g_daemon == nullptr) return;
    const std::lock_guard<std::recursive_mutex> inner(g_daemon->mutex_);
    ++g_daemon->closed_;
    g_daemon->down_.clear();
  }
};

FakeDaemon::FakeDaemon() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_daemon = this;
}

FakeDaemon::~FakeDaemon() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_daemon == this) g_daemon = nullptr;
}

const client::TransportApi* FakeDaemon::Table() {
  static constexpr client::TransportApi kTable = {client::kTransportAbi, &FakeTable::Open,    &FakeTable::State,
                                                  &FakeTable::Send,      &FakeTable::Receive, &FakeTable::Flushed,
                                                  &FakeTable::Close};
  return &kTable;
}

bool FakeDaemon::Take(client::WireKind kind, std::string_view bytes) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (!up_ || jammed_) return false;
  switch (kind) {
    case client::WireKind::kHello:
      hellos_.push_back(Decode<model::Hello>(bytes));
      kinds_ += 'h';
      down_.clear();
      if (auto_welcome_) Welcome(safe_);
      break;
    case client::WireKind::kReport:
      reports_.push_back(Decode<model::Report>(bytes));
      kinds_ += 'r';
      if (auto_acknowledge_) Acknowledge(reports_.back().sequence);
      break;
    case client::WireKind::kAck:
      acks_.push_back(Decode<model::Ack>(bytes));
      kinds_ += 'a';
      break;
    case client::WireKind::kBye: {
      base::ByteReader reader(bytes);
      byes_.push_back(reader.GetString());
      kinds_ += 'b';
      break;
    }
  }
  return true;
}

bool FakeDaemon::Give(client::DownMessage* message) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (!up_ || down_.empty()) return false;
  Down next = std::move(down_.front());
  down_.pop_front();
  current_ = std::move(next.bytes);
  *message = {next.kind, next.sequence, current_.data(), current_.size()};
  return true;
}

void FakeDaemon::GoDown(std::string detail) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  up_ = false;
  detail_ = std::move(detail);
}

void FakeDaemon::GoUp() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  up_ = true;
  ++stream_;
}

void FakeDaemon::AutoWelcome(bool on) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  auto_welcome_ = on;
}

void FakeDaemon::AutoAcknowledge(bool on) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  auto_acknowledge_ = on;
}

void FakeDaemon::Jam(bool on) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  jammed_ = on;
}

void FakeDaemon::Welcome(uint64_t sequence) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  down_.push_back({client::DownKind::kWelcome, sequence, {}});
}

void FakeDaemon::Acknowledge(uint64_t sequence) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  safe_ = std::max(safe_, sequence);
  down_.push_back({client::DownKind::kAcknowledged, sequence, {}});
}

void FakeDaemon::Send(const model::Order& order) {
  base::ByteWriter writer;
  base::SaveTo(&writer, order);
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  down_.push_back({client::DownKind::kOrder, 0, writer.Take()});
}

void FakeDaemon::SendGarbage() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  down_.push_back({client::DownKind::kOrder, 0, "no order"});
}

std::vector<model::Hello> FakeDaemon::hellos() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return hellos_;
}
std::vector<model::Report> FakeDaemon::reports() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return reports_;
}
std::vector<model::Ack> FakeDaemon::acks() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return acks_;
}
std::vector<std::string> FakeDaemon::byes() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return byes_;
}
std::string FakeDaemon::order_of_messages() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return kinds_;
}
int FakeDaemon::opened() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return opened_;
}
int FakeDaemon::closed() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return closed_;
}

bool FakeDaemon::Wait(const std::function<bool(const FakeDaemon&)>& condition) const {
  // Polled: the client has nothing that could notify a test. The condition variable only passes the time.
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock<std::mutex> lock(mutex);
  for (int i = 0; i < 300'000; ++i) {
    if (condition(*this)) return true;
    never.wait_for(lock, std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace gyrostat::testing

extern "C" const gyrostat::client::TransportApi* gyrostat_transport_v1() {
  return gyrostat::testing::FakeDaemon::Table();
}
