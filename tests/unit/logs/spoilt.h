// Logs spoilt as files get spoilt, and how much of them is still read.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "logs/lines.h"
#include "logs/sniff.h"
#include "unit/logs/rows.h"

namespace gyrostat::logs {

// As a file would be: the format is found from the bytes.
inline Rows ReadAuto(const std::string& bytes) {
  Rows rows;
  Assembler assembler("file", {}, &rows);
  AutoReader reader(&assembler);
  for (size_t at = 0; at < bytes.size(); at += 1000) reader.Feed(std::string_view(bytes).substr(at, 1000));
  reader.Finish();
  assembler.Finish();
  rows.losses = assembler.losses();
  return rows;
}

inline size_t Steps(const Rows& rows) {
  size_t steps = 0;
  for (const RunSeen& run : rows.runs) steps += run.rows.size();
  return steps;
}

inline uint32_t Attempts(const Rows& rows) {
  uint32_t attempts = 0;
  for (const RunSeen& run : rows.runs)
    for (const Row& row : run.rows) attempts = std::max(attempts, row.attempt + 1);
  return attempts;
}

template <class Change>
std::string EachLine(const std::string& text, Change change) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += change(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

// As `srun --label` prints it: the label, at most 1,024 bytes, and the rest of the line under the label again. Other
// tasks print in between.
inline std::string Labelled(const std::string& line) {
  std::string out;
  for (size_t at = 0; at == 0 || at < line.size(); at += LineReader::kLabelledBytes)
    out += "3: " + line.substr(at, LineReader::kLabelledBytes) + "\n5: another task's line\n";
  return out;
}

}  // namespace gyrostat::logs
