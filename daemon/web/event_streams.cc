#include "web/event_streams.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "web/json.h"

namespace gyrostat::web {
namespace {

using State = std::shared_ptr<const engine::RunState>;
using Text = std::shared_ptr<const std::string>;

// A peer of an event stream has nothing to say.
constexpr size_t kHeardBytesMax = 4096;

struct Stream {
  int socket = -1;
  std::string run;
  base::Milliseconds interval{0};
  std::shared_ptr<void> place;
  base::MonotonicTime next;       // Not before.
  base::MonotonicTime moved;      // When the peer last took something, or was given something new.
  State told;                     // What it has heard.
  Text text;                      // Under way; null when all of it is taken.
  size_t sent = 0, heard = 0;
  bool last = false;              // Ends after `text`.
};

}  // namespace

struct EventStreams::Impl {
  Impl(EventStreamsOptions o, Find f, Probe* p, const base::Clock* c)
      : options(o), find(std::move(f)), probe(p), clock(c), wake_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        places(std::make_shared<std::atomic<size_t>>(0)), thread([this] { Loop(); }) {}

  void Wake() {
    const uint64_t one = 1;
    GYROSTAT_CHECK(write(wake_fd, &one, sizeof(one)) == sizeof(one));
  }

  void Loop() {
    while (true) {
      {
        base::MutexLock lock(mutex);
        for (Stream& each : arrived) streams.push_back(std::move(each));
        arrived.clear();
        if (stopping) break;
      }
      const base::MonotonicTime now = clock->Now();
      std::map<std::string, std::pair<State, Text>> rendered;
      for (Stream& each : streams)
        if (!each.text && each.next <= now) Refresh(&each, now, &rendered);
      const base::MonotonicTime after = clock->Now();  // Rendering took its time, which is nobody's but ours.
      for (Stream& each : streams)
        if (each.moved == now) each.moved = after;
      std::erase_if(streams, [&](Stream& each) { return !Push(&each, after) && Close(&each); });
      WaitAndHear();
    }
    for (Stream& each : streams) Close(&each);
    streams.clear();
  }

  // Gives the stream its next text, where there is one.
  void Refresh(Stream* stream, base::MonotonicTime now, std::map<std::string, std::pair<State, Text>>* rendered) {
    stream->next = now + stream->interval;
    auto& [state, text] = (*rendered)[stream->run];
    if (!state) {
      const auto found = find(stream->run);
      if (!found.ok()) {
        // The browser would come again for ever; the page hears that there is nothing more.
        Give(stream, std::make_shared<const std::string>("event: gone\ndata: {}\n\n"), now);
        stream->last = true;
        return;
      }
      state = *found;
    }
    if (state == stream->told) {
      if (now - stream->moved >= options.heartbeat) Give(stream, std::make_shared<const std::string>(": \n\n"), now);
      return;
    }
    if (!text) text = std::make_shared<const std::string>("data: " + EventJson(*state) + "\n\n");
    stream->told = state;
    Give(stream, text, now);
    probe->events_sent_total.Add();
  }

  static void Give(Stream* stream, Text text, base::MonotonicTime now) {
    stream->text = std::move(text);
    stream->sent = 0;
    stream->moved = now;
  }

  // Sends what the socket takes. False: the stream is over.
  bool Push(Stream* stream, base::MonotonicTime now) {
    if (stream->socket < 0) return false;
    while (stream->text) {
      const ssize_t n = send(stream->socket, stream->text->data() + stream->sent, stream->text->size() - stream->sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) {
        if (now - stream->moved < options.take_timeout) return true;
        probe->event_readers_cut_total.Add();
        return false;
      }
      if (n <= 0) return false;
      stream->moved = now;
      stream->sent += static_cast<size_t>(n);
      if (stream->sent == stream->text->size()) stream->text = nullptr;
    }
    return !stream->last;
  }

  // Until a stream's time has come, a socket moves, or somebody wakes us.
  void WaitAndHear() {
    std::vector<pollfd> fds = {{wake_fd, POLLIN, 0}};
    base::MonotonicTime until = clock->Now() + base::Milliseconds(1000);
    for (const Stream& each : streams) {
      fds.push_back({each.socket, static_cast<short>(each.text ? POLLIN | POLLOUT : POLLIN), 0});
      until = std::min(until, each.text ? each.moved + options.take_timeout : each.next);
    }
    const auto left = std::chrono::ceil<base::Milliseconds>(until - clock->Now()).count();
    poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
    uint64_t ignored;
    if (fds[0].revents != 0 && read(wake_fd, &ignored, sizeof(ignored)) < 0) return;
    for (size_t i = 0; i < streams.size(); ++i)
      if ((fds[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !Hear(&streams[i])) Close(&streams[i]);
  }

  // Takes what the peer says and forgets it. False: it is gone, or talks.
  static bool Hear(Stream* stream) {
    char bytes[1024];
    const ssize_t n = recv(stream->socket, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    stream->heard += static_cast<size_t>(n);
    return n > 0 && stream->heard <= kHeardBytesMax;
  }

  // True, for std::erase_if.
  bool Close(Stream* stream) {
    if (stream->socket >= 0) {
      close(std::exchange(stream->socket, -1));
      probe->event_streams_open.Add(-1);
    }
    stream->place = nullptr;
    return true;
  }

  const EventStreamsOptions options;
  const Find find;
  Probe* const probe;
  const base::Clock* const clock;
  const int wake_fd;
  const std::shared_ptr<std::atomic<size_t>> places;  // Taken.
  std::vector<Stream> streams;                        // The thread's.
  base::Mutex mutex;
  std::vector<Stream> arrived GYROSTAT_GUARDED_BY(mutex);
  bool stopping GYROSTAT_GUARDED_BY(mutex) = false;
  std::thread thread;
};

EventStreams::EventStreams(EventStreamsOptions options, Find find, Probe* probe, const base::Clock* clock)
    : impl_(std::make_unique<Impl>(options, std::move(find), probe, clock)) {}

EventStreams::~EventStreams() {
  Stop();
  close(impl_->wake_fd);
}

std::shared_ptr<void> EventStreams::Reserve() {
  const auto places = impl_->places;
  if (places->fetch_add(1) >= impl_->options.streams_max) {
    places->fetch_sub(1);
    return nullptr;
  }
  return std::shared_ptr<void>(places.get(), [places](void*) { places->fetch_sub(1); });
}

void EventStreams::Add(int socket, const std::string& run, base::Milliseconds interval, std::shared_ptr<void> place) {
  Stream stream;
  stream.socket = socket;
  stream.run = run;
  stream.interval = std::clamp(interval, kEventIntervalMin, kEventIntervalMax);
  stream.place = std::move(place);
  stream.next = stream.moved = impl_->clock->Now();
  impl_->probe->event_streams_open.Add(1);
  {
    base::MutexLock lock(impl_->mutex);
    if (impl_->stopping) {
      impl_->Close(&stream);
      return;
    }
    impl_->arrived.push_back(std::move(stream));
  }
  impl_->Wake();
}

void EventStreams::Stop() {
  {
    base::MutexLock lock(impl_->mutex);
    if (std::exchange(impl_->stopping, true)) return;
  }
  impl_->Wake();
  impl_->thread.join();
}

}  // namespace gyrostat::web
