#include "engine/finding_book.h"

#include <gtest/gtest.h>

namespace gyrostat::engine {
namespace {

model::Finding Say(const std::string& detector, uint64_t key, model::Severity severity) {
  model::Finding finding;
  finding.detector = detector;
  finding.key = key;
  finding.severity = severity;
  finding.step_begin = 10;
  return finding;
}

using Totals = std::vector<std::pair<std::string, uint64_t>>;

TEST(FindingBook, GivesBeginEscalationAndEndOneId) {
  FindingBook book(3);
  std::vector<model::Finding> out;
  book.Take(Say("loss_spike", 1, model::Severity::kInfo), &out);
  book.Take(Say("loss_spike", 1, model::Severity::kWarning), &out);
  EXPECT_EQ(book.Open().size(), 1u);
  EXPECT_EQ(book.Open()[0].severity, model::Severity::kWarning);
  model::Finding end = Say("loss_spike", 1, model::Severity::kWarning);
  end.step_end = 14;
  book.Take(end, &out);
  ASSERT_EQ(out.size(), 3u);
  for (const auto& finding : out) EXPECT_EQ(finding.id, 3 * kFindingsPerRun + 1);
  EXPECT_TRUE(book.Open().empty());
  EXPECT_EQ(book.Totals(), (Totals{{"loss_spike/info", 1}, {"loss_spike/warning", 1}}));
}

TEST(FindingBook, TellsDetectorsAndKeysApart) {
  FindingBook book(1);
  std::vector<model::Finding> out;
  book.Take(Say("loss_spike", 1, model::Severity::kInfo), &out);
  book.Take(Say("grad_spike", 1, model::Severity::kInfo), &out);
  book.Take(Say("loss_spike", 2, model::Severity::kInfo), &out);
  ASSERT_EQ(book.Open().size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(book.Open()[i].id, kFindingsPerRun + 1 + i);
}

TEST(FindingBook, TakesAFindingThatIsOverAtOnce) {
  FindingBook book(1);
  std::vector<model::Finding> out;
  model::Finding over = Say("policy", 5, model::Severity::kWarning);
  over.step_end = 10;
  book.Take(over, &out);
  book.Take(over, &out);
  EXPECT_TRUE(book.Open().empty());
  EXPECT_EQ(out[0].id + 1, out[1].id) << "the second is another one";
}

TEST(FindingBook, EndsWhatADetectorLeavesOpen) {
  FindingBook book(1);
  std::vector<model::Finding> out;
  book.Take(Say("loss_spike", 1, model::Severity::kInfo), &out);
  book.Take(Say("silence", 1, model::Severity::kWarning), &out);
  out.clear();
  book.End("loss_spike", 5, &out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].id, kFindingsPerRun + 1);
  EXPECT_EQ(out[0].step_end, 10) << "not before it began";
  book.Forget("silence");
  EXPECT_TRUE(book.Open().empty());
}

TEST(FindingBook, GoesOnWhereItWasSaved) {
  FindingBook book(2);
  std::vector<model::Finding> out;
  book.Take(Say("loss_spike", 1, model::Severity::kInfo), &out);
  base::ByteWriter bytes;
  base::SaveTo(&bytes, book);
  FindingBook back(0);
  base::ByteReader in(bytes.bytes());
  ASSERT_TRUE(base::LoadFrom(&in, &back));
  out.clear();
  back.Take(Say("loss_spike", 1, model::Severity::kWarning), &out);
  back.Take(Say("loss_spike", 2, model::Severity::kInfo), &out);
  EXPECT_EQ(out[0].id, 2 * kFindingsPerRun + 1);
  EXPECT_EQ(out[1].id, 2 * kFindingsPerRun + 2);
}

}  // namespace
}  // namespace gyrostat::engine
