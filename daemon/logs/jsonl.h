// JSON lines: one object a line, rows of a run; gyrostat's own export, which has a header, too.
#pragma once

#include "logs/json_record.h"
#include "logs/json_scan.h"
#include "logs/lines.h"

namespace gyrostat::logs {

// What stands before the first { of a line (a logger's prefix) is not read.
class JsonlReader : public LineReader {
 public:
  explicit JsonlReader(RecordSink* sink) : LineReader(sink), scanner_(&builder_) {}

 protected:
  void OnLine(std::string_view line, uint64_t number, bool complete) override;

 private:
  void OnObject(uint64_t number);

  RecordBuilder builder_;
  JsonScanner scanner_;
  std::string run_;  // Of the newest header.
};

// Hands a header to the sink; false: `record` is none. `*run` gets its run.
bool TakeGyrostatHeader(const Record& record, RecordSink* sink, std::string* run);

}  // namespace gyrostat::logs
