// What rpc/ counts.
#pragma once

#include "base/probe.h"

namespace gyrostat::rpc {

struct Probe {
  base::Gauge streams_open, watchers_open;
  base::Counter streams_total;
  base::Counter streams_refused_total;    // Beyond streams_max, no hello in time, or a bad hello.
  base::Counter streams_replaced_total;   // Cut with ABORTED: the attempt opened a newer stream.
  base::Counter readers_cut_total;        // Did not read what was sent to them: past a byte or time cap.
  base::Counter messages_received_total, bytes_received_total;
  base::Counter reports_refused_total;    // Malformed, or refused by the engine; acknowledged so that none comes again.
  base::Counter acks_refused_total;
  base::Counter reads_paused_total;       // The engine's queue was full: the message waited, nothing was lost.
  base::Counter unknown_signals_total;    // Signal numbers of a newer client, skipped.
  base::Counter orders_undelivered_total; // No stream for the attempt; its next hello settles it.
  base::Counter history_refused_total;    // Reads for people that found the queue full.
};

}  // namespace gyrostat::rpc
