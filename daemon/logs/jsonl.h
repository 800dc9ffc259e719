// JSON lines: one object a line, rows of a run; gyrostat's own export, which has a header, too.
#pragma once

#include <optional>
#include <string>

#include "logs/json_record.h"
#include "logs/json_scan.h"
#include "logs/lines.h"

namespace gyrostat::logs {

// What stands before the first { of a line (a logger's prefix) is not read, but for a launcher's word for the rank.
class JsonlReader : public LineReader {
 public:
  explicit JsonlReader(RecordSink* sink) : LineReader(sink), scanner_(&builder_) {}

 protected:
  void OnLine(std::string_view line, uint64_t number, bool complete) override;

 private:
  void OnObject(uint64_t number);

  RecordBuilder builder_;
  JsonScanner scanner_;
  Header header_;  // The newest.
  std::string scratch_;
  std::optional<uint32_t> rank_;  // Whose line it is.
};

// Hands a header to the sink and to `*header`; false: `record` is none.
bool TakeGyrostatHeader(const Record& record, RecordSink* sink, Header* header);

}  // namespace gyrostat::logs
