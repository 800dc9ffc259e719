#include "logs/json_scan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "logs/json_record.h"

namespace gyrostat::logs {
namespace {

// What a text says, as one line: every event in order.
class Said : public JsonEvents {
 public:
  std::string text;
  void Begin(char bracket) override { text += std::string(1, bracket) + " "; }
  void End(char bracket) override { text += std::string("/") + bracket + " "; }
  void Key(std::string_view key) override { text += std::string(key) + ": "; }
  void Number(double value) override { text += std::isnan(value) ? "NaN " : std::to_string(value) + " "; }
  void Text(std::string_view value) override { text += "\"" + std::string(value) + "\" "; }
  void Word(std::string_view word) override { text += std::string(word) + " "; }
};

std::string Scan(std::string_view json, size_t piece = 1000) {
  Said said;
  JsonScanner scanner(&said);
  for (size_t at = 0; at < json.size(); at += piece) {
    const std::string_view part = json.substr(at, piece);
    if (scanner.Feed(part) < part.size()) return said.text + "! " + scanner.error();
  }
  scanner.Finish();
  return said.text + (scanner.AtTop() ? "" : "(open)");
}

TEST(JsonScanner, ReadsJson) {
  const std::string json = R"({"a": [1, -2.5e3, true, null], "b": {"c": "x\"\n\u00e9"}, "d": {}, "e": []})";
  const std::string wanted =
      "{ a: [ 1.000000 -2500.000000 true null /[ b: { c: \"x\"\n\xc3\xa9\" /{ d: { /{ e: [ /[ /{ ";
  for (const size_t piece : {1, 3, 1000}) EXPECT_EQ(Scan(json, piece), wanted) << piece;
}

TEST(JsonScanner, ReadsWhatTrainersWriteInstead) {
  EXPECT_EQ(Scan("{\"a\": NaN, \"b\": -Infinity, \"c\": Infinity}"), "{ a: NaN b: -inf c: inf /{ ");
  EXPECT_EQ(Scan("{'loss': 2.5, 'x': None, 'ok': True, 'n': nan}"), "{ loss: 2.500000 x: null ok: true n: NaN /{ ");
  EXPECT_EQ(Scan("[1e999, 1e-999]"), "[ inf 0.000000 /[ ");
  EXPECT_EQ(Scan("{\"a\": 1,}"), "{ a: 1.000000 /{ ");
}

TEST(JsonScanner, SaysWhatIsWrong) {
  EXPECT_EQ(Scan("{\"a\" 1}"), "{ a: ! wanted a colon behind a key");
  EXPECT_EQ(Scan("{a: 1}"), "{ ! wanted a key in quotes");
  EXPECT_EQ(Scan("[1}"), "[ 1.000000 ! a bracket closes what is not open");
  EXPECT_EQ(Scan("[hello]"), "[ ! wanted a value");
  EXPECT_EQ(Scan(std::string(100, '[')).substr(64 * 2), "! more than 64 levels");
  EXPECT_EQ(Scan("[\"" + std::string(JsonScanner::kTokenBytesMax + 1, 'x')), "[ ! a string of more than 1 MiB");
}

TEST(JsonScanner, StopsBehindAValueWhereAsked) {
  Said said;
  JsonScanner scanner(&said);
  EXPECT_EQ(scanner.Feed("{\"a\": 1} tail", true), 8u);
  EXPECT_TRUE(scanner.AtTop());
}

TEST(RecordBuilder, MakesOneFlatRecord) {
  RecordBuilder builder;
  JsonScanner scanner(&builder);
  scanner.Feed(
      R"({"a": {"b": 1, "c": "11.5"}, "m": [[1, null], [2]], "v": [1, "NaN"], "rows": [{"x": 1}], "z": null})");
  const Record& record = builder.record;
  ASSERT_EQ(record.size(), 5u);
  EXPECT_EQ(record[0].key, "a/b");
  EXPECT_EQ(record[1].value, 11.5);
  EXPECT_EQ(record[1].text, "11.5");
  EXPECT_EQ(record[2].columns, 2u);
  EXPECT_EQ(record[2].values, (std::vector<float>{1, model::kAbsent, 2, model::kAbsent}));
  EXPECT_EQ(record[3].columns, 0u);
  EXPECT_TRUE(std::isnan(record[3].values[1]));
  EXPECT_TRUE(model::IsAbsent(record[4].value));
}

}  // namespace
}  // namespace gyrostat::logs
