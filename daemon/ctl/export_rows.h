// Reports of a run as rows of gyrostat JSONL (design.md §8; logs/README.md says what attempts and the rest look like)
// or of a table. Pure: text is appended to a string.
//
// Numbers are the shortest decimals that read back as the same number, so a replay sees what the daemon saw.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gyrostat/v1/control.pb.h"
#include "logs/keys.h"
#include "model/signal.h"

namespace gyrostat::ctl {

// A row a report. What a reader knows without being told is left out (sequences that count up and the like).
class JsonlRows {
 public:
  explicit JsonlRows(std::string run) : run_(std::move(run)), keys_({}) {}

  // A header, then the reports of `chunk`.
  void Append(const v1::ExportChunk& chunk, std::string* out);

 private:
  void Header(const v1::ExportChunk& chunk, std::string* out);
  void Row(const v1::Report& report, std::string* out);
  void Array(const v1::SignalValues& array, std::string* out) const;
  void User(const v1::Report& report, std::string* out);
  void Bookkeeping(const v1::Report& report, std::string* out);

  const std::string run_;
  logs::KeyMap keys_;
  uint32_t layers_ = 0, heads_ = 0;  // Of the attempt; 0: not known.
  // Of the row before, of the attempt.
  uint64_t sequence_ = 0, boundary_ = 0, epoch_ = 0, ledger_version_ = 0;
  int64_t step_ = 0;
  bool first_ = true;
  int kind_ = 0;  // As the header says.
};

// A column a value, so all reports are looked at before the first row can be written.
class CsvRows {
 public:
  void Look(const v1::ExportChunk& chunk);
  // Once everything was looked at.
  void AppendHeader(std::string* out);
  void Append(const v1::ExportChunk& chunk, std::string* out);

 private:
  // How an array is laid out in a row; `rows` is 0 where it is flat.
  struct Layout {
    size_t flat = 0, rows = 0, columns = 0;
  };
  void Attempt(const v1::ExportChunk& chunk);
  Layout LayoutOf(model::Signal signal, size_t size) const;
  void Row(const v1::Report& report, std::string* out);

  std::map<model::Signal, Layout> arrays_;  // The widest of each.
  std::map<model::Signal, bool> scalars_;
  std::vector<std::string> users_;
  uint32_t layers_ = 0, heads_ = 0;
  uint32_t attempt_ = 0;  // From 1.
  // Scratch of a row.
  std::map<std::string, double> user_values_;
};

}  // namespace gyrostat::ctl
