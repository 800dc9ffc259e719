// What the store counts.
#pragma once

#include "base/probe.h"

namespace gyrostat::store {

struct Probe {
  base::Counter entries_total, transactions_total;  // Written.
  base::Counter failures_total;        // Entries that could not be written.
  base::Counter left_behind_total;     // Findings, decisions and the like of failed entries that were given up, too.
  base::Counter busy_microseconds_total;  // In transactions.
  base::Gauge queue_entries;           // Waiting when the writer last looked.
  base::Gauge size_bytes;              // Of the database file, after the last transaction.
  base::Gauge history_bytes;           // Of all chunks, as retention counts them.
  base::Counter chunks_reduced_total;  // Rewritten at a lower resolution.
  base::Counter reports_dropped_total;  // Of the history, because of its age or a limit of size.
  base::Counter chunks_damaged_total;  // Found damaged by retention; left as they are and passed over.
  base::Counter damaged_reads_total;   // Reads of the history that passed over something damaged.
  base::Counter retention_failures_total;       // Pieces of its work that could not be written.
  base::Counter retention_microseconds_total;   // On the writer's thread.
  base::Gauge writable;                // 1; 0 from a failed transaction until the next that succeeds.
};

}  // namespace gyrostat::store
