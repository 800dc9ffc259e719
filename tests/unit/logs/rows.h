// Reads text as a log would be read, in pieces of several sizes, and keeps what came out.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "logs/assembler.h"
#include "logs/log_file.h"
#include "logs/reader.h"
#include "support/paths.h"

namespace gyrostat::logs {

struct RunSeen {
  std::string name;
  model::ModelSpec spec;
  model::AttnLogitInfo attn;
  std::vector<Row> rows;

  std::vector<model::Step> Steps() const {
    std::vector<model::Step> steps;
    for (const Row& row : rows) steps.push_back(row.report.step);
    return steps;
  }
  // Of the rows that have it.
  std::vector<double> Values(model::Signal signal) const {
    std::vector<double> values;
    for (const Row& row : rows)
      if (row.report.Has(signal)) values.push_back(row.report.Scalar(signal));
    return values;
  }
  std::vector<double> Losses() const { return Values(model::Signal::kLoss); }
};

class Rows : public RowSink {
 public:
  void OnRun(size_t run, const std::string& name, const model::ModelSpec& spec,
             const model::AttnLogitInfo& attn) override {
    if (runs.size() <= run) runs.resize(run + 1);
    runs[run].name = name;
    runs[run].spec = spec;
    runs[run].attn = attn;
  }
  void OnRow(const Row& row) override { runs[row.run].rows.push_back(row); }

  std::vector<RunSeen> runs;
  Losses losses;
};

inline Rows ReadInPieces(Format format, std::string_view text, size_t piece, const KeyOptions& keys) {
  Rows rows;
  Assembler assembler("file", keys, &rows);
  const auto reader = MakeReader(format, &assembler);
  for (size_t at = 0; at < text.size(); at += piece) reader->Feed(text.substr(at, piece));
  reader->Finish();
  assembler.Finish();
  rows.losses = assembler.losses();
  return rows;
}

inline void ExpectSame(const Rows& a, const Rows& b) {
  ASSERT_EQ(a.runs.size(), b.runs.size());
  EXPECT_EQ(a.losses.skipped_rows, b.losses.skipped_rows);
  EXPECT_EQ(a.losses.warnings, b.losses.warnings);
  for (size_t r = 0; r < a.runs.size(); ++r) {
    EXPECT_EQ(a.runs[r].name, b.runs[r].name);
    ASSERT_EQ(a.runs[r].rows.size(), b.runs[r].rows.size());
    for (size_t i = 0; i < a.runs[r].rows.size(); ++i) {
      const Row &x = a.runs[r].rows[i], &y = b.runs[r].rows[i];
      base::ByteWriter left, right;  // Bit for bit: NaN equals itself there.
      base::SaveTo(&left, x.report);
      base::SaveTo(&right, y.report);
      EXPECT_EQ(left.bytes(), right.bytes()) << "row " << i;
      EXPECT_EQ(x.line, y.line);
      EXPECT_EQ(x.attempt, y.attempt);
    }
  }
}

// Whole; and in pieces of 1, 7 and 64 bytes, which must give the same.
inline Rows Read(Format format, std::string_view text, const KeyOptions& keys = {}) {
  const Rows whole = ReadInPieces(format, text, text.size() + 1, keys);
  for (const size_t piece : {1, 7, 64}) ExpectSame(ReadInPieces(format, text, piece, keys), whole);
  return whole;
}

// Of a text that holds one run.
inline RunSeen ReadOne(Format format, std::string_view text, const KeyOptions& keys = {}) {
  const Rows rows = Read(format, text, keys);
  EXPECT_EQ(rows.runs.size(), 1u);
  return rows.runs.empty() ? RunSeen() : rows.runs[0];
}

// A file of tests/corpus.
inline std::string OwnLog(const std::string& name) {
  std::ifstream in(std::string(testing::kSourceDir) + "/tests/corpus/" + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace gyrostat::logs
