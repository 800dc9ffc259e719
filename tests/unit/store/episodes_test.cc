// What the store keeps of episodes.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "store/store.h"
#include "support/journal_entries.h"
#include "support/temp_dir.h"

namespace gyrostat::store {
namespace {

using engine::JournalEntry;
using testing::AppendAndWait;
using testing::HelloEntry;
using testing::IdOf;
using testing::PlainEntry;

model::Finding FindingAt(uint64_t id, model::Step step) {
  model::Finding finding;
  finding.id = id;
  finding.detector = "loss_spike";
  finding.step_begin = finding.step_detected = step;
  finding.message = "loss jumped";
  return finding;
}
diagnose::Diagnosis DiagnosisOf(uint64_t id) {
  diagnose::Diagnosis d;
  d.episode = id;
  d.findings = 2;
  d.ranked = {{diagnose::Cause::kAttentionLogits, 0.7}, {diagnose::Cause::kBadData, 0.3}};
  d.severity = model::Severity::kCritical;
  d.step_begin = 90;
  d.detector = "attn_logit";
  d.signal = model::Signal::kAttnLogitMax;
  d.layer = 2, d.head = 5;
  d.first_step = 93;
  d.recommend = model::InterventionKind::kQkClip;
  d.headline = "Attention logits run away.";
  d.evidence = {"one", "", "three\nlines"};
  d.likely = "Likely.";
  d.advice = "Clip.";
  return d;
}
std::string BytesOf(const diagnose::Diagnosis& d) {
  base::ByteWriter out;
  base::SaveTo(&out, d);
  return out.Take();
}

class StoreEpisodes : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    store_.reset();
    store_ = *Store::Open({.data_dir = temp_.path()});
  }
  bool Append(JournalEntry entry) { return AppendAndWait(store_.get(), std::move(entry)); }

  const testing::TempDir temp_;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreEpisodes, KeepsTheNewestStateOfAnEpisodeAndWhoBelongsToIt) {
  JournalEntry first = HelloEntry("run", 1, IdOf(1));
  first.findings = {FindingAt(10000001, 5)};
  ASSERT_TRUE(Append(first));
  JournalEntry second = PlainEntry("run", 1, IdOf(1));
  second.findings = {FindingAt(10000002, 90)};
  second.findings[0].episode = 100001;
  second.episodes = {{DiagnosisOf(100001), {10000001}}};
  ASSERT_TRUE(Append(second));
  Reopen();
  auto findings = *store_->Findings("run");
  EXPECT_EQ(findings[0].finding.episode, 100001u) << "said before the episode began";
  EXPECT_EQ(findings[1].finding.episode, 100001u);
  auto rows = *store_->Episodes("run");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].attempt, IdOf(1));
  EXPECT_EQ(BytesOf(rows[0].diagnosis), BytesOf(DiagnosisOf(100001)));
  JournalEntry third = PlainEntry("run", 1, IdOf(2));
  diagnose::Diagnosis closed = DiagnosisOf(100001), next = DiagnosisOf(100002);
  closed.closed = true;
  closed.step_end = 130;
  closed.healed = false;
  closed.ranked[0].cause = diagnose::Cause::kSlowDivergence;
  closed.rank = 3;
  closed.common_mode = true;
  closed.recommend.reset();
  third.episodes = {{closed, {}}, {next, {}}};
  ASSERT_TRUE(Append(third));
  rows = *store_->Episodes("run");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(BytesOf(rows[0].diagnosis), BytesOf(closed));
  EXPECT_EQ(rows[0].attempt, IdOf(1)) << "in which it began";
  EXPECT_EQ(BytesOf(rows[1].diagnosis), BytesOf(next));
  EXPECT_TRUE(absl::IsNotFound(store_->Episodes("other").status()));
}

TEST_F(StoreEpisodes, ADatabaseFromBeforeEpisodesGoesOn) {
  JournalEntry entry = HelloEntry("run", 1, IdOf(1));
  entry.findings = {FindingAt(10000001, 5)};
  ASSERT_TRUE(Append(entry));
  store_.reset();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(temp_.File("gyrostat.db").c_str(), &db), SQLITE_OK);
  const char* back =
      "DROP TABLE history; ALTER TABLE runs DROP COLUMN reports; ALTER TABLE runs DROP COLUMN reports_dropped; "
      "DROP TABLE episodes; ALTER TABLE findings DROP COLUMN episode; PRAGMA user_version=2";
  EXPECT_EQ(sqlite3_exec(db, back, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  Reopen();
  EXPECT_EQ(store_->Findings("run")->at(0).finding.episode, 0u);
  EXPECT_EQ(store_->Findings("run")->at(0).finding.message, "loss jumped");
  EXPECT_TRUE(store_->Episodes("run")->empty());
  JournalEntry next = PlainEntry("run", 1, IdOf(1));
  next.episodes = {{DiagnosisOf(100001), {10000001}}};
  ASSERT_TRUE(Append(next));
  EXPECT_EQ(store_->Episodes("run")->size(), 1u);
  EXPECT_EQ(store_->Findings("run")->at(0).finding.episode, 100001u);
}

TEST_F(StoreEpisodes, AnEpisodeThatWasLeftBehindIsToldToo) {
  JournalEntry lost = PlainEntry("run", 1, IdOf(1));
  lost.episodes = {{DiagnosisOf(100001), {}}};
  ASSERT_FALSE(Append(lost)) << "no snapshot yet";
  ASSERT_TRUE(Append(HelloEntry("run", 1, IdOf(1))));
  EXPECT_EQ(store_->Episodes("run")->size(), 1u);
}

}  // namespace
}  // namespace gyrostat::store
