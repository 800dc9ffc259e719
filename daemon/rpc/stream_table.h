// Which attempt can be reached through which stream: rpc/'s side of engine::Outbox.
//
// main.cc makes it before the engine (which sends through it) and before the server (which fills it); it outlives both.
// Knows nothing of gRPC, so that the engine's way out can be tested without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "engine/ports.h"
#include "model/ids.h"
#include "model/intervention.h"
#include "rpc/probe.h"

namespace gyrostat::rpc {

// One open stream. Thread-safe; no call blocks. All may be called after the stream ended and then do nothing.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void Deliver(const model::Order& order) = 0;
  // Everything of the attempt up to `sequence` is safe.
  virtual void Acknowledge(uint64_t sequence) = 0;
  // Ends the stream with `status`, at once.
  virtual void Cut(const absl::Status& status) = 0;
  // Takes no more messages, sends the acknowledgements still owed, then ends the stream so that the client dials again.
  virtual void Drain() = 0;
};

// Thread-safe. Calls no stream while holding its lock.
class StreamTable final : public engine::Outbox {
 public:
  // Counts a stream in; false when `streams_max` are open already, or once DrainAll was called.
  bool Open(const std::shared_ptr<Stream>& stream, size_t streams_max);
  // Makes an open stream the way to `attempt`, once. Returns the one it replaces, or null.
  std::shared_ptr<Stream> Bind(const std::shared_ptr<Stream>& stream, const std::string& run,
                               const model::AttemptId& attempt);
  // Forgets a stream, and its attempt unless another stream has taken that over. Unknown streams are ignored.
  void Close(const Stream* stream);
  void DrainAll();
  size_t size() const;
  // True once for each run, of the first 4096 that are refused.
  bool IsFirstRefusal(const std::string& run);

  // engine::Outbox.
  void SendOrder(const model::Order& order) override;
  void Acknowledge(const std::string& run, const model::AttemptId& attempt, uint64_t sequence) override;

  // The counters of the whole room: this object lives longest.
  Probe& probe() { return probe_; }

 private:
  using Key = std::pair<std::string, model::AttemptId>;
  std::shared_ptr<Stream> Find(const std::string& run, const model::AttemptId& attempt) const;

  struct Entry {
    std::shared_ptr<Stream> stream;
    std::optional<Key> key;  // Once bound.
  };

  mutable base::Mutex mutex_;
  std::map<const Stream*, Entry> open_ GYROSTAT_GUARDED_BY(mutex_);
  std::map<Key, std::shared_ptr<Stream>> bound_ GYROSTAT_GUARDED_BY(mutex_);
  std::set<std::string> refused_ GYROSTAT_GUARDED_BY(mutex_);
  bool draining_ GYROSTAT_GUARDED_BY(mutex_) = false;
  Probe probe_;
};

}  // namespace gyrostat::rpc
