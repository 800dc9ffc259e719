#include "web/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "support/plain_run.h"

namespace gyrostat::web {
namespace {

using nlohmann::json;
using testing::IdOf;

engine::RunState State() {
  engine::RunState state;
  state.run = "a";
  state.attempt = IdOf(1);
  state.spec = testing::PlainHello("a", IdOf(1)).model;
  state.last = testing::PlainReport(7);
  state.step = 7;
  return state;
}

TEST(WebJson, WritesArraysAsBase64OfLittleEndianFloats) {
  const float values[] = {1.0f, -2.5f};
  EXPECT_EQ(Base64(values), "AACAPwAAIMA=");
  EXPECT_EQ(Base64({values, 1}), "AACAPw==");
  EXPECT_EQ(Base64({}), "");
}

TEST(WebJson, SaysNullForAbsentAndWordsForNotFinite) {
  engine::RunState state = State();
  state.last.SetScalar(model::Signal::kLoss, std::numeric_limits<double>::quiet_NaN());
  state.last.SetScalar(model::Signal::kGradNorm, -std::numeric_limits<double>::infinity());
  state.last.user.emplace_back("lr:a", std::numeric_limits<double>::infinity());
  const json event = json::parse(EventJson(state));
  EXPECT_EQ(event["scalars"], (json{{"loss", "NaN"}, {"grad_norm", "-Infinity"}, {"lr:a", "Infinity"}}));
  EXPECT_EQ(json::parse(RunJson(state, {}))["headroom_steps"], nullptr);
}

TEST(WebJson, AnEventHoldsTheMapsWithTheirShape) {
  const json arrays = json::parse(EventJson(State()))["arrays"];
  EXPECT_EQ(arrays["attn_logit_max"]["layers"], testing::kPlainLayers);
  EXPECT_EQ(arrays["attn_logit_max"]["heads"], testing::kPlainHeads);
  EXPECT_EQ(arrays["layer_grad_norm"]["layers"], testing::kPlainLayers);
  EXPECT_EQ(arrays["layer_grad_norm"]["heads"], 1);
  EXPECT_FALSE(arrays.contains("hidden_ms")) << "not reported";
}

TEST(WebJson, TheRevisionChangesWithWordsAndNotWithNumbers) {
  const auto revision = [](const engine::RunState& state) { return json::parse(EventJson(state))["revision"]; };
  engine::RunState state = State();
  const json before = revision(state);
  state.last.SetScalar(model::Signal::kLoss, 9);
  state.step = 8;
  EXPECT_EQ(revision(state), before);
  EXPECT_EQ(json::parse(RunJson(state, {}))["revision"], before);
  const auto changes = [&](auto change) {
    engine::RunState other = state;
    change(other);
    return revision(other) != before;
  };
  EXPECT_TRUE(changes([](auto& s) { s.mode = model::Mode::kAct; }));
  EXPECT_TRUE(changes([](auto& s) { s.life = engine::RunLife::kEnded; }));
  EXPECT_TRUE(changes([](auto& s) { s.open_findings.emplace_back().id = 3; }));
  EXPECT_TRUE(changes([](auto& s) { s.open_interventions.emplace_back().id = "a/1"; }));
  EXPECT_TRUE(changes([](auto& s) { s.findings_total = {{"spike/info", 1}}; }));
  EXPECT_TRUE(changes([](auto& s) { s.recent_decisions.emplace_back().reason = "no"; }));
}

TEST(WebJson, ShowsTheNewestRowsAndSaysHowManyItLeftOut) {
  Kept kept;
  for (uint64_t id = 1; id <= 503; ++id) kept.findings.emplace_back().finding.id = id;
  const json run = json::parse(RunJson(State(), kept));
  EXPECT_EQ(run["findings"].size(), 500u);
  EXPECT_EQ(run["findings"].front()["id"], 4);
  EXPECT_EQ(run["findings_left_out"], 3);
  EXPECT_EQ(run["episodes"], json::array());
}

TEST(WebJson, BytesThatAreNoUtf8DoNotBreakIt) {
  engine::RunState state = State();
  state.recent_decisions.emplace_back().reason = "a\xff\"<b>\x01";
  EXPECT_EQ(json::parse(RunJson(state, {}))["decisions"][0]["reason"], "a\xEF\xBF\xBD\"<b>\x01");
  EXPECT_THAT(JsonError(400, "say \"x\"\n").body, "{\"error\":\"say \\\"x\\\"\\n\"}\n");
}

TEST(WebJson, SaysWhatRetentionLeftOfASeries) {
  const engine::SeriesPoint points[] = {{1, 2.5}, {4, std::numeric_limits<double>::quiet_NaN()}};
  EXPECT_EQ(json::parse(SeriesJson({"loss", 9, points})),
            json::parse(R"({"signal":"loss","points_max":9,"points":[[1,2.5],[4,"NaN"]],
                            "history":{"reduced":[],"chunks_damaged":0,"reports_dropped":0}})"));
  const engine::HistoryNotes notes{
      .reduced = {{0, 100, engine::Resolution::kExtremes}}, .chunks_damaged = 1, .reports_dropped = 7};
  EXPECT_EQ(json::parse(SeriesJson({"loss", 9, points, notes}))["history"],
            json::parse(R"({"reduced":[{"from_step":0,"to_step":100,"resolution":"extremes"}],"chunks_damaged":1,
                            "reports_dropped":7})"));
}

TEST(WebJson, AnArrayOrNothing) {
  const StoredReport stored{State().last, engine::Resolution::kHeads};
  const json heat = json::parse(ArrayJson(State(), stored, model::Signal::kAttnLogitMax));
  EXPECT_EQ(heat["signal"], "attn_logit_max");
  EXPECT_EQ(heat["step"], 7);
  EXPECT_EQ(heat["resolution"], "heads");
  EXPECT_EQ(heat["heads"], testing::kPlainHeads);
  EXPECT_EQ(ArrayJson(State(), {State().last}, model::Signal::kHiddenMs), "");
}

}  // namespace
}  // namespace gyrostat::web
