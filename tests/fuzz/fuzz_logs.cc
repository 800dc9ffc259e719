// Any bytes as a log of any format: rows or none, never a crash, and the same rows however the bytes are cut.
// The first byte picks the format (0: it is found), the second the size of the pieces.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/archive.h"
#include "logs/assembler.h"
#include "logs/reader.h"

namespace {

using gyrostat::logs::Assembler;

// What must hold of every row, and a number that stands for all of them.
class Rows : public gyrostat::logs::RowSink {
 public:
  uint64_t sum = 14695981039346656037u;

  void OnRun(size_t, const std::string&, const gyrostat::model::ModelSpec& spec,
             const gyrostat::model::AttnLogitInfo&) override {
    if (spec.layers > gyrostat::model::kLayersMax || spec.heads > gyrostat::model::kHeadsMax) std::abort();
  }
  void OnRow(const gyrostat::logs::Row& row) override {
    const int64_t step = row.report.step;
    if (row.report.sequence == 0) std::abort();
    // Steps rise in an attempt.
    if (!row.verbatim && row.run == run_ && row.attempt == attempt_ && any_ && step <= step_) std::abort();
    run_ = row.run;
    attempt_ = row.attempt;
    step_ = step;
    any_ = true;
    gyrostat::base::ByteWriter bytes;
    gyrostat::base::SaveTo(&bytes, row.report);
    for (const char c : bytes.bytes()) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }

 private:
  size_t run_ = 0;
  uint32_t attempt_ = 0;
  int64_t step_ = 0;
  bool any_ = false;
};

uint64_t Read(gyrostat::logs::Format format, std::string_view bytes, size_t piece) {
  Rows rows;
  Assembler assembler("fuzz", {}, &rows);
  const auto reader = gyrostat::logs::MakeReader(format, &assembler);
  for (size_t at = 0; at < bytes.size(); at += piece) reader->Feed(bytes.substr(at, piece));
  reader->Finish();
  assembler.Finish();
  if (assembler.losses().warnings.size() > 100) std::abort();
  return rows.sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto formats = gyrostat::logs::Formats();
  const gyrostat::logs::Format format = formats[data[0] % formats.size()];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (Read(format, bytes, bytes.size() + 1) != Read(format, bytes, 1 + data[1] % 64)) std::abort();
  return 0;
}
