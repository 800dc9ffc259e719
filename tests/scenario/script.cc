#include "scenario/script.h"

#include <algorithm>

#include "scenario/expectations.h"
#include "scenario/notation.h"
#include "scenario/words.h"

namespace gyrostat::scenario {
namespace {

using Words = std::vector<Word>;

// Signals and events as written: series are made full once the length of the scenario is known.
struct OpenSignal {
  SignalLine line;
  Series series;
  uint64_t seed = 0;
};

class Parser {
 public:
  explicit Parser(Script* script) : script_(script) {}

  std::string Run(std::string_view text);

 private:
  // Each handles one line without its first word and returns what is wrong.
  std::string RunWords(const Words& words);
  std::string ConfigWords(const Words& words);
  std::string ClientWords(const Words& words, ClientLine* client);
  std::string SignalWords(const Words& words);
  std::string AtWords(const Words& words);
  std::string AtAction(const std::string& action, const Words& rest, AtLine* at);
  std::string AtDetails(const Words& rest, AtLine* at);
  std::string ProposeWords(const Words& rest, policy::Proposal* proposal);
  std::string ExpectWords(const Words& words, std::string_view text);
  std::string Line(std::string_view text);
  std::string Finish();

  Script* script_;
  int line_ = 0;
  bool has_run_ = false;
  bool closed_ = false;  // `expect nothing more` was seen.
  size_t values_ = 0;
  std::vector<OpenSignal> signals_;
};

std::string Unknown(const Word& word, const char* wanted) {
  const std::string seen = word.key.empty() ? word.value : word.key + word.mark + word.value;
  return "`" + seen + "`: wanted " + wanted;
}

std::string Parser::Run(std::string_view text) {
  if (text.size() > kTextBytesMax) return "line 1: a scenario has at most 1 MiB";
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    ++line_;
    if (const std::string wrong = Line(line); !wrong.empty()) return "line " + std::to_string(line_) + ": " + wrong;
  }
  return Finish();
}

std::string Parser::Line(std::string_view text) {
  Words words;
  if (const std::string wrong = Cut(text, &words); !wrong.empty()) return wrong;
  if (words.empty()) return {};
  const std::string first = words[0].key.empty() ? words[0].value : std::string();
  words.erase(words.begin());
  if (closed_) return "nothing may follow `expect nothing more`";
  if (first == "run") return RunWords(words);
  if (!has_run_) return "a scenario begins with a `run` line";
  if (first == "config") return ConfigWords(words);
  if (first == "client") return ClientWords(words, &script_->client);
  if (first == "signal") return SignalWords(words);
  if (first == "at") return AtWords(words);
  if (first == "expect") return ExpectWords(words, text);
  return "`" + first + "`: wanted run, config, client, signal, at or expect";
}

// What only some detectors ask of the model.
bool ModelWord(const Word& word, model::ModelSpec* spec) {
  uint64_t count = 0;
  double number = 0;
  const bool counts = ReadCount(word.value, 1000000, &count);
  const bool is_number = ReadNumber(word.value, &number) && number > 0;
  if (word.key == "placement") {
    spec->norm_placement = model::NormPlacementOf(word.value);
    return spec->norm_placement != model::NormPlacement::kUnknown;
  }
  if (word.key == "schedule") {
    spec->schedule_kind = model::ScheduleKindOf(word.value);
    return spec->schedule_kind != model::ScheduleKind::kUnknown;
  }
  if (word.key == "dtype") spec->compute_dtype = word.value;
  else if (word.key == "preset") spec->preset = word.value;
  else if (word.key == "optimizer") spec->optimizer = word.value;
  else if (word.key == "warmup" && counts) spec->warmup_steps = count;
  else if (word.key == "vocab" && counts) spec->vocab_size = static_cast<uint32_t>(count);
  else if (word.key == "total" && counts) spec->total_steps = count;
  else if (word.key == "peak" && is_number) spec->schedule_peak = number;
  else if (word.key == "hidden" && counts) spec->hidden_size = static_cast<uint32_t>(count);
  else if (word.key == "eps" && is_number) spec->norm_eps = number;
  else if (word.key == "alpha" && is_number) spec->deepnorm_alpha = number;
  else return false;
  return true;
}

std::string Parser::RunWords(const Words& words) {
  if (has_run_) return "there is one `run` line";
  has_run_ = true;
  RunLine& run = script_->run;
  run.spec.layers = 1;
  run.spec.heads = 1;
  run.spec.head_dim = 8;
  run.spec.attention = model::Attention::kMha;
  run.spec.qk_norm = model::QkNorm::kNone;
  run.spec.master_fp32 = true;
  for (const Word& word : words) {
    uint64_t count = 0;
    const bool counts = ReadCount(word.value, 1024, &count) && count > 0;
    const auto small = static_cast<uint32_t>(count);
    if (word.key == "layers" && counts && small <= kLayersMax) run.spec.layers = small;
    else if (word.key == "heads" && counts && small <= kHeadsMax) run.spec.heads = small;
    else if (word.key == "kv_heads" && counts && small <= kHeadsMax) run.spec.kv_heads = small;
    else if (word.key == "world" && counts) run.world = small;
    else if (word.key == "attention" && model::AttentionOf(word.value) != model::Attention::kUnknown)
      run.spec.attention = model::AttentionOf(word.value);
    else if (word.key == "qk_norm" && model::QkNormOf(word.value) != model::QkNorm::kUnknown)
      run.spec.qk_norm = model::QkNormOf(word.value);
    else if (word.key == "kind" && model::LogitKindOf(word.value) != model::LogitKind::kUnknown)
      run.kind = model::LogitKindOf(word.value);
    else if (word.key == "master" && (word.value == "fp32" || word.value == "none"))
      run.spec.master_fp32 = word.value == "fp32";
    else if (word.key == "step" && ReadDuration(word.value, &run.step_ms)) continue;
    else if (word.key == "tau_min" && ReadNumber(word.value, &run.tau_min) && run.tau_min >= 0) continue;
    else if (word.key == "allow") run.allow = ReadList(word.value);
    else if (ModelWord(word, &run.spec)) continue;
    else
      return Unknown(word, "layers heads (1 to 16) kv_heads world attention qk_norm kind master=fp32|none step allow "
                           "tau_min placement dtype preset warmup total peak schedule vocab hidden eps alpha "
                           "optimizer");
  }
  if (run.spec.heads % run.spec.KvHeads() != 0) return "kv_heads must divide heads";
  if (run.spec.KvHeads() < run.spec.heads && run.spec.attention == model::Attention::kMha)
    run.spec.attention = model::Attention::kGqa;
  return {};
}

std::string Parser::ConfigWords(const Words& words) {
  if (words.empty()) return "wanted KEY=VALUE";
  for (const Word& word : words) {
    if (word.mark != '=' || word.value.empty()) return Unknown(word, "KEY=VALUE");
    script_->yaml += word.key + ": " + word.value + "\n";
  }
  return {};
}

std::string Parser::ClientWords(const Words& words, ClientLine* client) {
  if (words.empty()) return "wanted delay=N or answer=apply|refuse|ignore";
  for (const Word& word : words) {
    if (word.key == "delay" && ReadCount(word.value, 1000, &client->delay)) continue;
    if (word.key == "answer" && word.value == "apply") client->answer = Answer::kApply;
    else if (word.key == "answer" && word.value == "refuse") client->answer = Answer::kRefuse;
    else if (word.key == "answer" && word.value == "ignore") client->answer = Answer::kIgnore;
    else return Unknown(word, "delay=N or answer=apply|refuse|ignore");
  }
  return {};
}

// "[2]", "[1,2]", "[*,2]" behind a signal's name.
// Of `rank_digest`: [RANK,FIELD], fields as in model/signal.h.
std::string ReadPlace(std::string_view text, const model::SignalInfo& info, const RunLine& run, SignalLine* line) {
  if (text.empty()) return {};
  const model::ModelSpec& spec = run.spec;
  const bool ranks = info.shape == model::Shape::kRankDigest;
  const bool per_head =
      ranks || info.shape == model::Shape::kLayerHead || info.shape == model::Shape::kLayerOrLayerHead;
  const char* wanted = ranks    ? "[RANK,FIELD], a rank below the run line's world and 1 to 4, or * each"
                       : per_head ? "[LAYER,HEAD], a number of the run line's shape or * each"
                                : "[LAYER], a number below the run line's layers or *";
  if (info.shape == model::Shape::kScalar) return "a scalar has no place in brackets";
  if (text.size() < 3 || text.front() != '[' || text.back() != ']') return std::string("wanted ") + wanted;
  const std::vector<std::string> places = ReadList(text.substr(1, text.size() - 2));
  if (places.size() != (per_head ? 2u : 1u)) return std::string("wanted ") + wanted;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] == "*") continue;
    uint64_t at = 0;
    const uint32_t size = i == 0 ? (ranks ? RankSlots(run) : spec.layers)
                                 : (ranks ? model::kRankDigestFields : spec.heads);
    if (!ReadCount(places[i], size - 1, &at)) return std::string("wanted ") + wanted;
    (i == 0 ? line->layer : line->head) = static_cast<uint32_t>(at);
  }
  return {};
}

std::string Parser::SignalWords(const Words& words) {
  if (words.size() < 2 || !words[0].key.empty()) return "wanted a signal's name and values";
  if (signals_.size() == 256) return "a scenario has at most 256 signal lines";
  const std::string& place = words[0].value;
  const size_t bracket = std::min(place.find('['), place.size());
  const model::SignalInfo* info = model::FindSignal(place.substr(0, bracket));
  if (info == nullptr) return "`" + place + "`: wanted a signal of model/signal.h";
  OpenSignal open;
  open.line.line = line_;
  open.line.signal = info->signal;
  if (const std::string wrong = ReadPlace(place.substr(bracket), *info, script_->run, &open.line); !wrong.empty())
    return "`" + place + "`: " + wrong;
  const uint64_t place_seed = open.line.layer.value_or(0) * 64 + open.line.head.value_or(0);
  open.seed = static_cast<uint64_t>(info->signal) * 4096 + place_seed;
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    if (!word->key.empty()) return Unknown(*word, "a value");
    if (const std::string wrong = AppendItem(word->value, open.seed, &open.series); !wrong.empty()) return wrong;
  }
  values_ += open.series.values.size();
  if (values_ > kValuesMax) return "a scenario has at most 1048576 values";
  signals_.push_back(std::move(open));
  return {};
}

std::string Parser::AtWords(const Words& words) {
  AtLine at;
  at.line = line_;
  if (words.size() < 2 || !words[0].key.empty() || !ReadCount(words[0].value, kStepsMax, &at.step))
    return "wanted `at STEP ACTION`";
  if (!script_->ats.empty() && script_->ats.back().step > at.step) return "`at` lines come in order of steps";
  if (script_->ats.size() == 1000) return "a scenario has at most 1000 `at` lines";
  if (!words[1].key.empty()) return Unknown(words[1], "an action");
  const std::string wrong = AtAction(words[1].value, Words(words.begin() + 2, words.end()), &at);
  if (wrong.empty()) script_->ats.push_back(std::move(at));
  return wrong;
}

std::string Parser::AtAction(const std::string& action, const Words& rest, AtLine* at) {
  struct Name {
    const char* name;
    Action action;
  };
  static constexpr Name kNames[] = {
      {"mode", Action::kMode}, {"approve", Action::kApprove}, {"reject", Action::kReject}, {"config", Action::kConfig},
      {"client", Action::kClient}, {"restart", Action::kRestart}, {"rollback", Action::kRollback},
      {"disconnect", Action::kDisconnect}, {"reconnect", Action::kReconnect}, {"reload", Action::kReload},
      {"wait", Action::kWait}, {"bye", Action::kBye}, {"propose", Action::kPropose}, {"again", Action::kAgain}};
  const auto* found =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& n) { return action == n.name; });
  if (found == std::end(kNames))
    return "`" + action +
           "`: wanted mode approve reject propose config client restart rollback disconnect reconnect reload again "
           "wait bye";
  at->action = found->action;
  switch (at->action) {
    case Action::kMode: {
      const auto mode = rest.size() == 1 ? model::ModeOf(rest[0].value) : std::nullopt;
      if (!mode) return "wanted `mode observe|advise|act`";
      at->mode = *mode;
      return {};
    }
    case Action::kConfig:
      for (const Word& word : rest) at->yaml += word.key + ": " + word.value + "\n";
      return at->yaml.empty() ? "wanted KEY=VALUE" : "";
    case Action::kClient:
      at->client = script_->client;
      return ClientWords(rest, &at->client);
    case Action::kWait:
      if (rest.size() != 1 || !rest[0].key.empty() || !ReadDuration(rest[0].value, &at->wait_ms))
        return "wanted a time: 10m";
      return {};
    case Action::kPropose:
      return ProposeWords(rest, &at->proposal);
    default:
      return AtDetails(rest, at);
  }
}

std::string Parser::ProposeWords(const Words& rest, policy::Proposal* proposal) {
  const char* wanted = "a kind, then to_step= alpha= beta= ramp= scale= for= max_norm= at_step= reason=\"...\"";
  const auto kind = rest.empty() || !rest[0].key.empty() ? std::nullopt : model::InterventionKindOf(rest[0].value);
  if (!kind) return std::string("wanted ") + wanted;
  proposal->kind = *kind;
  for (auto word = rest.begin() + 1; word != rest.end(); ++word) {
    uint64_t count = 0;
    double number = 0;
    const bool counts = ReadCount(word->value, kStepsMax, &count), is_number = ReadNumber(word->value, &number);
    const auto step = static_cast<model::Step>(count);
    if (word->key == "to_step" && counts) proposal->warmup_end = step;
    else if (word->key == "at_step" && counts) proposal->at_step = step;
    else if (word->key == "ramp" && counts) proposal->ramp = static_cast<uint32_t>(count);
    else if (word->key == "for" && counts) proposal->for_boundaries = count;
    else if (word->key == "alpha" && is_number) proposal->alpha = number;
    else if (word->key == "beta" && is_number) proposal->beta = number;
    else if (word->key == "scale" && is_number) proposal->scale = number;
    else if (word->key == "max_norm" && is_number) proposal->max_norm = number;
    else if (word->key == "reason") proposal->reason = word->value;
    else return Unknown(*word, wanted);
  }
  return {};
}

std::string Parser::AtDetails(const Words& rest, AtLine* at) {
  for (const Word& word : rest) {
    uint64_t step = 0;
    const bool asks = at->action == Action::kApprove || at->action == Action::kReject;
    const bool returns = at->action == Action::kRestart || at->action == Action::kRollback;
    if (asks && word.key == "id") at->intent = word.value;
    else if (asks && word.key == "reason") at->reason = word.value;
    else if (returns && word.key == "from" && ReadCount(word.value, kStepsMax, &step))
      at->from = static_cast<model::Step>(step);
    else if (at->action == Action::kRestart && word.key == "state" && word.value == "kept") at->keeps_state = true;
    else
      return Unknown(word, asks ? "id=N or reason=\"...\"" : returns ? "from=STEP or state=kept" : "nothing more");
  }
  return {};
}

std::string Parser::ExpectWords(const Words& words, std::string_view text) {
  if (words.size() == 2 && words[0].value == "nothing" && words[1].value == "more") {
    closed_ = true;
    return {};
  }
  if (script_->expectations.size() == 10000) return "a scenario has at most 10000 `expect` lines";
  Expectation expectation;
  expectation.line = line_;
  expectation.text = text;
  const std::string wrong = ReadExpectation(words, &expectation);
  if (wrong.empty()) script_->expectations.push_back(std::move(expectation));
  return wrong;
}

std::string Parser::Finish() {
  const std::string end = "line " + std::to_string(line_) + ": ";
  if (!has_run_) return end + "a scenario begins with a `run` line";
  if (!closed_) return end + "a scenario ends with `expect nothing more`";
  for (const OpenSignal& signal : signals_)
    if (!signal.series.open) script_->steps = std::max<uint64_t>(script_->steps, signal.series.values.size());
  if (script_->steps == 0) return end + "no signal line says how many steps there are";
  for (OpenSignal& signal : signals_) {
    const std::string where = "line " + std::to_string(signal.line.line) + ": ";
    const size_t size = signal.series.values.size();
    if (size > script_->steps || (!signal.series.open && size < script_->steps))
      return where + "has " + std::to_string(size) + " steps, the scenario " + std::to_string(script_->steps);
    values_ += script_->steps - signal.series.values.size();
    if (values_ > kValuesMax) return where + "a scenario has at most 1048576 values";
    signal.series.ExtendTo(script_->steps, signal.seed);
    signal.line.values = std::move(signal.series.values);
    script_->signals.push_back(std::move(signal.line));
  }
  for (const AtLine& at : script_->ats) {
    const std::string step = std::to_string(at.step);
    if (at.step > script_->steps)
      return "line " + std::to_string(at.line) + ": step " + step + " of " + std::to_string(script_->steps);
  }
  return {};
}

}  // namespace

std::string Parse(std::string_view text, Script* script) {
  *script = {};
  return Parser(script).Run(text);
}

}  // namespace gyrostat::scenario
