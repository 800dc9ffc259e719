#include "config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "support/paths.h"

namespace gyrostat::config {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kHere = fs::path(testing::kSourceDir) / "tests/unit/config";

std::string Read(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string ErrorOf(std::string_view yaml) {
  const auto config = Parse(yaml, "f");
  return config.ok() ? "" : std::string(config.status().message());
}

TEST(Config, IsItsDefaultsWhereTheFileSaysNothing) {
  for (const char* text : {"", "\n", "# only a comment\n", "---\n", "{}", "policy:\n"}) {
    const auto config = Parse(text, "f");
    ASSERT_TRUE(config.ok()) << text << config.status();
    EXPECT_EQ(config->rpc.listen, "127.0.0.1:7431");
    EXPECT_EQ(config->http_listen, "127.0.0.1:7432");
    EXPECT_EQ(config->engine.run.policy.qk_clip.tau, 100);
    EXPECT_EQ(config->engine.run.policy.mode, model::Mode::kObserve);
    EXPECT_THAT(KeysNeedingRestart(*config, Config{}), IsEmpty());
  }
}

TEST(Config, ReachesTheOptionsOfEveryRoom) {
  const auto config = LoadFile(kHere / "full.good.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rpc.listen, "[::1]:0");
  EXPECT_EQ(config->http_listen, "localhost:9000");
  EXPECT_EQ(config->data_dir, "/var/lib/elsewhere");
  EXPECT_EQ(config->log_level, base::LogLevel::kDebug);
  const policy::PolicyOptions& policy = config->engine.run.policy;
  EXPECT_EQ(policy.mode, model::Mode::kAct);
  EXPECT_THAT(policy.automatic, ElementsAre(model::InterventionKind::kCollect));
  EXPECT_EQ(policy.qk_clip.tau, 30.5);
  EXPECT_EQ(policy.qk_clip.where, model::ClipWhere::kLocal);
  EXPECT_EQ(policy.qk_clip.variant, model::ClipVariant::kQOnly);
  const detect::DetectOptions& detect = config->engine.run.detect;
  EXPECT_EQ(detect.attn_logit.tau, 30.5) << "the tau of the clips";
  EXPECT_EQ(detect.loss_spike.heal_records, 5u);
  EXPECT_EQ(detect.loss_spike.enter_sigmas, 10);
  EXPECT_NE(detect.grad_spike.heal_records, 5u) << "the other detector keeps its own";
  const detect::Voice& entropy = detect.voices[detect::DetectorIndex("attn_entropy")];
  EXPECT_FALSE(entropy.enabled);
  EXPECT_EQ(entropy.severity_max, model::Severity::kCritical);
  const detect::Voice& profile = detect.voices[detect::DetectorIndex("grad_profile")];
  EXPECT_TRUE(profile.enabled);
  EXPECT_EQ(profile.severity_max, model::Severity::kInfo);
  EXPECT_EQ(detect.grad_profile.high_per_layer, 20);
  EXPECT_EQ(config->engine.shards, 7u);
  EXPECT_EQ(config->telemetry.ended_ttl, base::Milliseconds(60000));
}

TEST(Config, ReadsAListOfWebhooks) {
  const auto config = Parse(
      "notify:\n  page_url: https://g.example\n  webhooks:\n"
      "    - name: ops\n      url: http://a/\n      events: [run_ended, episode_opened]\n"
      "    - {name: chat, url_file: /f, format: slack, min_severity: critical, timeout_ms: 500}\n", "f");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->notify.page_url, "https://g.example");
  const auto& webhooks = config->notify.webhooks;
  ASSERT_EQ(webhooks.size(), 2u);
  EXPECT_EQ(webhooks[0].name, "ops");
  EXPECT_THAT(webhooks[0].events, ElementsAre(notify::Kind::kRunEnded, notify::Kind::kEpisodeOpened));
  EXPECT_EQ(webhooks[0].format, notify::Format::kJson);
  EXPECT_EQ(webhooks[1].target.url_file, "/f");
  EXPECT_EQ(webhooks[1].format, notify::Format::kSlack);
  EXPECT_EQ(webhooks[1].min_severity, model::Severity::kCritical);
  EXPECT_EQ(webhooks[1].target.timeout, base::Milliseconds(500));
  EXPECT_THAT(KeysNeedingRestart(*config, Config{}), IsEmpty()) << "all of it reloads";
  for (const char* none : {"notify.webhooks: []", "notify: {webhooks: }", "notify:\n"})
    EXPECT_EQ(ErrorOf(none), "") << none;
  std::string many = "notify.webhooks:\n";
  for (int i = 0; i < 17; ++i) many += "  - {name: h" + std::to_string(i) + ", url: 'http://a/'}\n";
  EXPECT_EQ(ErrorOf(many), "f:1: notify.webhooks: saw 17 webhooks, accepted are at most 16");
}

TEST(Config, SaysAllThatIsWrongWithABadFile) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(kHere)) {
    const std::string name = entry.path().filename();
    if (name.find(".bad.yaml") == std::string::npos) continue;
    ++files;
    const std::string text = Read(entry.path());
    std::vector<std::string> expected;
    for (const std::string& line : Lines(text))
      if (line.rfind("# error: ", 0) == 0)
        expected.push_back(name + ":" + (std::isdigit(line[9]) != 0 ? "" : " ") + line.substr(9));
    EXPECT_THAT(expected, ::testing::Not(IsEmpty())) << name << " says nothing of what is wrong with it";
    const auto config = Parse(text, name);
    ASSERT_FALSE(config.ok()) << name << " was accepted";
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Lines(std::string(config.status().message())), expected) << name;
  }
  EXPECT_GE(files, 12);
}

TEST(Config, AcceptsBothEndsOfARangeAndNothingBeyond) {
  for (const char* text : {"engine.shards: 1", "engine.shards: 64", "policy.qk_clip.tau: 1", "policy.qk_clip.tau: 1e6",
                           "telemetry.ended_ttl_s: 0", "telemetry.ended_ttl_s: 604800"})
    EXPECT_EQ(ErrorOf(text), "") << text;
  for (const char* text :
       {"engine.shards: 0", "engine.shards: 65", "policy.qk_clip.tau: 0.999", "policy.qk_clip.tau: 1000000.1",
        "telemetry.ended_ttl_s: -1", "telemetry.ended_ttl_s: 604801", "policy.qk_clip.tau: .inf",
        "policy.qk_clip.tau: inf", "policy.qk_clip.tau: nan", "engine.shards: 0x2", "engine.shards: ''"})
    EXPECT_NE(ErrorOf(text), "") << text;
}

TEST(Config, KeepsAnErrorShortHoweverLongTheValue) {
  EXPECT_LT(ErrorOf("policy.mode: " + std::string(10000, 'x')).size(), 300u);
  EXPECT_LT(ErrorOf("policy.automatic: [" + std::string(10000, 'x') + "]").size(), 500u);
}

TEST(Config, TellsAPageOfMistakesAndCountsTheRest) {
  std::string yaml;
  for (int i = 0; i < 2000; ++i) yaml += "k" + std::to_string(i) + ": 1\n";
  const std::vector<std::string> lines = Lines(ErrorOf(yaml));
  ASSERT_EQ(lines.size(), 51u);
  EXPECT_THAT(lines[0], HasSubstr("f:1: k0: there is no such key"));
  EXPECT_EQ(lines[50], "f: and 1950 more");
}

TEST(Config, SaysWhyAFileCannotBeRead) {
  const fs::path dir = fs::path(::testing::TempDir()) / ("config_test." + std::to_string(getpid()));
  fs::create_directories(dir);
  EXPECT_EQ(LoadFile(dir / "none.yaml").status().message(),
            (dir / "none.yaml").string() + ": cannot be read: No such file or directory");
  EXPECT_EQ(LoadFile(dir).status().message(), dir.string() + ": is not a regular file");
  std::ofstream(dir / "huge.yaml") << std::string(300 << 10, '#');
  EXPECT_THAT(std::string(LoadFile(dir / "huge.yaml").status().message()), HasSubstr("is larger than 262144 bytes"));
  fs::remove_all(dir);
}

TEST(Config, ShowsDefaultsThatReadBackTheSame) {
  const std::string yaml = DefaultYaml();
  const auto config = Parse(yaml, "default");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(KeysNeedingRestart(*config, Config{}), IsEmpty());
  EXPECT_EQ(config->engine.run.detect.grad_spike.enter_sigmas, Config{}.engine.run.detect.grad_spike.enter_sigmas);
  for (const std::string& line : Lines(yaml)) EXPECT_LE(line.size(), 100u) << line;
}

// deploy/gyrostat.yaml is what users copy: every key, with its default.
TEST(Config, ShipsItsDefaultFile) {
  const fs::path shipped = fs::path(testing::kSourceDir) / "deploy/gyrostat.yaml";
  if (std::getenv("GYROSTAT_UPDATE_GOLDEN") != nullptr) std::ofstream(shipped) << DefaultYaml();
  EXPECT_EQ(Read(shipped), DefaultYaml()) << "GYROSTAT_UPDATE_GOLDEN=1 rewrites it";
  EXPECT_TRUE(LoadFile(shipped).ok());
}

std::string BytesOf(const detect::DetectOptions& options) {
  detect::DetectOptions copy = options;
  base::ByteWriter out;
  base::SaveTo(&out, copy);
  return out.Take();
}

// A key of the default file, with the text of its range: "A number from 3 to 100. (reload)".
struct Shown {
  std::string key, range;
};
std::vector<Shown> DetectKeys() {
  std::vector<Shown> keys;
  std::string section, range;
  bool within = false;
  for (const std::string& line : Lines(DefaultYaml())) {
    if (!line.empty() && line[0] != ' ') within = line == "detect:";
    if (!within || line.size() < 4 || line == "detect:") continue;
    const size_t colon = line.find(':');
    if (line[2] != ' ') section = line.substr(2, colon - 2);
    else if (line[4] == '#') range = line.substr(6);
    else keys.push_back({"detect." + section + "." + line.substr(4, colon - 4), range});
  }
  return keys;
}

// Both ends of the range, or all choices.
std::vector<std::string> Ends(const std::string& range) {
  std::vector<std::string> ends;
  std::istringstream words(range.substr(0, range.rfind(". (reload)")));
  for (std::string word; words >> word;) {
    if (word.back() == ',') word.pop_back();
    ends.push_back(word);
  }
  if (range.rfind("One of", 0) == 0) return {ends.begin() + 2, ends.end()};
  return {ends[ends.size() - 3], ends.back()};
}

// No two keys share a field, no key misses its own, and each end of each range is a value that the options of the
// running detectors come back from bytes with: a reload is journalled.
TEST(Config, EachKeyOfADetectorIsAFieldOfItsOwn) {
  const std::string defaults = BytesOf({});
  std::vector<std::string> owner(defaults.size());
  const std::vector<Shown> keys = DetectKeys();
  EXPECT_GT(keys.size(), 150u);
  for (const Shown& each : keys) {
    bool changed = false;
    for (const std::string& value : Ends(each.range)) {
      Config config;
      ASSERT_TRUE(Set(each.key, value, "test", &config).ok()) << each.key << " " << value << " of " << each.range;
      const std::string bytes = BytesOf(config.engine.run.detect);
      ASSERT_EQ(bytes.size(), defaults.size());
      for (size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] == defaults[i]) continue;
        changed = true;
        EXPECT_TRUE(owner[i].empty() || owner[i] == each.key) << owner[i] << " and " << each.key << " at " << i;
        owner[i] = each.key;
      }
      base::ByteReader in(bytes);
      detect::DetectOptions back;
      // A file that crosses the default of a partner is refused, and need not come back.
      const bool accepted = Parse(each.key + ": " + value, "f").ok();
      EXPECT_TRUE(!accepted || base::LoadFrom(&in, &back)) << each.key << " = " << value;
    }
    EXPECT_TRUE(changed) << each.key;
  }
}

TEST(Config, HasASectionForEachDetector) {
  std::set<std::string> sections;
  for (const Shown& each : DetectKeys()) sections.insert(each.key.substr(7, each.key.rfind('.') - 7));
  const std::vector<std::string_view> names = detect::DetectorNames();
  EXPECT_EQ(sections, std::set<std::string>(names.begin(), names.end()));
}

TEST(Config, KnowsWhatNeedsARestart) {
  const auto wanted = Parse("engine.shards: 3\nlisten.http: 127.0.0.1:1\npolicy.mode: act\nlog.level: debug", "f");
  ASSERT_TRUE(wanted.ok());
  EXPECT_THAT(KeysNeedingRestart(Config{}, *wanted), ElementsAre("listen.http", "engine.shards"));
}

TEST(Config, SetsOneKeyAsAFlagDoes) {
  Config config;
  EXPECT_TRUE(Set("listen.http", "127.0.0.1:0", "--http-listen", &config).ok());
  EXPECT_EQ(config.http_listen, "127.0.0.1:0");
  EXPECT_EQ(Set("engine.shards", "many", "--shards", &config).message(),
            "--shards: saw 'many', accepted is a whole number from 1 to 64");
  EXPECT_EQ(Set("engine.sharps", "1", "--sharps", &config).message(), "--sharps: there is no key engine.sharps");
  EXPECT_EQ(config.engine.shards, Config{}.engine.shards);
}

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    if (value != nullptr) setenv(name, value, 1); else unsetenv(name);
  }
  ~Environment() {
    if (old_) setenv(name_, old_->c_str(), 1); else unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(Config, FindsADataDirectoryOfTheUsersOwn) {
  if (geteuid() == 0) {
    EXPECT_EQ(DefaultDataDir(), "/var/lib/gyrostat");
    return;
  }
  const Environment home("HOME", "/somewhere");
  {
    const Environment state("XDG_STATE_HOME", "/state");
    EXPECT_EQ(DefaultDataDir(), "/state/gyrostat");
  }
  const Environment state("XDG_STATE_HOME", "relative");
  EXPECT_EQ(DefaultDataDir(), "/somewhere/.local/state/gyrostat");
}

}  // namespace
}  // namespace gyrostat::config
