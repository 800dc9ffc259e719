#include "ctl/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "ctl/address.h"
#include "ctl/judge.h"
#include "ctl/propose_words.h"

namespace gyrostat::ctl {
namespace {


constexpr char kAbout[] =
    "gyrostatctl: look at training runs, and answer what gyrostat proposes.\n\n"
    "It talks to a gyrostatd; replay, check-config, check-model, qk-clip, deepnorm, warmup and completion need none.";
constexpr char kEpilogue[] =
    "\nExamples:\n"
    "  gyrostatctl runs                           what reports, and what is open\n"
    "  gyrostatctl watch my-run                   live, on one screen\n"
    "  gyrostatctl show my-run                    what happens to it, and what to do about it\n"
    "  gyrostatctl approve my-run/3               let a proposal happen\n"
    "  gyrostatctl replay train.log               judge a finished run, whatever wrote its log\n"
    "  gyrostatctl mode --all observe             stop everything gyrostat does to jobs\n"
    "  gyrostatctl runs --json | jq .run          one JSON object a line, for every command\n\n"
    "Exit codes: 0 done; 1 refused, invalid input, or findings under --fail-on; 2 usage; 3 no daemon answers.\n"
    "The daemon is sought at --address, else $GYROSTAT_ADDRESS, else 127.0.0.1:7431.\n";

// What CLI11 binds to: a Request, and words that need a second look.
struct Draft {
  Request request;
  std::vector<std::string> mode_words;
  double interval_s = 1;
  std::string logits, steps, shell, format = "auto";
  std::vector<std::string> maps, rules;
};

// CLI11 answers "missing" and "unknown" through exceptions; our own second looks use the same way out, inside this
// file.
[[noreturn]] void Refuse(const std::string& sentence) { throw CLI::ValidationError(sentence, kUsage); }

CLI::App* Add(CLI::App* app, Draft* draft, Command command, const std::string& name, const std::string& about,
              const std::string& examples) {
  CLI::App* sub = app->add_subcommand(name, about);
  sub->add_flag("--json", draft->request.json, "Print JSON, one object a line");
  sub->add_option("--address", draft->request.address, "Daemon as HOST:PORT or unix:PATH")->option_text("HOST:PORT");
  sub->add_option("--token-file", draft->request.token_file, "File with the access token")->option_text("FILE");
  sub->footer("\nExamples:\n" + examples);
  sub->callback([draft, command] { draft->request.command = command; });
  return sub;
}

void AddRun(CLI::App* sub, Draft* draft) {
  sub->add_option("RUN", draft->request.run, "Name of the run, as `gyrostatctl runs` lists it")->required();
}

void AddReading(CLI::App* app, Draft* draft) {
  Request& request = draft->request;
  Add(app, draft, Command::kRuns, "runs", "List the runs this daemon knows", "  gyrostatctl runs\n");
  CLI::App* sub = Add(app, draft, Command::kShow, "show", "Everything about one run",
                      "  gyrostatctl show my-run\n  gyrostatctl show my-run --json | jq .scalars.loss\n");
  AddRun(sub, draft);
  sub = Add(app, draft, Command::kEpisodes, "episodes", "What happened to a run: one diagnosis for each episode",
            "  gyrostatctl episodes my-run\n"
            "  gyrostatctl episodes my-run --json | jq -r '[.step_begin, .cause, .healed] | @tsv'\n"
            "An episode is what belongs together, from the first mover until all is calm again.\n");
  AddRun(sub, draft);
  sub = Add(app, draft, Command::kFindings, "findings", "What the detectors found in a run",
            "  gyrostatctl findings my-run --open\n"
            "  gyrostatctl findings my-run --fail-on critical   exit 1 if there is a critical one: for scripts\n");
  AddRun(sub, draft);
  sub->add_flag("--open", request.open_only, "Only those that have not ended");
  sub->add_option("--fail-on", request.fail_on, "Exit 1 if one of this severity or above is listed")
      ->check(CLI::IsMember({"warning", "critical"}));
  sub = Add(app, draft, Command::kInterventions, "interventions", "What was proposed and done, and why",
            "  gyrostatctl interventions my-run\n");
  AddRun(sub, draft);
  sub = Add(app, draft, Command::kWatch, "watch", "One run, live",
            "  gyrostatctl watch my-run\n"
            "  gyrostatctl watch my-run --once              one page, then end\n"
            "  gyrostatctl watch my-run --json --count 3    three objects, then end\n"
            "On a terminal it redraws one page until q or Ctrl-C; into a pipe, a line for each update.\n");
  AddRun(sub, draft);
  CLI::Option* once = sub->add_flag("--once", request.once, "Print one page and end");
  sub->add_option("--count", request.count, "End after this many updates")
      ->excludes(once)
      ->check(CLI::Range(1, 1000000000))->option_text("N");  // CLI11 2.1 reads -1 as 2^64 - 1 where nothing checks.
  sub->add_option("--interval", draft->interval_s, "Seconds between updates, 0.1 to 60 (1)")
      ->check(CLI::Range(0.1, 60.0))->option_text("SECONDS");
  sub = Add(app, draft, Command::kSeries, "series", "The history of one signal",
            "  gyrostatctl series my-run loss\n"
            "  gyrostatctl series my-run attn_logit_max --layer 3 --head 1 --from 1000\n"
            "  gyrostatctl series my-run grad_norm | gnuplot -p -e \"plot '-' with lines\"\n"
            "On a terminal it prints a summary; into a pipe, a line `step value` for each step.\n");
  AddRun(sub, draft);
  sub->add_option("SIGNAL", request.signal, "Such as loss, grad_norm, hidden_ms, attn_logit_max")->required();
  sub->add_option("--layer", request.layer, "Layer, from 0")->option_text("L");
  sub->add_option("--head", request.head, "Head, from 0; needs --layer")->option_text("H");
  sub->add_option("--from", request.from_step, "First step")->option_text("STEP");
  sub->add_option("--to", request.to_step, "Last step")->option_text("STEP");
  sub->add_option("--points", request.points, "At most so many: smallest and largest of equal parts (all)")
      ->check(CLI::Range(2, 1000000000))->option_text("N");
}

void AddExport(CLI::App* app, Draft* draft) {
  CLI::App* sub = Add(app, draft, Command::kExport, "export", "The whole history of a run, as a file that replay reads",
                      "  gyrostatctl export my-run > my-run.jsonl\n"
                      "  gyrostatctl export my-run --out my-run.jsonl.gz\n"
                      "  gyrostatctl export my-run --format csv --signals loss,grad_norm --from 1000 > my-run.csv\n"
                      "  gyrostatctl export my-run | gyrostatctl replay -\n"
                      "jsonl holds every report to the last bit, and each attempt's model in a header of its own: a\n"
                      "replay of the whole finds what the daemon found. csv holds the values alone.\n"
                      "--json asks for jsonl; with --out it prints what was written, as one object.\n");
  AddRun(sub, draft);
  Request& request = draft->request;
  sub->add_option("--format", request.export_format,
                  "jsonl (default): with the model, arrays nested; csv: a column for each value")
      ->check(CLI::IsMember({"jsonl", "csv"}));
  sub->add_option("--out", request.out, "Write this file, gzipped where its name ends in .gz")->option_text("FILE");
  sub->add_option("--signals", request.signals, "Only these, with commas between; user scalars too")
      ->delimiter(',')->option_text("A,B,...");
  sub->add_option("--from", request.from_step, "First step")->option_text("STEP");
  sub->add_option("--to", request.to_step, "Last step")->option_text("STEP");
}

void AddActing(CLI::App* app, Draft* draft) {
  Request& request = draft->request;
  const auto signing = [&](CLI::App* sub) {
    sub->add_option("--author", request.author, "Who decides this (default: $USER)")->option_text("NAME");
  };
  CLI::App* sub = Add(app, draft, Command::kApprove, "approve", "Let a proposed intervention happen",
                      "  gyrostatctl approve my-run/3\n");
  sub->add_option("ID", request.id, "Of the intervention, as `gyrostatctl interventions` lists it")->required();
  sub->add_option("--reason", request.reason, "Kept with the decision")->option_text("TEXT");
  signing(sub);
  sub = Add(app, draft, Command::kReject, "reject", "Turn a proposed intervention down",
            "  gyrostatctl reject my-run/3 --reason \"the data shard was bad, not the model\"\n");
  sub->add_option("ID", request.id, "Of the intervention, as `gyrostatctl interventions` lists it")->required();
  sub->add_option("--reason", request.reason, "Kept with the decision")->required()->option_text("TEXT");
  signing(sub);
  sub = Add(app, draft, Command::kPropose, "propose", "Propose an intervention to a run", kProposeExamples);
  AddProposeWords(sub, &request);
  sub = Add(app, draft, Command::kMode, "mode", "What gyrostat may do to a run: observe, advise or act",
            "  gyrostatctl mode my-run act         send what the configuration allows\n"
            "  gyrostatctl mode my-run advise      propose, and wait for approve\n"
            "  gyrostatctl mode --all observe      the kill switch: nothing is sent any more\n");
  sub->add_option("RUN MODE", draft->mode_words, "The run (not with --all) and its new mode")->required();
  sub->add_flag("--all", request.all, "All runs, and runs to come");
  sub->add_option("--reason", request.reason, "Kept with the decision")->option_text("TEXT");
  signing(sub);
}

void AddOffline(CLI::App* app, Draft* draft) {
  Request& request = draft->request;
  CLI::App* sub = Add(app, draft, Command::kCheckConfig, "check-config", "Check a gyrostatd configuration file",
                      "  gyrostatctl check-config /etc/gyrostat/gyrostat.yaml\n");
  sub->add_option("FILE", request.file, "YAML file")->required();
  sub = Add(app, draft, Command::kDoctor, "doctor", "Find out why nothing arrives",
            "  gyrostatctl doctor\n  gyrostatctl doctor --data-dir /var/lib/gyrostat\n"
            "Each line is ok, warn or fail, with what to do. Exit 1 when one fails, 3 when no daemon answers.\n");
  sub->add_option("--data-dir", request.data_dir, "The daemon's data directory, to find a daemon on another port")
      ->option_text("DIR");
  sub = Add(app, draft, Command::kCompletion, "completion", "Print a completion script for bash",
            "  source <(gyrostatctl completion bash)\n");
  sub->add_option("SHELL", draft->shell, "bash")->required()->check(CLI::IsMember({"bash"}));
}

constexpr char kQkClipExamples[] =
    "  gyrostatctl qk-clip --tau 100 --logits 250,80,99\n"
    "  gyrostatctl qk-clip --tau 100 --logits 250,80,99,40 --kv-heads 2 --variant q_only\n"
    "  gyrostatctl qk-clip --tau 100 --logits 250,80 --variant mla --nope-dim 128 --rope-dim 64 --v-dim 128\n"
    "One logit per query head. gamma = tau / max(S, tau); W_q and W_k of a head are scaled by q and k.\n"
    "group_min   heads that share a key shrink together, by their worst: the default for grouped keys\n"
    "q_only      touches no healthy head, but W_k / W_q drifts apart: watch the signal qk_ratio\n"
    "mla         q and k go on the part without rotary embedding, W_Q_ROPE on the query's rotary rows; the rotary\n"
    "            key, which all heads share, stays. With the three widths: which rows of which projection\n"
    "layer_gain  behind a per-head query-key norm: one factor for the layer, on the norm's two gains\n"
    "Behind a flattened query-key norm (OLMo 2) the factors go on the heads' slices of the gains, as without a norm.\n"
    "A gain w that is applied as 1 + w becomes f (1 + w) - 1.\n";

constexpr char kDeepNormExamples[] =
    "  gyrostatctl deepnorm --arch decoder --layers 24\n"
    "  gyrostatctl deepnorm --arch encoder-decoder --layers 6 --decoder-layers 6 --json\n"
    "x = LN(alpha x + G(x)); beta scales the initial W_v, W_o, W_1, W_2 and a gate's W_3, never W_q and W_k.\n"
    "budget: the paper's bound on the model update, in units of what it publishes. 1: as published; more: weaker.\n"
    "The encoder of an encoder-decoder shows 1.012, since the paper rounds its constants.\n";

constexpr char kWarmupExamples[] =
    "  gyrostatctl warmup --kind cosine --peak 1e-3 --warmup 1000 --total 20000 --at 300 --to 2000\n"
    "  gyrostatctl warmup --kind wsd --peak 3e-4 --warmup 500 --total 9000 --at 200 --steps 199,200,201,3500\n"
    "  gyrostatctl warmup --kind const --peak 1e-2 --warmup 60 --at 4000       after it: a notch down and up\n"
    "During the warm-up the rate drops at once to the line of the stretched warm-up, base(TO) STEP / TO, and is\n"
    "never above the schedule's own. After it, the rate falls to --floor of the schedule and rises again.\n"
    "Refused: an end beyond 8 warm-ups or at the run's last step, or a rise steeper than the warm-up was.\n";

void AddCalculators(CLI::App* app, Draft* draft) {
  Request& request = draft->request;
  CLI::App* sub = Add(app, draft, Command::kQkClip, "qk-clip", "Work out QK-Clip factors by hand", kQkClipExamples);
  sub->add_option("--tau", request.tau, "The cap, above 0")->required()->option_text("T");
  sub->add_option("--logits", draft->logits, "Largest logit of each head, comma-separated")
      ->required()->option_text("A,B,...");
  sub->add_option("--kv-heads", request.kv_heads, "Key heads; must divide the heads (default: as many)")
      ->check(CLI::Range(1, 1024))->option_text("K");
  sub->add_option("--variant", request.variant, "Who shares a factor (grouped keys: group_min, else mha)")
      ->check(CLI::IsMember({"mha", "group_min", "q_only", "mla", "layer_gain"}));
  const auto width = [&](const char* name, uint32_t* out, const char* about) {
    return sub->add_option(name, *out, about)->check(CLI::Range(1, 65536))->option_text("D");
  };
  CLI::Option* nope = width("--nope-dim", &request.mla.nope, "mla: width of a head without rotary embedding");
  CLI::Option* rope = width("--rope-dim", &request.mla.rope, "mla: width of its rotary part");
  CLI::Option* value = width("--v-dim", &request.mla.value, "mla: width of its value");
  nope->needs(rope, value);
  rope->needs(nope);
  value->needs(nope);

  sub = Add(app, draft, Command::kDeepNorm, "deepnorm", "Alpha, beta and update budget of DeepNorm", kDeepNormExamples);
  sub->add_option("--arch", request.arch, "Which stacks there are")
      ->required()->check(CLI::IsMember({"encoder", "decoder", "encoder-decoder"}));
  sub->add_option("--layers", request.layers, "Layers; of an encoder-decoder, of its encoder")
      ->required()->check(CLI::Range(1, 100000))->option_text("N");
  sub->add_option("--decoder-layers", request.decoder_layers, "Layers of the decoder of an encoder-decoder")
      ->check(CLI::Range(1, 100000))->option_text("M");

  WarmupQuestion& warmup = request.warmup;
  sub = Add(app, draft, Command::kWarmup, "warmup", "The learning rate if a warm-up were extended", kWarmupExamples);
  sub->add_option("--kind", warmup.kind, "The schedule after its warm-up")
      ->required()->check(CLI::IsMember({"const", "linear", "cosine", "wsd", "noam"}));
  sub->add_option("--peak", warmup.peak, "Its highest rate")->required()->option_text("RATE");
  const auto steps = [&](const char* name, uint64_t* out, const char* about) {
    return sub->add_option(name, *out, about)->check(CLI::Range(0.0, 1e15))->option_text("STEP");
  };
  steps("--warmup", &warmup.warmup, "Steps of its warm-up")->required();
  steps("--total", &warmup.total, "Steps of the run; not needed for const and noam");
  steps("--at", &warmup.at, "The first step that is changed")->required();
  sub->add_option("--to", warmup.to, "Where the warm-up shall end (7 warm-ups; of a notch, one after --at)")
      ->check(CLI::Range(0.0, 1e15))->option_text("STEP");
  sub->add_option("--steps", draft->steps, "Steps to show, comma-separated")->option_text("A,B,...");
  sub->add_option("--floor", warmup.floor, "Of a notch: how far down, as a factor (0.3)")->option_text("M");
  sub->add_option("--fall", warmup.fall, "Of a notch: in how many steps, at most (50)")
      ->check(CLI::Range(0, 1000000))->option_text("R");
}

std::vector<std::string> FormatTokens() {
  std::vector<std::string> tokens;
  for (const logs::Format each : logs::Formats()) tokens.emplace_back(logs::Token(each));
  return tokens;
}

constexpr char kReplayExamples[] =
    "  gyrostatctl replay train.log                          any trainer's log; the format is found\n"
    "  gyrostatctl replay trainer_state.json events.out.*    several files, several formats\n"
    "  gyrostatctl replay --html report.html wandb.csv       a page to look at and send on\n"
    "  gyrostatctl replay --config tuned.yaml --model gpt2 *.log  other thresholds on the same runs\n"
    "  gyrostatctl replay --fail-on critical run.jsonl       exit 1 on a critical finding: for scripts\n"
    "  gyrostatctl replay --map loss=train/ce --map step=it odd.csv\n"
    "  gyrostatctl replay --map 'attn_logit_max=attn/{layer}/{head}/max' odd.jsonl\n"
    "  gyrostatctl replay --json run.log.gz | jq '.findings[] | select(.severity == \"critical\")'\n\n"
    "What is read: loss, gradient norm and learning rate under their usual names, the loss scale, and every\n"
    "signal of gyrostat under its own name, also layer by layer (grad_norm/layer3, logits/layer0/max_p95).\n"
    "A log whose names are unusual is told with the names it has; --map says what they mean.\n"
    "Runs: a column run_id or run (or --run-column) tells several in one file apart. A step that repeats or\n"
    "goes back is a restart of the same run.\n"
    "What is told: one diagnosis for each episode, then the signals. --findings lists all that was found.\n"
    "Findings are those that a daemon would have made of the same reports, bit for bit. --model names a spec\n"
    "(or a Hugging Face config.json), without which rules that depend on the model rest.\n";

void AddReplay(CLI::App* app, Draft* draft) {
  Request& request = draft->request;
  CLI::App* sub = Add(app, draft, Command::kReplay, "replay", "Judge logs of finished runs, without a daemon",
                      kReplayExamples);
  sub->add_option("FILE", request.files, "Logs, plain or gzipped; - is the standard input")->required();
  sub->add_option("--format", draft->format, "Of all files (auto: found from their first bytes)")
      ->check(CLI::IsMember(FormatTokens()));
  sub->add_option("--run-column", request.reading.keys.run_column, "The column that names the run (run_id, run)")
      ->option_text("COLUMN");
  sub->add_option("--map", draft->maps,
                  "SIGNAL=COLUMN: what a name of the log means; {layer} and {head} stand for numbers in it")
      ->option_text("SIGNAL=COLUMN")->allow_extra_args(false);
  sub->add_option("--model", request.model, "The model: a preset's name, a spec or a Hugging Face config.json")
      ->option_text("PRESET|FILE");
  std::vector<std::string> rules(RuleNames().begin(), RuleNames().end());
  rules.emplace_back("all");
  sub->add_option("--rules", draft->rules, "Whose rules judge (gyrostat)")
      ->check(CLI::IsMember(rules))->allow_extra_args(false);
  sub->add_option("--config", request.config, "A gyrostatd configuration file: its thresholds judge, and no defaults")
      ->option_text("FILE");
  sub->add_flag("--findings", request.list_findings, "List each finding too, below the diagnosis of each episode");
  sub->add_option("--html", request.html, "Write a page with curves and findings, which needs nothing but itself")
      ->option_text("FILE");
  sub->add_option("--fail-on", request.fail_on, "Exit 1 if a finding of this severity or above is printed")
      ->check(CLI::IsMember({"warning", "critical"}));
  sub = Add(app, draft, Command::kCheckModel, "check-model", "Check a model spec, and see what is known of the model",
            "  gyrostatctl check-model spec.json\n"
            "  gyrostatctl check-model config.json      of Hugging Face\n");
  sub->add_option("FILE", request.file, "A spec as in gyrostat JSONL, or a config.json")->required();
}

void Build(CLI::App* app, Draft* draft) {
  app->description(kAbout);
  app->footer(kEpilogue);
  app->name("gyrostatctl");
  app->set_version_flag("--version", std::string("gyrostatctl ") + GYROSTAT_VERSION);
  app->require_subcommand(1);
  app->add_flag("--json", draft->request.json, "Print JSON, one object a line");
  app->add_option("--address", draft->request.address, "Daemon as HOST:PORT or unix:PATH")->option_text("HOST:PORT");
  app->add_option("--token-file", draft->request.token_file, "File with the access token")->option_text("FILE");
  AddReading(app, draft);
  AddExport(app, draft);
  AddActing(app, draft);
  AddReplay(app, draft);
  AddCalculators(app, draft);
  AddOffline(app, draft);
}

bool IsMode(const std::string& word) { return word == "observe" || word == "advise" || word == "act"; }

void FinishMode(Draft* draft) {
  Request& request = draft->request;
  const std::vector<std::string>& words = draft->mode_words;
  if (request.all && words.size() != 1)
    Refuse("mode --all takes the mode alone, " + std::to_string(words.size()) + " words given; "
           "wanted: mode --all observe|advise|act");
  if (!request.all && words.size() != 2)
    Refuse("mode takes a run and a mode, " + std::to_string(words.size()) + " words given; "
           "wanted: mode RUN observe|advise|act, or mode --all observe|advise|act");
  if (!IsMode(words.back())) Refuse("mode \"" + words.back() + "\" is unknown; wanted: observe, advise or act");
  request.mode = words.back();
  if (request.all) return;
  request.run = words.front();
  if (request.run.empty())
    Refuse("the run is \"\"; wanted: mode RUN observe|advise|act, or mode --all observe|advise|act");
}

void FinishQkClip(Draft* draft) {
  Request& request = draft->request;
  std::string error;
  const auto logits = ParseNumbers(draft->logits, &error);
  if (!logits) Refuse("--logits: " + error);
  request.logits = *logits;
}

void FinishWarmup(Draft* draft) {
  if (draft->steps.empty()) return;
  std::string error;
  const auto steps = ParseNumbers(draft->steps, &error);
  if (!steps) Refuse("--steps: " + error);
  for (const double step : *steps) {
    if (!(step >= 0 && step <= 1e15 && step == std::floor(step)))
      Refuse("--steps: " + std::to_string(step) + " is no step; wanted whole numbers from 0 on");
    draft->request.warmup.steps.push_back(static_cast<uint64_t>(step));
  }
}

void FinishReplay(Draft* draft) {
  Request& request = draft->request;
  request.reading.format = *logs::FormatOf(draft->format);
  for (const std::string& each : draft->maps) {
    std::string error;
    const auto mapping = logs::ParseMapping(each, &error);
    if (!mapping) Refuse("--map: " + error);
    request.reading.keys.map.push_back(*mapping);
  }
  for (const std::string& each : draft->rules) {
    if (each == "all") request.rules.assign(RuleNames().begin(), RuleNames().end());
    else if (std::ranges::find(request.rules, each) == request.rules.end()) request.rules.push_back(each);
  }
  if (request.rules.empty()) request.rules.emplace_back(RuleNames().front());
}

void Finish(const Environment& environment, Draft* draft) {
  Request& request = draft->request;
  if (request.address.empty()) request.address = environment.address;
  if (request.address.empty()) request.address = kDefaultAddress;
  const bool offline = request.command == Command::kQkClip || request.command == Command::kCheckConfig ||
                       request.command == Command::kCheckModel || request.command == Command::kReplay ||
                       request.command == Command::kDeepNorm || request.command == Command::kWarmup ||
                       request.command == Command::kCompletion;
  const std::string wrong = offline ? "" : CheckAddress(request.address);
  if (!wrong.empty()) Refuse(wrong);
  if (request.author.empty()) request.author = environment.user;
  request.interval_ms = static_cast<uint32_t>(std::lround(draft->interval_s * 1000));
  if (request.command == Command::kMode) FinishMode(draft);
  if (request.command == Command::kQkClip) FinishQkClip(draft);
  if (request.command == Command::kPropose)
    if (const std::string misplaced = WrongInPropose(request.propose); !misplaced.empty()) Refuse(misplaced);
  if (request.command == Command::kWarmup) FinishWarmup(draft);
  if (request.command == Command::kReplay) FinishReplay(draft);
  if (request.command == Command::kExport) {
    if (request.json && request.out.empty() && request.export_format == "csv")
      Refuse("--json prints objects and --format csv none; wanted one of them, or --out FILE");
    if (request.export_format.empty()) request.export_format = "jsonl";
  }
  if (request.command == Command::kSeries && request.head && !request.layer)
    Refuse("--head needs --layer: heads are counted within a layer");
  if (request.command == Command::kSeries || request.command == Command::kExport) {
    if (request.from_step && request.to_step && *request.from_step > *request.to_step)
      Refuse("--from " + std::to_string(*request.from_step) + " is after --to " + std::to_string(*request.to_step));
  }
}

// CLI11 says "not expected" of a mistyped command; people want the list.
std::string UnknownCommand(const CLI::App& app, const std::vector<std::string>& args) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--address" || args[i] == "--token-file") ++i;
    else if (args[i].empty() || args[i][0] != '-') {
      std::string names;
      for (const CLI::App* sub : app.get_subcommands({})) {
        if (sub->get_name() == args[i]) return "";
        names += " " + sub->get_name();
      }
      return "no command \"" + args[i] + "\"; there are:" + names;
    }
  }
  return "";
}

}  // namespace

std::optional<std::vector<double>> ParseNumbers(const std::string& text, std::string* error) {
  std::vector<double> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    word.erase(0, word.find_first_not_of(" \t"));
    word.erase(word.find_last_not_of(" \t") + 1);
    double value = 0;
    // from_chars knows nan, inf and infinity in any case, and no locale.
    const auto [stop, code] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (code != std::errc() || stop != word.data() + word.size()) {
      *error = "\"" + word + "\" is not a number; wanted numbers with commas between, as 250,80,nan";
      return std::nullopt;
    }
    values.push_back(value);
    begin = end + 1;
  }
  return values;
}

Parsed Parse(const std::vector<std::string>& args, const Environment& environment) {
  Parsed parsed;
  Draft draft;
  CLI::App app;
  Build(&app, &draft);
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());  // CLI11 takes them last first.
    app.parse(std::move(reversed));
    Finish(environment, &draft);
    parsed.request = std::move(draft.request);
  } catch (const CLI::CallForVersion& version) {
    parsed.out = std::string(version.what()) + "\n";
  } catch (const CLI::Success&) {  // --help
    parsed.out = app.help();
  } catch (const CLI::Error& error) {
    parsed.exit_code = kUsage;
    const std::string unknown = UnknownCommand(app, args);
    std::string command;
    for (const CLI::App* sub : app.get_subcommands()) command = " " + sub->get_name();
    parsed.err = "gyrostatctl: " + (unknown.empty() ? std::string(error.what()) : unknown) +
                 "\nTry: gyrostatctl" + command + " --help\n";
  }
  return parsed;
}

std::string BashCompletion() {
  Draft draft;
  CLI::App app;
  Build(&app, &draft);
  const auto options = [](const CLI::App& each) {
    std::string words;
    for (const CLI::Option* option : each.get_options())
      for (const std::string& name : option->get_lnames()) words += " --" + name;
    return words;
  };
  std::string commands, cases;
  for (const CLI::App* sub : app.get_subcommands({})) {
    commands += (commands.empty() ? "" : " ") + sub->get_name();
    std::string words = options(*sub).substr(1);
    if (sub->get_name() == "mode") words += " observe advise act";
    if (sub->get_name() == "completion") words += " bash";
    cases += "    " + sub->get_name() + ") words=\"" + words + "\" ;;\n";
  }
  return "# source <(gyrostatctl completion bash)\n"
         "_gyrostatctl() {\n"
         "  local word words command=\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    case $word in -*) ;; *) command=$word; break ;; esac\n"
         "  done\n"
         "  case $command in\n" + cases +
         "    *) words=\"" + commands + options(app) + "\" ;;\n"
         "  esac\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\")\n"
         "}\n"
         "complete -o default -F _gyrostatctl gyrostatctl\n";
}

}  // namespace gyrostat::ctl
