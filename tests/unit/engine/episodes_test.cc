#include "engine/episodes.h"

#include <gtest/gtest.h>

#include <string>

namespace gyrostat::engine {
namespace {

using model::Finding;
using model::Severity;

// The book of findings and the episodes beside it, as a run keeps them.
class EpisodesTest : public ::testing::Test {
 protected:
  Finding Said(const std::string& detector, Severity severity, model::Step step) {
    Finding finding;
    finding.detector = detector;
    finding.severity = severity;
    finding.step_begin = finding.step_detected = step;
    finding.message = detector + ".";
    return finding;
  }
  Finding Over(Finding finding, model::Step end) {
    finding.step_end = end;
    finding.healed = true;
    return finding;
  }
  void Take(model::Step step, std::vector<Finding> findings) {
    said_.clear();
    changes_.clear();
    for (Finding& finding : findings) book_.Take(std::move(finding), &said_);
    episodes_.Take(step, {}, &said_, &book_, &changes_);
  }

  FindingBook book_{4};
  Episodes episodes_{4};
  std::vector<Finding> said_;
  std::vector<EpisodeChange> changes_;
};

TEST_F(EpisodesTest, EveryWordOfAFindingCarriesItsEpisode) {
  Take(100, {Said("attn_logit", Severity::kWarning, 100)});
  ASSERT_EQ(changes_.size(), 1u);
  EXPECT_EQ(changes_[0].diagnosis.episode, 4 * kEpisodesPerRun + 1);
  EXPECT_EQ(said_[0].episode, 400001u);
  EXPECT_EQ(book_.Open()[0].episode, 400001u);
  Take(120, {Said("attn_logit", Severity::kCritical, 100), Said("loss_spike", Severity::kInfo, 120)});
  EXPECT_EQ(said_[0].episode, 400001u);
  EXPECT_EQ(said_[1].episode, 400001u) << "information joins the episode that runs";
  Take(130, {Over(Said("attn_logit", Severity::kCritical, 100), 129)});
  EXPECT_EQ(said_[0].episode, 400001u);
  EXPECT_EQ(episodes_.newest()->severity, Severity::kCritical);
}

TEST_F(EpisodesTest, WhatWasSaidBeforeJoinsTheEpisodeThatFollows) {
  Take(90, {Said("ln_input", Severity::kInfo, 90)});
  EXPECT_TRUE(changes_.empty());
  EXPECT_EQ(said_[0].episode, 0u);
  const uint64_t before = said_[0].id;
  Take(100, {Said("warmup", Severity::kWarning, 100)});
  ASSERT_EQ(changes_.size(), 1u);
  EXPECT_EQ(changes_[0].joined, std::vector<uint64_t>{before});
  EXPECT_EQ(changes_[0].diagnosis.findings, 2u);
  for (const Finding& open : book_.Open()) EXPECT_EQ(open.episode, 400001u) << open.detector;
  Take(101, {Said("grad_growth", Severity::kInfo, 101)});
  EXPECT_TRUE(changes_[0].joined.empty()) << "told once";
}

TEST_F(EpisodesTest, AnEpisodeClosesBeforeTheNextBegins) {
  Take(100, {Said("loss_spike", Severity::kWarning, 100)});
  Take(105, {Over(Said("loss_spike", Severity::kWarning, 100), 104)});
  EXPECT_FALSE(changes_[0].diagnosis.closed);
  Take(304, {});
  EXPECT_TRUE(changes_.empty());
  Take(305, {Said("divergence", Severity::kCritical, 300)});
  ASSERT_EQ(changes_.size(), 2u);
  EXPECT_EQ(changes_[0].diagnosis.episode, 400001u);
  EXPECT_TRUE(changes_[0].diagnosis.closed);
  EXPECT_EQ(changes_[0].diagnosis.healed, true);
  EXPECT_EQ(changes_[1].diagnosis.episode, 400002u);
  EXPECT_FALSE(changes_[1].diagnosis.closed);
  EXPECT_EQ(said_[0].episode, 400002u);
  EXPECT_EQ(episodes_.newest()->episode, 400002u);
}

TEST_F(EpisodesTest, InformationAfterTheEndBelongsToNone) {
  Take(100, {Said("loss_spike", Severity::kWarning, 100)});
  Take(105, {Over(Said("loss_spike", Severity::kWarning, 100), 104)});
  Take(400, {Said("grad_spike", Severity::kInfo, 400)});
  ASSERT_EQ(changes_.size(), 1u);
  EXPECT_TRUE(changes_[0].diagnosis.closed);
  EXPECT_EQ(said_[0].episode, 0u);
}

TEST_F(EpisodesTest, ComesBackInTheMiddle) {
  Take(90, {Said("ln_input", Severity::kInfo, 90)});
  Take(100, {Said("warmup", Severity::kWarning, 100)});
  base::ByteWriter out, again;
  base::SaveTo(&out, episodes_);
  Episodes back(9);
  base::ByteReader in(out.bytes());
  ASSERT_TRUE(base::LoadFrom(&in, &back) && in.AtEnd());
  base::SaveTo(&again, back);
  EXPECT_EQ(out.bytes(), again.bytes());
  EXPECT_EQ(back.newest()->headline, episodes_.newest()->headline);
}

}  // namespace
}  // namespace gyrostat::engine
