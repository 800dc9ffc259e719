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
  base::Gauge writable;                // 1; 0 from a failed transaction until the next that succeeds.
};

}  // namespace gyrostat::store
