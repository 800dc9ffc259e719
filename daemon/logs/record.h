// What a reader takes out of one row, line or event of a log: names as the file writes them, and numbers. The assembler
// makes reports of it; no reader knows signals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/ids.h"
#include "model/model_spec.h"
#include "model/signal.h"

namespace gyrostat::logs {

// A scalar, an array, or a word. Absent (null, an empty cell): value is kAbsent and the rest is empty.
struct Field {
  std::string key;                        // "train/loss".
  double value = static_cast<double>(model::kAbsent);
  std::string text;                       // Of a value that is no number.
  std::vector<float> values;              // Of an array, row-major.
  uint32_t columns = 0;                   // Values in each inner array; 0: the array is flat.
};

// Reused from row to row: Clear keeps the memory.
class Record {
 public:
  std::string run;                  // Empty: the file does not say, or a field does.
  std::optional<model::Step> step;  // Where the reader knows it; else the assembler looks for a step among the fields.
  std::optional<uint32_t> rank;     // Who printed it, where the line says so.
  bool needs_step = false;          // Without a step it is prose, not a row; else such rows are numbered.
  bool verbatim = false;            // A whole report as gyrostat exported it.
  uint64_t line = 0;                // From 1; for binary files the record's number.

  void Clear();
  Field& Add(std::string_view key);
  void Add(std::string_view key, double value) { Add(key).value = value; }
  size_t size() const { return size_; }
  const Field& operator[](size_t i) const { return fields_[i]; }
  Field& operator[](size_t i) { return fields_[i]; }
  void DropLast() { --size_; }

 private:
  std::vector<Field> fields_;
  size_t size_ = 0;
};

// What a gyrostat header says (README.md here).
struct Header {
  std::string run;      // Empty: the file's only run.
  std::string attempt;  // Not empty: the rows that follow are reports of this attempt, to be taken as they are.
  model::ModelSpec spec;
  model::AttnLogitInfo attn;
};

// Where readers put what they find. Not thread-safe.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  // Before the rows that it is about.
  virtual void TakeHeader(const Header& header) = 0;
  // All names that can come, where the file tells beforehand: arrays then have their full length from the first row.
  virtual void Declare(const Record& names) = 0;
  virtual void TakeRecord(const Record& record) = 0;
  // A row that should have been data and is not. Counted; the first few are told.
  virtual void Skip(uint64_t line, std::string_view why) = 0;
  // A sentence for the person, about the file as a whole. Said once each.
  virtual void Warn(const std::string& sentence) = 0;
};

}  // namespace gyrostat::logs
