#include "ctl/cli.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gyrostat::ctl {
namespace {

Environment Env() { return {.address = "", .user = "ada"}; }

Request Accepted(const std::vector<std::string>& args, const Environment& environment = Env()) {
  Parsed parsed = Parse(args, environment);
  EXPECT_TRUE(parsed.request.has_value()) << parsed.err;
  return parsed.request.value_or(Request());
}

// The sentence of a refusal, without program name and hint.
std::string Refused(const std::vector<std::string>& args) {
  const Parsed parsed = Parse(args, Env());
  EXPECT_FALSE(parsed.request.has_value());
  EXPECT_EQ(parsed.exit_code, kUsage);
  EXPECT_EQ(parsed.out, "");
  const std::string prefix = "gyrostatctl: ";
  EXPECT_EQ(parsed.err.substr(0, prefix.size()), prefix);
  const size_t end = parsed.err.find("\nTry: gyrostatctl");
  EXPECT_NE(end, std::string::npos) << parsed.err;
  return parsed.err.substr(prefix.size(), end - prefix.size());
}

TEST(Parse, AddressComesFromFlagThenEnvironmentThenDefault) {
  EXPECT_EQ(Accepted({"runs"}).address, "127.0.0.1:7431");
  EXPECT_EQ(Accepted({"runs"}, {.address = "h:1", .user = ""}).address, "h:1");
  EXPECT_EQ(Accepted({"runs", "--address", "h:2"}, {.address = "h:1", .user = ""}).address, "h:2");
  EXPECT_EQ(Accepted({"--address", "h:3", "runs"}, {.address = "h:1", .user = ""}).address, "h:3");
}

TEST(Parse, CommonOptionsStandBeforeOrAfterEveryCommand) {
  const std::vector<std::vector<std::string>> commands = {
      {"runs"}, {"show", "r"}, {"findings", "r"}, {"interventions", "r"}, {"approve", "r/1"},
      {"reject", "r/1", "--reason", "no"}, {"mode", "r", "act"}, {"watch", "r"}, {"series", "r", "loss"},
      {"export", "r"}, {"doctor"}, {"check-config", "f"}, {"qk-clip", "--tau", "1", "--logits", "1"},
      {"completion", "bash"}, {"propose", "r", "halt"}, {"deepnorm", "--arch", "decoder", "--layers", "2"},
      {"warmup", "--kind", "const", "--peak", "1", "--warmup", "9", "--at", "3"}};
  for (std::vector<std::string> words : commands) {
    EXPECT_FALSE(Accepted(words).json) << words[0];
    std::vector<std::string> before = words;
    before.insert(before.begin(), {"--json", "--token-file", "t"});
    words.insert(words.end(), {"--json", "--token-file", "t"});
    for (const auto& each : {before, words}) {
      EXPECT_TRUE(Accepted(each).json) << words[0];
      EXPECT_EQ(Accepted(each).token_file, "t") << words[0];
    }
  }
}

TEST(Parse, ProposeTakesWhatTheKindTakes) {
  const Request request = Accepted({"propose", "r", "deepnorm_alpha", "--alpha", "2.4", "--beta", "0.5", "--ramp",
                                    "100", "--reason", "it stands still", "--author", "ada"});
  EXPECT_EQ(request.command, Command::kPropose);
  EXPECT_EQ(request.run, "r");
  EXPECT_EQ(request.propose.kind, "deepnorm_alpha");
  EXPECT_EQ(request.propose.alpha, 2.4);
  EXPECT_EQ(request.propose.beta, 0.5);
  EXPECT_EQ(request.propose.ramp, 100u);
  EXPECT_EQ(request.reason, "it stands still");
  EXPECT_EQ(request.author, "ada");
  EXPECT_EQ(Accepted({"propose", "r", "lr_scale", "--scale", "0.5", "--for", "0"}).propose.for_boundaries, 0u);
  EXPECT_EQ(Accepted({"propose", "r", "skip_step", "--at-step", "81234"}).propose.at_step, 81234);
  const auto error = [](const std::vector<std::string>& words) {
    const Parsed parsed = Parse(words, {});
    EXPECT_EQ(parsed.exit_code, kUsage);
    return parsed.err;
  };
  EXPECT_NE(error({"propose", "r", "lr_scale", "--alpha", "2"})
                .find("--alpha is given to lr_scale, wanted only with deepnorm_alpha"), std::string::npos);
  EXPECT_NE(error({"propose", "r", "skip_step"}).find("skip_step needs --at-step STEP"), std::string::npos);
  error({"propose", "r", "qk_clip"});
  error({"propose", "r", "deepnorm_alpha", "--ramp", "201"});
  error({"propose", "r"});
}

TEST(Parse, WarmupTakesAScheduleAndSteps) {
  const Request request = Accepted({"warmup", "--kind", "cosine", "--peak", "1e-3", "--warmup", "1000", "--total",
                                    "20000", "--at", "300", "--to", "2000", "--steps", "0,300, 1e3"});
  EXPECT_EQ(request.command, Command::kWarmup);
  EXPECT_EQ(request.warmup.kind, "cosine");
  EXPECT_EQ(request.warmup.peak, 1e-3);
  EXPECT_EQ(request.warmup.total, 20000u);
  EXPECT_EQ(request.warmup.to, 2000u);
  EXPECT_EQ(request.warmup.steps, (std::vector<uint64_t>{0, 300, 1000}));
  for (const char* bad : {"-1", "1.5", "nan", "inf", "1e16", "x", ""})
    EXPECT_EQ(Parse({"warmup", "--kind", "const", "--peak", "1", "--warmup", "9", "--at", "3", "--steps",
                     std::string("1,") + bad}, {}).exit_code, kUsage) << bad;
}

TEST(Parse, MlaWidthsGoTogether) {
  const Request request = Accepted({"qk-clip", "--tau", "1", "--logits", "1", "--variant", "mla", "--nope-dim", "128",
                                    "--rope-dim", "64", "--v-dim", "128"});
  EXPECT_EQ(request.mla.nope, 128u);
  EXPECT_EQ(request.mla.rope, 64u);
  EXPECT_EQ(request.mla.value, 128u);
  EXPECT_EQ(Parse({"qk-clip", "--tau", "1", "--logits", "1", "--nope-dim", "128"}, {}).exit_code, kUsage);
}

TEST(Parse, DeepNormKnowsItsArchitectures) {
  EXPECT_EQ(Accepted({"deepnorm", "--arch", "encoder-decoder", "--layers", "6", "--decoder-layers", "4"})
                .decoder_layers, 4u);
  EXPECT_EQ(Parse({"deepnorm", "--arch", "both", "--layers", "6"}, {}).exit_code, kUsage);
  EXPECT_EQ(Parse({"deepnorm", "--arch", "decoder", "--layers", "-1"}, {}).exit_code, kUsage);
}

TEST(Parse, ModeTakesARunOrAll) {
  const Request one = Accepted({"mode", "gpt", "act", "--reason", "tested"});
  EXPECT_EQ(one.command, Command::kMode);
  EXPECT_EQ(one.run, "gpt");
  EXPECT_EQ(one.mode, "act");
  EXPECT_EQ(one.reason, "tested");
  EXPECT_EQ(one.author, "ada");
  EXPECT_FALSE(one.all);
  const Request all = Accepted({"mode", "--all", "observe", "--author", "eve"});
  EXPECT_TRUE(all.all);
  EXPECT_EQ(all.run, "");
  EXPECT_EQ(all.mode, "observe");
  EXPECT_EQ(all.author, "eve");
}

TEST(Parse, ModeRefusesHalfACommand) {
  EXPECT_EQ(Refused({"mode", "act"}),
            "mode takes a run and a mode, 1 words given; wanted: mode RUN observe|advise|act, "
            "or mode --all observe|advise|act");
  EXPECT_EQ(Refused({"mode", "--all", "gpt", "act"}),
            "mode --all takes the mode alone, 2 words given; wanted: mode --all observe|advise|act");
  EXPECT_EQ(Refused({"mode", "", "observe"}),
            "the run is \"\"; wanted: mode RUN observe|advise|act, or mode --all observe|advise|act");
  EXPECT_EQ(Refused({"mode", "gpt", "atc"}), "mode \"atc\" is unknown; wanted: observe, advise or act");
}

TEST(Parse, SeriesBoundsStepsAndPlaces) {
  const Request request =
      Accepted({"series", "gpt", "attn_logit_max", "--layer", "3", "--head", "0", "--from", "-5", "--to", "9"});
  EXPECT_EQ(request.layer, 3u);
  EXPECT_EQ(request.head, 0u);
  EXPECT_EQ(request.from_step, -5);
  EXPECT_EQ(request.to_step, 9);
  EXPECT_FALSE(Accepted({"series", "gpt", "loss"}).layer.has_value());
  EXPECT_EQ(Refused({"series", "gpt", "attn_logit_max", "--head", "1"}),
            "--head needs --layer: heads are counted within a layer");
  EXPECT_EQ(Refused({"series", "gpt", "loss", "--from", "9", "--to", "8"}), "--from 9 is after --to 8");
  EXPECT_NE(Refused({"series", "gpt", "loss", "--layer", "-1"}).find("--layer"), std::string::npos);
}

TEST(Parse, ExportChoosesFormatFileStepsAndSignals) {
  EXPECT_EQ(Accepted({"export", "gpt"}).export_format, "jsonl");
  const Request request = Accepted({"export", "gpt", "--format", "csv", "--out", "f.csv.gz", "--from", "3", "--to", "5",
                                    "--signals", "loss,grad_norm", "--signals", "tokens", "--json"});
  EXPECT_EQ(request.export_format, "csv");
  EXPECT_EQ(request.out, "f.csv.gz");
  EXPECT_EQ(request.from_step, 3);
  EXPECT_EQ(request.signals, (std::vector<std::string>{"loss", "grad_norm", "tokens"}));
  EXPECT_EQ(Refused({"export", "gpt", "--format", "csv", "--json"}),
            "--json prints objects and --format csv none; wanted one of them, or --out FILE");
  EXPECT_EQ(Refused({"export", "gpt", "--from", "9", "--to", "8"}), "--from 9 is after --to 8");
}

TEST(Parse, RejectNeedsAReason) { EXPECT_EQ(Refused({"reject", "gpt/1"}), "--reason is required"); }

TEST(Parse, WatchBoundsItsInterval) {
  EXPECT_EQ(Accepted({"watch", "gpt", "--interval", "0.25", "--count", "3"}).interval_ms, 250u);
  EXPECT_EQ(Accepted({"watch", "gpt"}).interval_ms, 1000u);
  Refused({"watch", "gpt", "--interval", "0.01"});
  Refused({"watch", "gpt", "--interval", "61"});
  Refused({"watch", "gpt", "--count", "-1"});
  EXPECT_TRUE(Accepted({"watch", "gpt", "--once"}).once);
  Refused({"watch", "gpt", "--once", "--count", "3"});
}

TEST(Parse, FailOnKnowsTwoSeverities) {
  EXPECT_EQ(Accepted({"findings", "gpt", "--fail-on", "critical", "--open"}).fail_on, "critical");
  EXPECT_EQ(Refused({"findings", "gpt", "--fail-on", "info"}), "--fail-on: info not in {warning,critical}");
}

TEST(Parse, NamesTheCommandsWhenOneIsUnknown) {
  const std::string text = Refused({"--address", "h:1", "fidnings", "gpt"});
  EXPECT_EQ(text.substr(0, 39), "no command \"fidnings\"; there are: runs ");
  EXPECT_NE(Refused({}).find("subcommand"), std::string::npos);
}

TEST(Parse, HelpAndVersionAreNoErrors) {
  for (const auto& args : std::vector<std::vector<std::string>>{{"--help"}, {"watch", "--help"}, {"--version"}}) {
    const Parsed parsed = Parse(args, Env());
    EXPECT_FALSE(parsed.request.has_value());
    EXPECT_EQ(parsed.exit_code, kDone);
    EXPECT_EQ(parsed.err, "");
    EXPECT_NE(parsed.out, "");
  }
  EXPECT_NE(Parse({"watch", "--help"}, Env()).out.find("--count"), std::string::npos);
  EXPECT_NE(Parse({"--help"}, Env()).out.find("Exit codes: 0 done"), std::string::npos);
}

TEST(ParseNumbers, TakesWhatLogitsCanBe) {
  std::string error;
  const auto values = ParseNumbers("250, -3.5,1e3,nan,-inf,Infinity", &error);
  ASSERT_TRUE(values.has_value()) << error;
  ASSERT_EQ(values->size(), 6u);
  EXPECT_EQ((*values)[1], -3.5);
  EXPECT_TRUE(std::isnan((*values)[3]));
  EXPECT_EQ((*values)[4], -INFINITY);
  EXPECT_EQ((*values)[5], INFINITY);
}

TEST(ParseNumbers, NamesTheWordThatIsNone) {
  for (const std::string bad : {"1,x", "1,,2", "", "1 2", "0x10", "1,"}) {
    std::string error;
    EXPECT_FALSE(ParseNumbers(bad, &error).has_value()) << bad;
    EXPECT_NE(error.find("is not a number; wanted numbers with commas between"), std::string::npos);
  }
}

TEST(BashCompletion, KnowsEveryCommandAndItsOptions) {
  const std::string script = BashCompletion();
  for (const std::string part :
       {"runs) words=", "--fail-on", "observe advise act", "complete -o default -F _gyrostatctl"})
    EXPECT_NE(script.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace gyrostat::ctl
