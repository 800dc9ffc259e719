// Everything the policy knows about qk_clip on one run, as one value that can be saved. The functions that work on it
// are grouped by question: ordering.h, settling.h, lifecycle.h, local_mode.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "policy/alarms.h"
#include "policy/decisions.h"
#include "policy/intents.h"
#include "policy/job.h"
#include "policy/mirror.h"
#include "policy/order_book.h"
#include "policy/run_policy.h"

namespace gyrostat::policy {

// What is wanted now: the mode in use and the options in force.
struct Terms {
  model::Mode mode;
  const PolicyOptions& options;

  double tau() const { return options.qk_clip.tau; }
  bool local() const { return options.qk_clip.where == model::ClipWhere::kLocal; }
  bool automatic() const;  // qk_clip goes without being asked for.
};

// What the client was told about clipping by itself, in this epoch.
struct LocalMode {
  std::optional<model::Order> pushed;  // The last word.
  std::optional<model::Boundary> answered_at;
  uint32_t waited = 0;                 // Fresh reports since it was pushed without an answer.
  std::optional<double> tau = 0;       // What the client has, as far as known; 0: off. Nothing: it clips unbidden.
  std::string refused;                 // Why the client will not; not asked again before the next attempt or new rules.

  template <class Archive>
  void Fields(Archive& a) { a(pushed, answered_at, waited, tau, refused); }
};

struct ClipState {
  std::string run;
  std::optional<Job> job;
  Mirror mirror;
  OrderBook book;
  IntentBook intents;
  DecisionLog decisions;
  Alarms alarms;
  TugOfWar tug;
  LocalMode local;

  RunTime base = 0, now = 0;  // now = base + boundary, going on over attempts.
  model::Step step = 0;       // Of the newest report.
  uint64_t orders_made = 0;
  uint32_t failures = 0;      // Intents that were ineffective or harmful.
  std::string disabled;       // Why the kind is off for the run; empty: it is not.
  std::string failed;         // Why the epoch gets no more orders; empty: it may.
  uint32_t late_in_row = 0;   // Orders that expired, without one applied between.
  uint32_t unread_in_row = 0; // Reports whose ledger version the mirror does not know.

  model::OrderId NextOrderId();
  RunTime TimeOf(model::Boundary boundary) const { return base + boundary; }

  template <class Archive>
  void Fields(Archive& a) {
    a(run, job, mirror, book, intents, decisions, alarms, tug, local, base, now, step, orders_made, failures, disabled,
      failed, late_in_row, unread_in_row);
  }
};

}  // namespace gyrostat::policy
