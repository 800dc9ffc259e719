#include "model/architecture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "model/presets.h"
#include "support/paths.h"

namespace gyrostat::model {
namespace {

constexpr uint32_t kGoldenLayers = 12;

ModelSpec Placed(NormPlacement placement) {
  ModelSpec spec;
  spec.norm_placement = placement;
  return spec;
}

std::string Number(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

// The catalogue as JSON, for the tests that compare it with real models. Profiles are those of 12 layers at the
// middle of the step's range; gpt2's step follows from its initialisation.
std::string CatalogueJson() {
  std::string json = "[\n";
  for (const Architecture& a : Architectures()) {
    const double step = a.name == "gpt2" ? 1.0 / (2 * kGoldenLayers) : 0.5 * (a.step_low + a.step_high);
    const uint32_t split = MixSplit(kGoldenLayers);
    json += json.size() > 2 ? ",\n" : "";
    json += R"( {"name": ")" + std::string(a.name) + R"(", "placement": ")" + Token(a.placement) + R"(", "stream": ")" +
            Token(a.stream) + R"(", "stream_trained": ")" + Token(a.stream_trained) + R"(", "gradient": ")" +
            Token(a.gradient) + R"(", "post_norm_family": )" + (a.post_norm_family ? "true" : "false") +
            R"(, "step": [)" + Number(a.step_low) + ", " + Number(a.step_high) + R"(], "ln_input_ms": )" +
            Number(a.ln_input_ms) + R"(, "layers": )" + Number(kGoldenLayers) + ",\n  \"stream_profile\": [";
    for (uint32_t b = 0; b <= kGoldenLayers; ++b)
      json += (b > 0 ? ", " : "") + Number(ExpectedStream(a.stream, b, step, split));
    json += "],\n  \"gradient_profile\": [";
    for (uint32_t l = 0; l < kGoldenLayers; ++l)
      json += (l > 0 ? ", " : "") + Number(ExpectedGradient(a, l, step, split));
    json += "]}";
  }
  return json + "\n]\n";
}

TEST(Architectures, AreInTheGoldenFileThatRealModelsAreComparedWith) {
  const std::string path = std::string(testing::kSourceDir) + "/tests/golden/architectures.json";
  if (std::getenv("GYROSTAT_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << CatalogueJson();
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(CatalogueJson(), golden.str()) << "GYROSTAT_UPDATE_GOLDEN=1 rewrites it";
}

TEST(Architectures, EachPlacementHasOneAndAStrangerHasTheUnknownOne) {
  std::set<std::string_view> names;
  for (const Architecture& a : Architectures()) {
    EXPECT_TRUE(names.insert(a.name).second) << a.name;
    EXPECT_EQ(FindArchitecture(a.name), &a);
  }
  for (int i = 1; i <= static_cast<int>(NormPlacement::kKeel); ++i) {
    const auto placement = static_cast<NormPlacement>(i);
    const Architecture& a = ArchitectureOf(Placed(placement));
    EXPECT_EQ(a.name, Token(placement));
    EXPECT_FALSE(a.prone.empty());
    EXPECT_FALSE(a.source.empty());
    EXPECT_FALSE(a.formula.empty());
    EXPECT_EQ(a.ln_input_ms > 0, a.post_norm_family || placement == NormPlacement::kMix);
  }
  EXPECT_EQ(ArchitectureOf(ModelSpec()).name, "unknown");
  EXPECT_EQ(ArchitectureOf(ModelSpec()).stream, ProfileLaw::kUnknown);
  EXPECT_EQ(FindArchitecture("nonsense"), nullptr);
}

TEST(Architectures, APresetNamesItsOwnEntryUnlessThePlacementContradictsIt) {
  ModelSpec spec = Placed(NormPlacement::kPre);
  spec.preset = "gpt2";
  EXPECT_EQ(ArchitectureOf(spec).name, "gpt2");
  spec.norm_placement = NormPlacement::kPost;
  EXPECT_EQ(ArchitectureOf(spec).name, "post");
}

// methods.md §5.2, the table's numbers at the middle of the band.
TEST(Architectures, ProfilesAreThoseOfTheDerivation) {
  EXPECT_EQ(ExpectedStream(ProfileLaw::kConstant, 24, 1, 0), 1);
  EXPECT_EQ(ExpectedStream(ProfileLaw::kLinear, 24, 2, 0), 49);
  EXPECT_NEAR(ExpectedStream(ProfileLaw::kLogarithmic, 24, 0.75, 0), 3.8, 0.1);
  EXPECT_EQ(ExpectedStream(ProfileLaw::kConstantThenLinear, 6, 1, 6), 1);
  EXPECT_EQ(ExpectedStream(ProfileLaw::kConstantThenLinear, 24, 1, 6), 19);
  EXPECT_EQ(ExpectedStream(ProfileLaw::kUnknown, 3, 1, 0), 0);
  // Last over first W2 gradient of 24 layers: 0.24 to 0.29 pre-norm, 1 post-norm, 0.12 to 0.14 LayerNorm scaling.
  EXPECT_NEAR(ExpectedGradient(*FindArchitecture("pre"), 23, 1, 0), 0.27, 0.03);
  EXPECT_NEAR(ExpectedGradient(*FindArchitecture("peri"), 23, 2, 0), 0.26, 0.03);
  EXPECT_EQ(ExpectedGradient(*FindArchitecture("post"), 23, 1, 0), 1);
  EXPECT_NEAR(ExpectedGradient(*FindArchitecture("layernorm_scaling"), 23, 1, 0), 0.13, 0.02);
  EXPECT_NEAR(ExpectedGradient(*FindArchitecture("mix"), 23, 1, 6), 0.28, 0.06);
  EXPECT_EQ(ExpectedGradient(*FindArchitecture("unknown"), 3, 1, 0), 0);
}

TEST(Architectures, QkNormKeepsLogitsDownAndMovesTheClipToItsGain) {
  ModelSpec spec = Placed(NormPlacement::kPre);
  EXPECT_EQ(AdviceFor(spec, Failure::kAttentionLogits).kind, InterventionKind::kQkClip);
  EXPECT_TRUE(IsProne(spec, Failure::kAttentionLogits));
  spec.qk_norm = QkNorm::kFlattened;
  EXPECT_EQ(AdviceFor(spec, Failure::kAttentionLogits).kind, InterventionKind::kQkClip);
  EXPECT_FALSE(IsProne(spec, Failure::kAttentionLogits));
  EXPECT_NE(AdviceFor(spec, Failure::kAttentionLogits).why.find("gain"), std::string_view::npos);
}

TEST(Architectures, OnlyPostNormGetsItsCure) {
  const auto kind = [](NormPlacement p, Failure f) { return AdviceFor(Placed(p), f).kind; };
  EXPECT_EQ(kind(NormPlacement::kPost, Failure::kPostNormCollapse), InterventionKind::kWarmupExtension);
  EXPECT_FALSE(kind(NormPlacement::kPre, Failure::kPostNormCollapse));
  EXPECT_EQ(kind(NormPlacement::kDeepnorm, Failure::kSlowDivergence), InterventionKind::kDeepnormAlpha);
  EXPECT_EQ(kind(NormPlacement::kPre, Failure::kSlowDivergence), InterventionKind::kLrScale);
  for (uint32_t f = 0; f < kFailures; ++f) {
    EXPECT_FALSE(Describe(static_cast<Failure>(f)).empty());
    EXPECT_EQ(AdviceFor(ModelSpec(), static_cast<Failure>(f)).why.back(), '.');
  }
}

TEST(Architectures, Bf16DoesNotOverflow) {
  ModelSpec spec = Placed(NormPlacement::kPre);
  EXPECT_TRUE(IsProne(spec, Failure::kHalfOverflow));  // Nobody said what it computes in.
  spec.compute_dtype = "bf16";
  EXPECT_FALSE(IsProne(spec, Failure::kHalfOverflow));
}

}  // namespace
}  // namespace gyrostat::model
