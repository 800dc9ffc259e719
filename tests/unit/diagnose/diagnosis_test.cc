#include "diagnose/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "detect/catalog.h"
#include "unit/diagnose/said.h"

namespace gyrostat::diagnose {
namespace {

using model::Finding;
using model::InterventionKind;
using model::NormPlacement;
using model::Severity;
using ::testing::HasSubstr;
using ::testing::Not;

model::ModelSpec Spec(NormPlacement placement) {
  model::ModelSpec spec;
  spec.layers = 8;
  spec.norm_placement = placement;
  return spec;
}
Episode Of(std::vector<Finding> findings) {
  Episode episode;
  episode.id = 7;
  uint64_t key = 1;
  for (Finding& f : findings) f.key = key++;
  episode.findings = std::move(findings);
  return episode;
}
Cause BestOf(const std::vector<Finding>& findings, const model::ModelSpec& spec) {
  return Diagnose(Of(findings), spec).ranked.front().cause;
}

TEST(Diagnosis, NamesThePostNormCollapseWithItsFirstMover) {
  Finding collapse = At(Said("grad_profile", Severity::kCritical, 16), 0);
  collapse.recommend = InterventionKind::kDeepnormAlpha;
  const Diagnosis d = Diagnose(Of({At(Said("ln_input", Severity::kInfo, 19), 7), collapse,
                                   Said("warmup", Severity::kWarning, 150),
                                   Said("loss_spike", Severity::kWarning, 90)}),
                               Spec(NormPlacement::kPost));
  EXPECT_EQ(d.ranked.front().cause, Cause::kPostNormCollapse);
  EXPECT_GT(d.ranked.front().weight, 0.6);
  EXPECT_EQ(d.detector, "grad_profile");
  EXPECT_EQ(d.layer, 0u);
  EXPECT_EQ(d.first_step, 16);
  EXPECT_EQ(d.severity, Severity::kCritical);
  EXPECT_EQ(d.recommend, InterventionKind::kDeepnormAlpha);  // The finding knows that the warm-up is over.
  EXPECT_FALSE(d.step_end);
  EXPECT_THAT(d.headline, HasSubstr("first in layer 0, since step 16"));
  EXPECT_THAT(d.likely, HasSubstr("placement post"));
  EXPECT_EQ(d.evidence.size(), 4u);
  EXPECT_EQ(d.evidence[0], "grad_profile at step 16.");
}

TEST(Diagnosis, AttentionFirstThenTheLossIsAttention) {
  Finding logits = At(Said("attn_logit", Severity::kCritical, 93), 2);
  logits.head = 5;
  const std::vector<Finding> said = {logits, Said("divergence", Severity::kWarning, 280),
                                     Said("grad_spike", Severity::kWarning, 220)};
  const Diagnosis d = Diagnose(Of(said), Spec(NormPlacement::kPre));
  EXPECT_EQ(d.ranked.front().cause, Cause::kAttentionLogits);
  EXPECT_EQ(d.head, 5u);
  EXPECT_EQ(d.recommend, InterventionKind::kQkClip);
  EXPECT_THAT(d.Text(), HasSubstr("first in layer 2, head 5, since step 93"));
  EXPECT_THAT(d.Text(), HasSubstr("Less likely:"));
  model::ModelSpec normed = Spec(NormPlacement::kPre);
  normed.qk_norm = model::QkNorm::kPerHead;
  const Diagnosis behind_norm = Diagnose(Of(said), normed);
  EXPECT_EQ(behind_norm.recommend, InterventionKind::kQkClip);
  EXPECT_THAT(behind_norm.advice, HasSubstr("QK-norm"));
}

TEST(Diagnosis, AHealedSpikeOfEverythingIsBadData) {
  const Diagnosis d = Diagnose(Of({Over(Said("loss_spike", Severity::kWarning, 250), 251),
                                   Over(Said("grad_spike", Severity::kInfo, 250), 250)}),
                               Spec(NormPlacement::kPre));
  EXPECT_EQ(d.ranked.front().cause, Cause::kBadData);
  EXPECT_TRUE(d.common_mode);
  EXPECT_EQ(d.healed, true);
  EXPECT_EQ(d.step_end, 251);
  EXPECT_FALSE(d.recommend);
  EXPECT_THAT(d.headline, HasSubstr("healed by step 251"));
  EXPECT_THAT(d.advice, HasSubstr("It is over"));
  EXPECT_EQ(d.evidence[0], "loss_spike at step 250. Ended at step 251.");
}

TEST(Diagnosis, ASpikeThatDoesNotHealIsASlowDivergence) {
  EXPECT_EQ(BestOf({Said("loss_spike", Severity::kCritical, 250), Said("divergence", Severity::kCritical, 260)},
                   Spec(NormPlacement::kPre)),
            Cause::kSlowDivergence);
}

TEST(Diagnosis, ABrokenInstrumentComesFirst) {
  const Diagnosis d = Diagnose(Of({Said("instrument", Severity::kWarning, 8),
                                   At(Said("attn_logit", Severity::kCritical, 20), 1)}),
                               Spec(NormPlacement::kPre));
  EXPECT_EQ(d.ranked.front().cause, Cause::kInstrument);
  EXPECT_THAT(d.advice, HasSubstr("Repair the hook"));
  // Information (-1 for a norm) breaks nothing.
  EXPECT_EQ(BestOf({Said("instrument", Severity::kInfo, 8), Said("attn_logit", Severity::kWarning, 20)},
                   Spec(NormPlacement::kPre)),
            Cause::kAttentionLogits);
}

TEST(Diagnosis, OneRankIsTheRank) {
  Finding outlier = Said("rank_outlier", Severity::kWarning, 40);
  outlier.rank = 3;
  const Diagnosis d = Diagnose(Of({outlier, Said("loss_spike", Severity::kWarning, 41)}), Spec(NormPlacement::kPre));
  EXPECT_EQ(d.ranked.front().cause, Cause::kRank);
  EXPECT_THAT(d.headline, HasSubstr("rank 3"));
  EXPECT_THAT(d.advice, HasSubstr("rank 3"));
}

TEST(Diagnosis, TheStreamOverflowsInFp16OnlyWithFp16) {
  Finding nan = At(Said("nonfinite", Severity::kCritical, 189), 3);
  nan.signal = model::Signal::kHiddenAbsmax;
  model::ModelSpec half = Spec(NormPlacement::kPre);
  half.compute_dtype = "fp16";
  EXPECT_EQ(BestOf({At(Said("headroom", Severity::kCritical, 92), 3), nan}, half), Cause::kHalfOverflow);
  EXPECT_EQ(BestOf({nan}, half), Cause::kHalfOverflow);
  EXPECT_EQ(BestOf({nan}, Spec(NormPlacement::kPre)), Cause::kNumeric);
}

TEST(Diagnosis, ManyLayersAtOnceAreACommonMode) {
  std::vector<Finding> all, few;
  for (uint32_t l = 0; l < 8; ++l) all.push_back(At(Said("grad_growth", Severity::kWarning, 100 + l / 4), l));
  few = {all[1], all[2], all[3], all[5]};
  EXPECT_TRUE(Diagnose(Of(all), Spec(NormPlacement::kPre)).common_mode);
  EXPECT_FALSE(Diagnose(Of(few), Spec(NormPlacement::kPre)).common_mode);
}

TEST(Diagnosis, AnUnlikelyFailureDoubtsTheDeclaration) {
  const Diagnosis d = Diagnose(Of({Said("ln_input", Severity::kWarning, 10)}), Spec(NormPlacement::kPre));
  EXPECT_THAT(d.likely, HasSubstr("is the declaration right?"));
  EXPECT_EQ(Diagnose(Of({Said("ln_input", Severity::kWarning, 10)}), model::ModelSpec()).likely, "");
}

TEST(Diagnosis, ANanAfterALossThatRanOffIsADivergence) {
  const Finding nan = Said("nonfinite", Severity::kCritical, 63), spike = Said("loss_spike", Severity::kWarning, 48);
  const Diagnosis d = Diagnose(Of({spike, nan}), model::ModelSpec());
  EXPECT_EQ(d.ranked.front().cause, Cause::kSlowDivergence);
  EXPECT_EQ(d.first_step, 48);
  EXPECT_EQ(d.recommend, InterventionKind::kRollback);
  EXPECT_THAT(d.advice, HasSubstr("Go back to a checkpoint from before step 63."));
  // A spike that healed before has nothing to do with it.
  EXPECT_EQ(BestOf({Over(spike, 49), nan}, model::ModelSpec()), Cause::kNumeric);
}

TEST(Diagnosis, ANanFromTheFirstStepHasNoCheckpoint) {
  const Diagnosis d = Diagnose(Of({Said("nonfinite", Severity::kCritical, 1)}), Spec(NormPlacement::kPre));
  EXPECT_FALSE(d.recommend);
  EXPECT_THAT(d.advice, HasSubstr("no checkpoint helps"));
}

TEST(Diagnosis, AGradientThatLeadsTheLossIsTheOptimizer) {
  const Finding loss = Over(Said("loss_spike", Severity::kWarning, 1602), 1619);
  const auto with_gradient = [&](model::Step step) {
    return BestOf({Over(Said("grad_spike", Severity::kWarning, step), 1608), loss}, model::ModelSpec());
  };
  EXPECT_EQ(with_gradient(1597), Cause::kOptimizer);
  EXPECT_EQ(with_gradient(1600), Cause::kOptimizer);
  EXPECT_EQ(with_gradient(1601), Cause::kBadData);
  EXPECT_EQ(with_gradient(1602), Cause::kBadData);
  EXPECT_EQ(with_gradient(1569), Cause::kBadData) << "another event";
}

TEST(Diagnosis, ARoughGradientAloneIsNoDivergence) {
  Finding rough = Said("grad_roughness", Severity::kWarning, 100);
  rough.signal = model::Signal::kGradNorm;
  const Diagnosis d = Diagnose(Of({rough}), model::ModelSpec());
  EXPECT_EQ(d.ranked.front().cause, Cause::kOptimizer);
  EXPECT_THAT(d.headline, HasSubstr("The gradient norm has become rough, since step 100"));
  rough.signal = model::Signal::kLayerGradNorm;
  EXPECT_EQ(Diagnose(Of({rough}), model::ModelSpec()).ranked.front().cause, Cause::kSlowDivergence);
}

TEST(Diagnosis, SpikesThatKeepComingAreSaidAsSuch) {
  std::vector<Finding> spikes;
  for (model::Step step = 0; step < 3; ++step)
    spikes.push_back(Over(Said("loss_spike", Severity::kWarning, 100 + 50 * step), 102 + 50 * step));
  EXPECT_THAT(Diagnose(Of(spikes), model::ModelSpec()).headline, HasSubstr("Bad batches"));
  spikes.push_back(Over(Said("loss_spike", Severity::kWarning, 250), 251));
  const Diagnosis d = Diagnose(Of(spikes), model::ModelSpec());
  EXPECT_THAT(d.headline, HasSubstr("keep coming (4 so far), since step 100; healed by step 251"));
  EXPECT_THAT(d.advice, HasSubstr("beta2"));
}

TEST(Diagnosis, EvidenceIsOneSentenceForEachKind) {
  std::vector<Finding> said = {At(Said("attn_logit", Severity::kInfo, 57), 2)};
  said.push_back(At(Said("attn_logit", Severity::kCritical, 97), 1));
  for (model::Step step = 100; step < 120; ++step)
    said.push_back(Over(Said("grad_spike", Severity::kInfo, step), step));
  said[10].severity = Severity::kWarning;
  const Diagnosis d = Diagnose(Of(said), Spec(NormPlacement::kPre));
  ASSERT_EQ(d.evidence.size(), 3u);
  EXPECT_EQ(d.evidence[0], "attn_logit at step 57.");
  EXPECT_EQ(d.evidence[1], "attn_logit at step 97.");
  EXPECT_EQ(d.evidence[2], "grad_spike at step 108. Ended at step 108. 19 more of this kind, the last at step 119.");
  EXPECT_EQ(d.findings, 22u);
  EXPECT_THAT(d.Text(), HasSubstr("22 findings in all"));
}

TEST(Diagnosis, LastingInformationDoesNotKeepItFromBeingOver) {
  const Finding lasting = Said("attn_logit", Severity::kInfo, 50);
  const Diagnosis d = Diagnose(Of({lasting, Over(Said("loss_spike", Severity::kWarning, 100), 104)}),
                               Spec(NormPlacement::kPre));
  EXPECT_EQ(d.step_end, 104);
  EXPECT_EQ(d.healed, true);
}

TEST(Diagnosis, AHealedEpisodeAsksForNothing) {
  Finding logits = Over(At(Said("attn_logit", Severity::kCritical, 100), 1), 160);
  logits.recommend = InterventionKind::kQkClip;
  const Diagnosis d = Diagnose(Of({logits}), Spec(NormPlacement::kPre));
  EXPECT_EQ(d.advice, "It is over, nothing is to be done now.");
  EXPECT_FALSE(d.recommend);
}

TEST(Diagnosis, WhereALogHasOneMaximumALayerNoHeadIsNamed) {
  model::ModelSpec spec = Spec(NormPlacement::kUnknown);
  Finding logits = At(Said("attn_logit", Severity::kCritical, 5), 11);
  logits.head = 0;
  EXPECT_THAT(Diagnose(Of({logits}), spec).headline, HasSubstr("layer 11, head 0"));
  spec.heads = 1;
  EXPECT_THAT(Diagnose(Of({logits}), spec).headline, HasSubstr("first in layer 11, since"));
}

TEST(Diagnosis, ThePolicysOwnAlarmsAreItsOwnCause) {
  EXPECT_EQ(BestOf({Said("policy", Severity::kWarning, 5)}, Spec(NormPlacement::kPre)), Cause::kIntervention);
}

TEST(Diagnosis, EveryDetectorIsEvidenceOfSomething) {
  for (const std::string_view name : detect::DetectorNames()) {
    const Diagnosis d = Diagnose(Of({Said(std::string(name), Severity::kWarning, 1)}), model::ModelSpec());
    EXPECT_NE(d.ranked.front().cause, Cause::kUnknown) << name;
    EXPECT_FALSE(d.advice.empty()) << name;
    EXPECT_EQ(d.headline.back(), '.') << d.headline;
    EXPECT_THAT(d.Text(), Not(HasSubstr("  \n"))) << name;
  }
}

}  // namespace
}  // namespace gyrostat::diagnose
