#include "logs/jsonl.h"

#include "logs/spec.h"

namespace gyrostat::logs {

bool TakeGyrostatHeader(const Record& record, RecordSink* sink, Header* header) {
  if (!IsHeader(record)) return false;
  *header = {};
  for (size_t i = 0; i < record.size(); ++i) {
    if (record[i].key == "run") header->run = record[i].text;
    if (record[i].key == "attempt") header->attempt = record[i].text;
  }
  const SpecRead read = ReadSpec(record, "model/");
  for (const std::string& each : read.errors) sink->Warn("header: " + each);
  for (const std::string& each : read.unknown) sink->Warn("header: " + each + " of the model is not known");
  header->spec = read.spec;
  header->attn = ReadAttnLogit(record);
  sink->TakeHeader(*header);
  return true;
}

void JsonlReader::OnObject(uint64_t number) {
  Record& record = builder_.record;
  if (TakeGyrostatHeader(record, sink(), &header_)) return;
  record.line = number;
  record.run = header_.run;
  record.rank = rank_;
  record.verbatim = !header_.attempt.empty();
  sink()->TakeRecord(record);
}

void JsonlReader::OnLine(std::string_view line, uint64_t number, bool complete) {
  line = WithoutRank(WithoutAnsi(line, &scratch_), &rank_);
  const size_t open = line.find('{');
  if (open == std::string_view::npos) {
    if (line.find_first_not_of(" \t") != std::string_view::npos) sink()->Skip(number, "it holds no JSON object");
    return;
  }
  line.remove_prefix(open);
  while (!line.empty()) {
    builder_.Clear();
    scanner_.Reset();
    const size_t used = scanner_.Feed(line, true);
    if (scanner_.failed() || !scanner_.AtTop()) {
      if (complete)
        sink()->Skip(number, "it is no JSON: " + (scanner_.failed() ? scanner_.error() : "it ends too early"));
      else sink()->Warn("the last line is cut off in the middle");
      return;
    }
    OnObject(number);
    line.remove_prefix(used);
    const size_t next = line.find('{');
    line = next == std::string_view::npos ? std::string_view() : line.substr(next);
  }
}

}  // namespace gyrostat::logs
