// One thread that runs all-reduces in the order in which they were begun, so that begin returns at once.
//
// A round is a MAX or a SUM over a copy of the caller's lanes: the last round of a client is not waited for, and its
// lanes are gone when it ends. At most one of each kind is under way: ranks begin them in the same order, so the thread
// may run them blocking, one after the other. Once a round has failed all later ones fail without being tried: the
// ranks are no longer in step.
//
// Begin, Wait, Done and the destructor belong to one thread. Signals are blocked in the worker's.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace gyrostat::collectives {

enum class Reduction { kMax = 0, kSum = 1 };

class RoundWorker {
 public:
  // Reduces in place; "" or what went wrong. Runs on the worker's thread; must not throw.
  using Reduce = std::function<std::string(Reduction, float* lanes, size_t count)>;

  // Starts the thread. `reduce` and all it holds are destroyed on it once it ends, or never if it hangs.
  static std::unique_ptr<RoundWorker> Start(Reduce reduce, std::string* error);
  ~RoundWorker();
  RoundWorker(const RoundWorker&) = delete;
  RoundWorker& operator=(const RoundWorker&) = delete;

  // False, with a reason in error(): one of this kind is under way, an earlier round failed, or memory ran out.
  bool Begin(Reduction kind, const float* lanes, size_t count);
  // Blocks until the round of this kind is over, and writes what it brought. False: it failed, none was begun, or it
  // had another count; `lanes` are then as they were.
  bool Wait(Reduction kind, float* lanes, size_t count);
  // Whether no round is under way, so that a Wait comes back at once. Takes no lock.
  bool Done() const;
  // Whether all that was begun was over within `budget`; then ends the thread. Afterwards every Begin fails.
  bool Finish(std::chrono::milliseconds budget);

  const std::string& error() const { return error_; }

 private:
  struct Shared;
  explicit RoundWorker(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::shared_ptr<Shared> shared_;
  std::string error_;
};

}  // namespace gyrostat::collectives
