#include "diagnose/episode.h"

#include <gtest/gtest.h>

#include "unit/diagnose/said.h"

namespace gyrostat::diagnose {
namespace {

using model::Finding;
using model::Severity;
using Findings = std::vector<Finding>;

TEST(EpisodeBook, WhatBeginsWhileSomethingIsOpenIsOneEpisode) {
  EpisodeBook book{EpisodeOptions()};
  EXPECT_TRUE(book.Observe(Findings{Said("attn_logit", Severity::kWarning, 100)}, 100));
  EXPECT_FALSE(book.Observe({}, 5000));
  EXPECT_TRUE(book.Observe(Findings{Said("loss_spike", Severity::kWarning, 6000)}, 6000));
  EXPECT_EQ(book.current()->id, 1u);
  EXPECT_EQ(book.current()->findings.size(), 2u);
}

TEST(EpisodeBook, ALaterWordReplacesTheEarlierOne) {
  EpisodeBook book{EpisodeOptions()};
  book.Observe(Findings{Said("attn_logit", Severity::kWarning, 100)}, 100);
  book.Observe(Findings{Said("attn_logit", Severity::kCritical, 100)}, 120);
  ASSERT_EQ(book.current()->findings.size(), 1u);
  EXPECT_EQ(book.current()->findings[0].severity, Severity::kCritical);
}

TEST(EpisodeBook, AnEndKeepsWhatItWas) {
  EpisodeBook book{EpisodeOptions()};
  book.Observe(Findings{Said("attn_logit", Severity::kWarning, 100)}, 100);
  Finding end = Over(Said("attn_logit", Severity::kWarning, 100), 130);
  end.message = "All is well.";
  book.Observe(Findings{end}, 140);
  ASSERT_EQ(book.current()->findings.size(), 1u);
  EXPECT_EQ(book.current()->findings[0].message, "attn_logit at step 100.");
  EXPECT_EQ(book.current()->findings[0].step_end, 130);
  EXPECT_EQ(book.current()->findings[0].healed, true);
}

TEST(EpisodeBook, IsOverOnceAllHasEndedAndTimeHasPassed) {
  EpisodeBook book{EpisodeOptions()};
  book.Observe(Findings{Said("loss_spike", Severity::kWarning, 100)}, 100);
  book.Observe(Findings{Over(Said("loss_spike", Severity::kWarning, 100), 110)}, 113);
  EXPECT_FALSE(book.Observe({}, 312));
  EXPECT_FALSE(book.current()->closed);
  EXPECT_TRUE(book.Observe({}, 313));
  EXPECT_TRUE(book.current()->closed);
  book.Observe(Findings{Said("loss_spike", Severity::kWarning, 320)}, 320);
  EXPECT_EQ(book.current()->id, 2u);
  EXPECT_EQ(book.current()->findings.size(), 1u);
}

TEST(EpisodeBook, InformationOpensNoneButJoinsTheOneThatFollows) {
  EpisodeBook book{EpisodeOptions()};
  book.Observe(Findings{Over(Said("ln_input", Severity::kInfo, 5), 9)}, 25);
  book.Observe(Findings{Said("grad_profile", Severity::kInfo, 300)}, 300);
  EXPECT_EQ(book.current(), nullptr);
  book.Observe(Findings{Said("grad_profile", Severity::kWarning, 300)}, 330);
  // ln_input ended long before; grad_profile is there once, as last said.
  ASSERT_EQ(book.current()->findings.size(), 1u);
  EXPECT_EQ(book.current()->findings[0].severity, Severity::kWarning);
}

TEST(EpisodeBook, LastingInformationKeepsNoneOpen) {
  EpisodeBook book{EpisodeOptions()};
  book.Observe(Findings{Said("attn_logit", Severity::kInfo, 50)}, 50);
  book.Observe(Findings{Said("loss_spike", Severity::kWarning, 100)}, 100);
  book.Observe(Findings{Over(Said("loss_spike", Severity::kWarning, 100), 103)}, 106);
  EXPECT_EQ(book.current()->findings.size(), 2u);
  EXPECT_TRUE(book.Pass(306));
  EXPECT_TRUE(book.current()->closed);
  EXPECT_FALSE(book.Pass(307));
}

TEST(EpisodeBook, WhatComesBackKeepsItsFirstBegin) {
  EpisodeBook book{EpisodeOptions()};
  book.Observe(Findings{Said("attn_logit", Severity::kWarning, 100)}, 100);
  book.Observe(Findings{Over(Said("attn_logit", Severity::kWarning, 100), 130)}, 140);
  book.Observe(Findings{Said("attn_logit", Severity::kCritical, 180)}, 180);
  ASSERT_EQ(book.current()->findings.size(), 1u);
  EXPECT_EQ(book.current()->findings[0].step_begin, 100);
  EXPECT_EQ(book.current()->findings[0].severity, Severity::kCritical);
  EXPECT_FALSE(book.current()->findings[0].step_end);
}

// A run that starts again from 0 does not take a hundred thousand steps to close what was over.
TEST(EpisodeBook, ARestartFromTheStartClosesInTime) {
  EpisodeBook book{EpisodeOptions()};
  book.Observe(Findings{Said("ln_input", Severity::kInfo, 99000)}, 99000);
  book.Observe(Findings{Said("loss_spike", Severity::kWarning, 100000)}, 100000);
  book.Observe(Findings{Over(Said("loss_spike", Severity::kWarning, 100000), 100001)}, 100004);
  EXPECT_FALSE(book.Pass(1));
  EXPECT_FALSE(book.Pass(200));
  EXPECT_TRUE(book.Pass(201));
}

TEST(EpisodeBook, InformationThatIsOverBeforeKeepsWhatItWas) {
  EpisodeBook book{EpisodeOptions()};
  book.Observe(Findings{Said("attn_logit", Severity::kInfo, 90)}, 90);
  Finding end = Over(Said("attn_logit", Severity::kInfo, 90), 97);
  end.message = "The forecast came true.";
  book.Observe(Findings{end}, 97);
  book.Observe(Findings{Said("loss_spike", Severity::kWarning, 100)}, 100);
  ASSERT_EQ(book.current()->findings.size(), 2u);
  EXPECT_EQ(book.current()->findings[0].message, "attn_logit at step 90.");
  EXPECT_EQ(book.current()->findings[0].step_end, 97);
}

TEST(EpisodeBook, IsBounded) {
  EpisodeOptions options;
  options.findings_max = 8;
  EpisodeBook book(options);
  for (uint64_t key = 0; key < 20; ++key) {
    Finding finding = Said("nonfinite", Severity::kWarning, 1);
    finding.key = key;
    book.Observe(Findings{finding}, 1);
  }
  EXPECT_EQ(book.current()->findings.size(), 8u);
  EXPECT_EQ(book.current()->left_out, 12u);
}

TEST(EpisodeBook, SavesAndLoads) {
  EpisodeBook book{EpisodeOptions()}, back{EpisodeOptions()};
  book.Observe(Findings{Said("ln_input", Severity::kInfo, 5)}, 5);
  book.Observe(Findings{Said("warmup", Severity::kWarning, 9)}, 9);
  base::ByteWriter out, again;
  base::SaveTo(&out, book);
  base::ByteReader in(out.bytes());
  ASSERT_TRUE(base::LoadFrom(&in, &back));
  base::SaveTo(&again, back);
  EXPECT_EQ(out.bytes(), again.bytes());
}

}  // namespace
}  // namespace gyrostat::diagnose
