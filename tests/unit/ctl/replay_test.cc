#include "ctl/replay.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ctl/spec_file.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace gyrostat::ctl {
namespace {

using nlohmann::ordered_json;

std::string Own(const std::string& name) { return std::string(testing::kSourceDir) + "/tests/corpus/" + name; }

class ReplayCommand : public ::testing::Test {
 protected:
  ReplayCommand() {
    request.command = Command::kReplay;
    request.json = true;
    request.rules = {"gyrostat"};
  }
  int Run() {
    out.str("");
    err.str("");
    const Console console{out, err, base::SystemClock(), style, false, [] { return Size(); }};
    return request.command == Command::kReplay ? ReplayFiles(request, console, read_thresholds)
                                               : CheckModel(request, console);
  }
  std::vector<ordered_json> Objects() {
    std::vector<ordered_json> objects;
    std::istringstream lines(out.str());
    for (std::string line; std::getline(lines, line);) objects.push_back(ordered_json::parse(line));
    return objects;
  }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(temp.File(name), std::ios::binary) << text;
    return temp.File(name);
  }

  testing::TempDir temp;
  Request request;
  std::ostringstream out, err;
  Style style;
  ThresholdsReader read_thresholds = [](const std::string& file) -> absl::StatusOr<engine::RunOptions> {
    return absl::NotFoundError(file + ": nobody wanted it");
  };
};

TEST_F(ReplayCommand, PrintsTheObjectOfTheContract) {
  request.files = {Own("hf_trainer_state.json")};
  EXPECT_EQ(Run(), kDone) << err.str();
  const auto objects = Objects();
  ASSERT_EQ(objects.size(), 1u);
  std::vector<std::string> keys, finding_keys;
  for (const auto& [key, value] : objects[0].items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"file", "run", "format", "steps", "first_step", "last_step", "signals",
                                            "skipped_rows", "warnings", "spike_score", "findings"}));
  EXPECT_EQ(objects[0]["run"], "hf_trainer_state.json");
  EXPECT_EQ(objects[0]["format"], "hf-trainer");
  EXPECT_EQ(objects[0]["steps"], 60);
  EXPECT_EQ(objects[0]["first_step"], 1);
  EXPECT_EQ(objects[0]["signals"], (std::vector<std::string>{"loss", "learning_rate", "grad_norm"}));
  EXPECT_TRUE(objects[0]["spike_score"]["loss"].is_null()) << "60 values do not fill a window of 1000";
  ASSERT_FALSE(objects[0]["findings"].empty());
  for (const auto& [key, value] : objects[0]["findings"][0].items()) finding_keys.push_back(key);
  EXPECT_EQ(finding_keys,
            (std::vector<std::string>{"rules", "detector", "severity", "signal", "layer", "head", "rank", "step_begin",
                                      "step_detected", "step_end", "healed", "value", "expected", "message",
                                      "recommend"}));
}

TEST_F(ReplayCommand, FindsTheNanOfEveryFormatAtItsRow) {
  for (const char* name : {"megatron_srun.log", "llmc_stdout.log", "fairseq_json.log", "pandas_nan.csv",
                           "tensor.tfevents", "olmo_text.log", "gyrostat.jsonl.gz"}) {
    request.files = {Own(name)};
    EXPECT_EQ(Run(), kDone) << err.str();
    const auto object = Objects().at(0);
    const int64_t first = object["first_step"], stride = (object["last_step"].get<int64_t>() - first) / 59;
    bool found = false;
    for (const auto& each : object["findings"])
      found = found || (each["detector"] == "nonfinite" && each["signal"] == "loss" &&
                        each["step_begin"] == first + 40 * stride && each["value"] == "NaN");
    EXPECT_TRUE(found) << name;
  }
}

TEST_F(ReplayCommand, ARestartIsTheSameRunWithEachStepCountedOnce) {
  std::string text;
  for (int step = 0; step < 50; ++step) text += "{\"step\": " + std::to_string(step) + ", \"loss\": 2}\n";
  for (int step = 30; step < 70; ++step) text += "{\"step\": " + std::to_string(step) + ", \"loss\": 2.5}\n";
  request.files = {Write("run.jsonl", text)};
  EXPECT_EQ(Run(), kDone);
  ASSERT_EQ(Objects().size(), 1u);
  EXPECT_EQ(Objects()[0]["steps"], 70);
  EXPECT_EQ(Objects()[0]["last_step"], 69);
}

// One spike, of 1.3 times the level: 6 deviations where the scale is 0.05.
std::string OneSpike() {
  std::string text;
  for (int step = 0; step < 200; ++step)
    text += "{\"step\": " + std::to_string(step) + ", \"loss\": " +
            (step == 150 ? "2.6" : step % 2 == 0 ? "1.98" : "2.02") + "}\n";
  return text;
}

TEST_F(ReplayCommand, TheThresholdsOfAConfigurationJudge) {
  request.files = {Write("run.jsonl", OneSpike())};
  EXPECT_EQ(Run(), kDone) << err.str();
  ASSERT_EQ(Objects().at(0)["findings"].size(), 1u);
  EXPECT_EQ(Objects()[0]["findings"][0]["detector"], "loss_spike");
  engine::RunOptions thresholds;
  thresholds.detect.loss_spike.enter_sigmas = 100;
  std::string asked;
  read_thresholds = [&](const std::string& file) {
    asked = file;
    return thresholds;
  };
  request.config = "tuned.yaml";
  EXPECT_EQ(Run(), kDone) << err.str();
  EXPECT_EQ(asked, "tuned.yaml");
  EXPECT_TRUE(Objects().at(0)["findings"].empty());
}

TEST_F(ReplayCommand, AnswersABadConfigurationWithAllItsMistakes) {
  request.files = {Write("run.jsonl", OneSpike())};
  request.config = "bad.yaml";
  read_thresholds = [](const std::string&) { return absl::InvalidArgumentError("bad.yaml:1: one\nbad.yaml:2: two"); };
  EXPECT_EQ(Run(), kRefused);
  EXPECT_EQ(out.str(), "");
  EXPECT_EQ(err.str(), "gyrostatctl: bad.yaml:1: one\ngyrostatctl: bad.yaml:2: two\n");
}

TEST_F(ReplayCommand, AFileThatCannotBeReadStopsNoOther) {
  request.files = {temp.File("absent.log"), Own("nanogpt.log"), Write("prose.txt", "hello\n")};
  EXPECT_EQ(Run(), kRefused);
  EXPECT_EQ(Objects().size(), 1u);
  EXPECT_NE(err.str().find("absent.log: No such file"), std::string::npos);
  EXPECT_NE(err.str().find("prose.txt:1: no step with a loss"), std::string::npos);
}

TEST_F(ReplayCommand, FailsOnlyOnWhatWasAskedFor) {
  std::string lasting;
  for (int step = 0; step < 50; ++step)
    lasting += "{\"step\": " + std::to_string(step) + ", \"loss\": " + (step < 40 ? "2" : "NaN") + "}\n";
  request.files = {Write("nan.jsonl", lasting)};
  EXPECT_EQ(Run(), kDone);
  request.fail_on = "critical";
  EXPECT_EQ(Run(), kRefused);
  std::string calm;
  for (int step = 0; step < 50; ++step) calm += "{\"step\": " + std::to_string(step) + ", \"loss\": 2}\n";
  request.files = {Write("calm.jsonl", calm)};
  request.fail_on = "warning";
  EXPECT_EQ(Run(), kDone);
}

TEST_F(ReplayCommand, SeveralRunsOfOneFileAreSeveralObjects) {
  request.files = {Own("wandb_runs.csv")};
  EXPECT_EQ(Run(), kDone);
  const auto objects = Objects();
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0]["run"], "aaa111");
  EXPECT_EQ(objects[1]["run"], "bbb222");
  const auto logit = [](const ordered_json& run) {
    for (const auto& each : run["findings"])
      if (each["detector"] == "attn_logit") return true;
    return false;
  };
  EXPECT_FALSE(logit(objects[0]));
  EXPECT_TRUE(logit(objects[1]));
}

TEST_F(ReplayCommand, CurvesLieBelowEachOtherInTheWidthThereIs) {
  std::string text;
  for (int step = 0; step < 400; ++step)
    text += "{\"step\": " + std::to_string(step) + ", \"loss\": " + (step < 200 ? "2" : "4") +
            (step < 200 ? "}\n" : step % 40 == 0 ? ", \"output_logit_absmax\": 8}\n" : ", \"grad_norm\": NaN}\n");
  request.json = false;
  request.files = {Write("late.jsonl", text)};
  const auto line = [this](const std::string& begin) {
    const size_t at = out.str().find("\n" + begin) + 1;
    return out.str().substr(at, out.str().find('\n', at) - at);
  };
  for (const size_t columns : {60, 80, 120}) {
    style.columns = columns;
    style.unicode = false;
    EXPECT_EQ(Run(), kDone);
    EXPECT_EQ(line("signal ").find("first") != std::string::npos, columns >= 100);
    const std::string loss = line("loss "), norm = line("grad_norm "), logit = line("output_logit_absmax ");
    EXPECT_LE(loss.size(), columns);
    EXPECT_EQ(loss.size(), norm.size()) << out.str();
    EXPECT_EQ(loss.find('#'), norm.find('x')) << "both change half way";
    EXPECT_EQ(loss.find('#'), logit.find('_', 20)) << "what began later stands later";
    EXPECT_EQ(logit.find_first_not_of('_', logit.find('_', 20)), std::string::npos) << "no holes between rare reports";
  }
  EXPECT_NE(out.str().find("x: not finite, of grad_norm 195 values."), std::string::npos) << out.str();
}

TEST_F(ReplayCommand, AModelThatDoesNotFitLeavesTheRestGood) {
  request.files = {Own("gyrostat.jsonl")};
  request.model = Write("model.json", R"({"layers": 3, "heads": 2})");
  EXPECT_EQ(Run(), kDone);
  const auto object = Objects().at(0);
  EXPECT_EQ(object["signals"], (std::vector<std::string>{"loss", "learning_rate", "grad_norm"}));
  EXPECT_NE(object["warnings"].dump().find("attn_logit_max has 4 values, wanted 6"), std::string::npos);
  request.model = Write("bad.json", R"({"layers": "many"})");
  EXPECT_EQ(Run(), kRefused);
  EXPECT_NE(err.str().find("bad.json: layers is \"many\""), std::string::npos) << err.str();
}

TEST_F(ReplayCommand, ThePageStandsAlone) {
  const std::string evil = Write("<script>.jsonl", "{\"run\": \"<b>&\", \"step\": 1, \"loss\": 2}\n");
  request.files = {Own("gyrostat.jsonl"), Own("megatron_srun.log"), evil};
  request.html = temp.File("page.html");
  EXPECT_EQ(Run(), kDone) << err.str();
  std::ifstream in(request.html, std::ios::binary);
  const std::string page(std::istreambuf_iterator<char>(in), {});
  for (const char* outside : {"http:", "https:", "src=\"/", "@import", "url(h", "url(/"})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  EXPECT_EQ(page.find("<script>"), page.rfind("<script>")) << "its own, and no name's";
  for (const char* wanted : {"default-src 'none'", "prefers-color-scheme: dark", "&lt;b&gt;&amp;", "<b>loss</b>",
                             "attn_logit_max by layer", "attn_logit_max by head", "class=\"band", "class=\"pin",
                             "class=\"nonfinite\"", "data:image/bmp;base64,Qk"})
    EXPECT_NE(page.find(wanted), std::string::npos) << wanted;
  EXPECT_EQ(page.find("nan\""), std::string::npos) << "no coordinate may be NaN";
  request.html = temp.File("no/such/folder.html");
  EXPECT_EQ(Run(), kRefused);
  EXPECT_NE(err.str().find("cannot be written"), std::string::npos);
}

TEST_F(ReplayCommand, PeopleReadCurvesAndSentences) {
  request.json = false;
  request.files = {Own("hf_trainer_state.json")};
  EXPECT_EQ(Run(), kDone);
  EXPECT_NE(out.str().find("60 steps, 1 to 60, hf-trainer"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("▁"), std::string::npos);
  EXPECT_NE(out.str().find("not finite"), std::string::npos);
}

TEST_F(ReplayCommand, LeadsWithOneDiagnosisForEachEpisode) {
  std::string text;
  for (int step = 0; step < 300; ++step)
    text += "{\"step\": " + std::to_string(step) + ", \"loss\": " + (step < 200 ? "2" : "NaN") + "}\n";
  request.json = false;
  request.files = {Write("nan.jsonl", text)};
  request.html = temp.File("page.html");
  EXPECT_EQ(Run(), kDone);
  const size_t page = out.str().find("\nCRITICAL  "), evidence = out.str().find("\nEvidence:\n"),
               signals = out.str().find("\nsignal "), count = out.str().find("--findings lists");
  EXPECT_LT(page, evidence) << out.str();
  EXPECT_LT(evidence, signals);
  EXPECT_LT(signals, count);
  ASSERT_NE(count, std::string::npos);
  EXPECT_EQ(out.str().find("severity"), std::string::npos) << "no table of raw findings";
  std::ifstream in(request.html, std::ios::binary);
  const std::string html(std::istreambuf_iterator<char>(in), {});
  EXPECT_NE(html.find("<article class=\"episode verdict critical\">"), std::string::npos);
  EXPECT_LT(html.find("class=\"evidence\""), html.find("<h3>Findings</h3>"));
  request.list_findings = true;
  EXPECT_EQ(Run(), kDone);
  EXPECT_NE(out.str().find("severity"), std::string::npos);
  EXPECT_NE(out.str().find("nonfinite"), std::string::npos);
  // Other tools have no episodes: what they said is the answer.
  request.list_findings = false;
  request.rules = {"llmc"};
  EXPECT_EQ(Run(), kDone);
  EXPECT_EQ(out.str().find("Evidence:"), std::string::npos);
}

TEST_F(ReplayCommand, CheckModelSaysWhatIsKnown) {
  request.command = Command::kCheckModel;
  request.file = Write("config.json", R"({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4})");
  EXPECT_EQ(Run(), kDone);
  EXPECT_EQ(Objects()[0]["kind"], "hf-config");
  EXPECT_EQ(Objects()[0]["model"]["norm_placement"], "pre");
  EXPECT_TRUE(Objects()[0]["model"]["hidden_size"].is_null());
  request.file = Write("spec.json", R"({"layers": 2, "heads": 3, "kv_heads": 2})");
  EXPECT_EQ(Run(), kRefused);
  EXPECT_EQ(Objects()[0]["valid"], false);
  request.json = false;
  EXPECT_EQ(Run(), kRefused);
  EXPECT_NE(err.str().find("spec.json: heads is 3, wanted a multiple of kv_heads, 2"), std::string::npos);
}

}  // namespace
}  // namespace gyrostat::ctl
