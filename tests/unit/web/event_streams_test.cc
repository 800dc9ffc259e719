#include "web/event_streams.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "support/manual_clock.h"
#include "support/plain_run.h"

namespace gyrostat::web {
namespace {

using testing::IdOf;
using State = std::shared_ptr<const engine::RunState>;

// The far end of a stream. What it waits for must come within minutes, which only what hangs meets.
class Peer {
 public:
  Peer() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ours_ = fds[0];
    theirs_ = fds[1];
    const int small = 8192;
    setsockopt(theirs_, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
  }
  ~Peer() { Close(); }
  int theirs() const { return theirs_; }  // Owned by the streams once added.
  void Close() {
    if (ours_ >= 0) close(std::exchange(ours_, -1));
  }
  // Reads until `wanted` has come; false at the end of the stream.
  bool ReadUntil(const std::string& wanted) {
    while (heard_.find(wanted) == std::string::npos)
      if (!ReadSome()) return false;
    heard_.erase(0, heard_.find(wanted) + wanted.size());
    return true;
  }
  void Say(const std::string& bytes) { send(ours_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }
  bool ReachesEnd() {
    while (ReadSome()) {}
    return ended_;
  }
  const std::string& heard() const { return heard_; }

 private:
  bool ReadSome() {
    pollfd p{ours_, POLLIN, 0};
    if (poll(&p, 1, 300'000) <= 0) return false;
    char bytes[65536];
    const ssize_t n = recv(ours_, bytes, sizeof(bytes), 0);
    ended_ = n <= 0;
    if (n > 0) heard_.append(bytes, static_cast<size_t>(n));
    return n > 0;
  }
  int ours_ = -1, theirs_ = -1;
  bool ended_ = false;
  std::string heard_;
};

class EventStreamsTest : public ::testing::Test {
 protected:
  void Start(EventStreamsOptions options, const base::Clock* clock = &base::SystemClock()) {
    streams_ = std::make_unique<EventStreams>(options, [this](const std::string& run) { return Find(run); }, &probe_,
                                              clock);
  }
  absl::StatusOr<State> Find(const std::string& run) {
    base::MutexLock lock(mutex_);
    const auto it = runs_.find(run);
    if (it == runs_.end()) return absl::NotFoundError("no");
    return it->second;
  }
  void Publish(const std::string& run, model::Step step, size_t values = 8) {
    auto state = std::make_shared<engine::RunState>();
    state->run = run;
    state->step = step;
    state->last = testing::PlainReport(static_cast<uint64_t>(step));
    state->last.MutableArray(model::Signal::kAttnLogitMax).assign(values, 1.5f);
    base::MutexLock lock(mutex_);
    runs_[run] = state;
  }
  void Forget(const std::string& run) {
    base::MutexLock lock(mutex_);
    runs_.erase(run);
  }
  void Add(Peer* peer, const std::string& run = "a") {
    streams_->Add(peer->theirs(), run, kEventIntervalMin, streams_->Reserve());
  }

  base::Mutex mutex_;
  std::map<std::string, State> runs_ GYROSTAT_GUARDED_BY(mutex_);
  Probe probe_;
  testing::ManualClock clock_;  // For who starts the streams with it.
  std::unique_ptr<EventStreams> streams_;
};

TEST_F(EventStreamsTest, TellsTheNewestAtOnceAndThenWhatChanges) {
  Publish("a", 1);
  Start({});
  Peer peer, other;
  Add(&peer);
  Add(&other);
  EXPECT_TRUE(peer.ReadUntil("data: {\"run\":\"a\"") && peer.ReadUntil("\"step\":1,") && peer.ReadUntil("}\n\n"));
  Publish("a", 2);
  EXPECT_TRUE(peer.ReadUntil("\"step\":2,"));
  EXPECT_TRUE(other.ReadUntil("\"step\":2,"));
  EXPECT_EQ(probe_.event_streams_open.value(), 2);
  streams_->Stop();
  EXPECT_TRUE(peer.ReachesEnd());
  EXPECT_EQ(probe_.event_streams_open.value(), 0);
}

TEST_F(EventStreamsTest, SaysThatARunIsGoneAndEnds) {
  Publish("a", 1);
  Start({});
  Peer peer;
  Add(&peer);
  ASSERT_TRUE(peer.ReadUntil("\n\n"));
  Forget("a");
  EXPECT_TRUE(peer.ReadUntil("event: gone\ndata: {}\n\n"));
  EXPECT_TRUE(peer.ReachesEnd());
}

TEST_F(EventStreamsTest, SendsAHeartbeatWhereNothingChanges) {
  Publish("a", 1);
  Start({.heartbeat = base::Milliseconds(60)});
  Peer peer;
  Add(&peer);
  EXPECT_TRUE(peer.ReadUntil("}\n\n") && peer.ReadUntil(": \n\n") && peer.ReadUntil(": \n\n"));
  EXPECT_EQ(probe_.events_sent_total.value(), 1u);
}

TEST_F(EventStreamsTest, CutsAReaderThatTakesNothingAndSparesTheOthers) {
  Publish("a", 1, 1 << 20);
  // By the real clock an eager reader that gets no core would be a lazy one.
  Start({.take_timeout = base::Milliseconds(3000)}, &clock_);
  Peer lazy, eager;
  Add(&lazy);
  Add(&eager);
  ASSERT_TRUE(eager.ReadUntil("}\n\n"));
  Publish("a", 2);
  clock_.Advance(kEventIntervalMin);
  EXPECT_TRUE(eager.ReadUntil("\"step\":2,"));
  EXPECT_TRUE(eager.ReadUntil("}\n\n"));
  clock_.Advance(base::Milliseconds(3000));
  while (probe_.event_readers_cut_total.value() == 0) std::this_thread::yield();
  EXPECT_TRUE(lazy.ReachesEnd());
  EXPECT_EQ(lazy.heard().find("\"step\":2,"), std::string::npos) << "nothing is queued behind what is not taken";
}

TEST_F(EventStreamsTest, ClosesPeersThatGoAndPeersThatTalk) {
  Publish("a", 1);
  Start({.streams_max = 2});
  Peer gone, talks;
  Add(&gone);
  Add(&talks);
  EXPECT_EQ(streams_->Reserve(), nullptr) << "both places are taken";
  ASSERT_TRUE(gone.ReadUntil("\n\n"));
  gone.Close();
  talks.Say(std::string(16384, 'x'));
  EXPECT_TRUE(talks.ReachesEnd());
  std::shared_ptr<void> one, two;
  while (one == nullptr || two == nullptr) (one == nullptr ? one : two) = streams_->Reserve();
}

TEST_F(EventStreamsTest, TakesNothingAfterStop) {
  Publish("a", 1);
  Start({});
  streams_->Stop();
  streams_->Stop();
  Peer late;
  Add(&late);
  EXPECT_TRUE(late.ReachesEnd());
  EXPECT_EQ(probe_.event_streams_open.value(), 0);
}

}  // namespace
}  // namespace gyrostat::web
