// Reads a recorded run (gyrostat JSONL, plain or gzip) into reports, for tests that judge detectors on real training.
// Only what the files of $GYROSTAT_RUNS hold; the product's own readers of foreign logs are not this.
#pragma once

#include <string>
#include <vector>

#include "model/model_spec.h"
#include "model/report.h"

namespace gyrostat::testing {

struct RecordedRun {
  std::string name;
  model::ModelSpec spec;
  std::vector<model::Report> reports;  // Sequences count from 1; boundaries equal steps.
};

// `*error` says which line of which file is not what it should be; the run is then empty.
RecordedRun ReadRecordedRun(const std::string& path, std::string* error);

}  // namespace gyrostat::testing
