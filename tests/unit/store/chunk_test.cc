#include "store/chunk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "support/old_chunk.h"
#include "support/plain_run.h"

namespace gyrostat::store {
namespace {

using model::Report;
using model::Signal;

std::string BytesOf(const Report& report) {
  base::ByteWriter out;
  base::SaveTo(&out, report);
  return out.Take();
}

std::vector<Report> Sample(size_t count) {
  std::vector<Report> reports;
  for (size_t n = 1; n <= count; ++n) reports.push_back(testing::PlainReport(n));
  return reports;
}

ReadChunk ReadFrom(const std::string& bytes, size_t* read_bytes = nullptr) {
  return [&bytes, read_bytes](size_t offset, size_t size, char* out) {
    if (read_bytes != nullptr) *read_bytes += size;
    std::memcpy(out, bytes.data() + offset, size);
    return absl::OkStatus();
  };
}

TEST(Chunk, BringsBackEveryBit) {
  std::vector<Report> reports = Sample(64);
  reports[0].SetScalar(Signal::kLoss, std::numeric_limits<double>::quiet_NaN());
  reports[1].MutableArray(Signal::kAttnLogitMax)[3] = std::numeric_limits<float>::infinity();
  reports[2].MutableArray(Signal::kAttnLogitMax)[0] = model::kAbsent;
  reports[3].MutableArray(Signal::kAttnLogitMax).clear();
  reports[4].MutableArray(Signal::kHiddenMs) = {1, 2, 3};  // Boundaries ...
  reports[5].MutableArray(Signal::kHiddenMs) = {1, 2};     // ... or blocks.
  reports[6].user = {{"tokens", 1e6}, {"mfu", 0.4}};
  reports[7].local_clips.boundary = 6;
  reports[7].local_clips.applied = {{1}, {2}, {12345}};
  reports[8].epoch = 1;
  reports[8].step = -3;
  reports[9].dropped_hot = 7;
  ChunkContent back;
  ASSERT_TRUE(UnpackChunk(PackChunk(reports), &back).ok());
  ASSERT_EQ(back.reports.size(), reports.size());
  for (size_t i = 0; i < reports.size(); ++i) EXPECT_EQ(BytesOf(back.reports[i]), BytesOf(reports[i])) << i;
  EXPECT_EQ(back.arrived_unix_ms, std::vector<int64_t>(64, 0));
}

TEST(Chunk, KeepsWhenReportsArrived) {
  const std::vector<int64_t> arrived = {1'700'000'000'000, 1'700'000'000'250, 1'699'999'999'000};
  ChunkContent back;
  ASSERT_TRUE(UnpackChunk(PackChunk(Sample(3), arrived), &back).ok());
  EXPECT_EQ(back.arrived_unix_ms, arrived);
}

// Of an array with holes only what is there takes room; nothing of it changes.
TEST(Chunk, HoldsWhatIsLeftOfAnArrayInLittleRoom) {
  std::vector<Report> dense = Sample(64), reports = Sample(64);
  std::mt19937 random(7);
  for (size_t r = 0; r < reports.size(); ++r) {
    std::vector<float>& array = reports[r].MutableArray(Signal::kAttnLogitMax);
    array.assign(r == 5 ? 100 : 4096, model::kAbsent);
    for (float& value : array)
      if (random() % 50 == 0) value = static_cast<float>(random() % 1000);
    dense[r].MutableArray(Signal::kAttnLogitMax).resize(4096);
    for (float& value : dense[r].MutableArray(Signal::kAttnLogitMax)) value = static_cast<float>(random() % 1000);
  }
  reports[6].MutableArray(Signal::kAttnLogitMax).clear();
  const std::string bytes = PackChunk(reports);
  EXPECT_LT(bytes.size() * 10, PackChunk(dense).size());
  ChunkContent back;
  ASSERT_TRUE(UnpackChunk(bytes, &back).ok());
  for (size_t i = 0; i < reports.size(); ++i) EXPECT_EQ(BytesOf(back.reports[i]), BytesOf(reports[i])) << i;
  const auto column = ReadColumn(ReadFrom(bytes), bytes.size(), Signal::kAttnLogitMax, "");
  ASSERT_TRUE(column.ok()) << column.status();
  EXPECT_TRUE(column->sparse);
  for (const ChunkColumn::Kept& kept : column->kept)
    EXPECT_EQ(kept.value, reports[kept.report].Array(Signal::kAttnLogitMax)[kept.index]);
}

TEST(Chunk, ReadsChunksOfBeforeThereWereChecksums) {
  const std::vector<Report> reports = Sample(64);
  const std::string bytes = testing::AsOldChunk(PackChunk(reports));
  ChunkContent back;
  ASSERT_TRUE(UnpackChunk(bytes, &back).ok());
  for (size_t i = 0; i < reports.size(); ++i) EXPECT_EQ(BytesOf(back.reports[i]), BytesOf(reports[i])) << i;
  const auto loss = ReadColumn(ReadFrom(bytes), bytes.size(), Signal::kLoss, "");
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(loss->values[63], reports[63].Scalar(Signal::kLoss));
}

TEST(Chunk, HoldsASingleEmptyReport) {
  ChunkContent back;
  ASSERT_TRUE(UnpackChunk(PackChunk(std::vector<Report>(1)), &back).ok());
  ASSERT_EQ(back.reports.size(), 1u);
  EXPECT_EQ(BytesOf(back.reports[0]), BytesOf(Report()));
}

TEST(Chunk, ReadsOneSignalWithoutTheOthers) {
  std::vector<Report> reports = Sample(64);
  std::mt19937 random(1);  // Noise does not compress.
  for (Report& report : reports) {
    report.MutableArray(Signal::kCrossAttnLogitMax).resize(4096);
    for (float& value : report.MutableArray(Signal::kCrossAttnLogitMax)) value = static_cast<float>(random());
  }
  const std::string bytes = PackChunk(reports);
  size_t read_bytes = 0;
  const auto loss = ReadColumn(ReadFrom(bytes, &read_bytes), bytes.size(), Signal::kLoss, "");
  ASSERT_TRUE(loss.ok());
  EXPECT_LT(read_bytes, 4096u);
  EXPECT_EQ(loss->width, 1u);
  EXPECT_EQ(loss->steps.back(), 64);
  EXPECT_EQ(loss->values[63], reports[63].Scalar(Signal::kLoss));
  const auto maxima = ReadColumn(ReadFrom(bytes), bytes.size(), Signal::kAttnLogitMax, "");
  ASSERT_TRUE(maxima.ok());
  EXPECT_EQ(maxima->width, 8u);
  EXPECT_EQ(maxima->values[5 * 64 + 10], double{reports[10].Array(Signal::kAttnLogitMax)[5]});
}

TEST(Chunk, SaysWhereASignalIsMissing) {
  std::vector<Report> reports = Sample(3);
  reports[1].user = {{"mfu", 0.5}};
  const std::string bytes = PackChunk(reports);
  const auto never = ReadColumn(ReadFrom(bytes), bytes.size(), Signal::kLogZ, "");
  ASSERT_TRUE(never.ok());
  EXPECT_EQ(never->sizes, (std::vector<uint32_t>{0, 0, 0}));
  const auto once = ReadColumn(ReadFrom(bytes), bytes.size(), Signal::kNone, "mfu");
  ASSERT_TRUE(once.ok());
  EXPECT_EQ(once->sizes, (std::vector<uint32_t>{0, 1, 0}));
  EXPECT_EQ(once->values[1], 0.5);
}

TEST(Chunk, RefusesEveryTruncation) {
  const std::string bytes = PackChunk(Sample(4));
  ChunkContent back;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::Status status = UnpackChunk(std::string_view(bytes).substr(0, size), &back);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << "at " << size;
  }
}

TEST(Chunk, SeesEveryFlippedByte) {
  const std::string bytes = PackChunk(Sample(8), std::vector<int64_t>(8, 1'700'000'000'000));
  ChunkContent back;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string bad = bytes;
    bad[i] = static_cast<char>(bad[i] ^ 0x55);
    EXPECT_EQ(UnpackChunk(bad, &back).code(), absl::StatusCode::kDataLoss) << "at " << i;
  }
}

// Those of before have no checksums: wrong values go unseen, wrong sizes must not.
TEST(Chunk, SurvivesEveryFlippedByteOfAnOldOne) {
  const std::string bytes = testing::AsOldChunk(PackChunk(Sample(8)));
  ChunkContent back;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string bad = bytes;
    bad[i] = static_cast<char>(bad[i] ^ 0x55);
    const absl::Status status = UnpackChunk(bad, &back);
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kDataLoss) << status;
  }
}

}  // namespace
}  // namespace gyrostat::store
