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
