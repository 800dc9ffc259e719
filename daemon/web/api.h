// The page's API: JSON for people and programs on this machine. README.md here lists the targets.
//
// Reads come from the published copies and, few at a time, from History; nothing here can hold ingestion up. What
// changes something is posted to the engine and answered once it is durable.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/ports.h"
#include "web/event_streams.h"
#include "web/http.h"
#include "web/past.h"

namespace gyrostat::web {

struct ApiOptions {
  std::string version;
  // Of the history at a time, those that wait for their turn, and for how long; others are told to come again, since
  // /metrics needs a thread too.
  size_t history_reads_max = 2, history_waiting_max = 1;
  base::Milliseconds history_wait{2000};
  base::Milliseconds settle_timeout{10000};  // For an approval to become durable.
};

// Thread-safe.
class Api {
 public:
  // All pointers outlive it. `not_ready_reason` is empty when all is well; it must not block.
  Api(ApiOptions options, engine::Engine* engine, engine::History* history, EventStreams* streams,
      std::function<std::string()> not_ready_reason);

  // Any request below /api/ that guard.h has let pass. Never throws.
  Reply Answer(const Request& request);

 private:
  using Parts = std::vector<std::string>;
  Reply Run(const std::string& run, const Parts& rest, const Request& request);
  Reply Whole(const std::string& run);
  Reply Now(const std::string& run, const Query& query);
  Reply Series(const std::string& run, const Query& query);
  Reply Heat(const std::string& run, const Query& query);
  Reply Heads(const engine::RunState& run, const StoredReport& stored, model::Signal signal);
  Reply Events(const std::string& run, const Query& query);
  Reply Settle(const std::string& id, const std::string& verdict, const std::string& body);
  // Runs `read` in its turn, unless too many are under way.
  Reply FromHistory(const std::function<Reply()>& read);
  bool TakeTurn();

  const ApiOptions options_;
  engine::Engine* const engine_;
  engine::History* const history_;
  EventStreams* const streams_;
  const std::function<std::string()> not_ready_reason_;
  base::Mutex mutex_;
  base::CondVar turn_;
  size_t reads_ GYROSTAT_GUARDED_BY(mutex_) = 0, waiting_ GYROSTAT_GUARDED_BY(mutex_) = 0;
};

}  // namespace gyrostat::web
