#include "logs/assembler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "logs/number.h"

namespace gyrostat::logs {
namespace {

using model::Signal;

constexpr size_t kRunsMax = 4096;
constexpr size_t kWarningsMax = 20;
constexpr uint64_t kSkipsTold = 3;
constexpr size_t kUnknownNamesMax = 12;
constexpr size_t kUserScalarsMax = 64;  // As a job may send (rpc/convert.h).
constexpr int kSignalSlots = static_cast<int>(Signal::kArrayEnd);
// Rows that go back this often within so many rows are not restarts but several writers.
constexpr size_t kRestartsMax = 4;
constexpr uint64_t kRestartRows = 24;
// And then whoever is at most so many steps behind is one of them.
constexpr model::Step kWriterLagSteps = 64;

size_t SlotOf(Signal signal) { return static_cast<size_t>(signal); }

// The same number, printed with three decimals or five digits.
bool SameButRounded(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= 5.1e-4 + 1e-5 * std::max(std::abs(a), std::abs(b));
}

bool IsEvaluationWord(std::string_view text) {
  for (const std::string_view word : {"eval", "val", "test", "dev", "infer"})
    if (StartsWithNoCase(text, word)) return true;
  return false;
}

bool IsLayered(Signal signal) {
  const model::SignalInfo* info = model::FindSignal(signal);
  return info != nullptr && info->shape != model::Shape::kScalar && info->shape != model::Shape::kBoundary;
}

}  // namespace

struct Assembler::Run {
  size_t index = 0;
  std::string name;
  bool told = false;    // OnRun was called.
  bool retold = false;  // A header has come since that OnAttempt is to be called for.
  std::string attempt_id;  // Of the newest header.
  model::ModelSpec spec;
  model::AttnLogitInfo attn;

  Row row;               // What is known of the newest step.
  bool pending = false;  // `row` holds something.
  uint64_t rows = 0;
  std::optional<uint8_t> step_rank;  // Of the name under which steps come.
  bool steps_given = false;          // Readers gave a step themselves.
  model::Step numbered = 0;          // Of the next row where there are no steps at all.
  std::array<uint8_t, kSignalSlots> best_rank;             // Of the name that each signal has come under.
  std::array<std::optional<model::Step>, kSignalSlots> last_step;  // In this attempt.
  std::array<std::pair<uint32_t, uint32_t>, kSignalSlots> shape{};  // Layers and heads of arrays made of cells.
  std::optional<uint32_t> leader;
  bool leader_has_loss = false;
  std::deque<uint64_t> restarts;  // At which row the newest ones came.
  bool several_writers = false;
  struct Verbatim {
    bool any = false;
    uint64_t sequence = 0, ledger_version = 0;
    uint32_t epoch = 0;
    model::Boundary boundary = 0;
    model::Step step = 0;
  };
  Verbatim before;  // Of the verbatim report before this one.

  Run() { best_rank.fill(UINT8_MAX); }
  bool Counts(const Meaning& meaning) const { return meaning.rank <= best_rank[SlotOf(meaning.signal)]; }
};

Assembler::Assembler(std::string name, KeyOptions options, RowSink* sink)
    : name_(std::move(name)), keys_(std::move(options)), sink_(sink) {}
Assembler::~Assembler() = default;

Assembler::Run* Assembler::Open(const std::string& name) {
  if (last_run_ != nullptr && last_run_->name == name) return last_run_;
  const auto it = by_name_.find(name);
  if (it != by_name_.end()) return last_run_ = it->second;
  if (runs_.size() >= kRunsMax) return nullptr;
  runs_.push_back(std::make_unique<Run>());
  Run* run = runs_.back().get();
  run->index = run->row.run = runs_.size() - 1;
  run->name = name;
  for (const auto& [key, meaning] : declared_) {
    auto& [layers, heads] = run->shape[SlotOf(meaning.signal)];
    layers = std::max(layers, meaning.layer.value_or(0) + 1);
    heads = std::max(heads, meaning.head.value_or(0) + 1);
  }
  by_name_[name] = run;
  return last_run_ = run;
}

Assembler::Run* Assembler::RunOf(const Record& record) {
  if (!record.run.empty()) return Open(record.run);
  const Field* named = nullptr;
  uint8_t rank = UINT8_MAX;
  for (size_t i = 0; i < record.size(); ++i) {
    const Meaning& meaning = keys_.Find(record[i].key);
    if (meaning.kind != Meaning::Kind::kRun || meaning.rank >= rank) continue;
    if (record[i].text.empty() && model::IsAbsent(record[i].value)) continue;
    named = &record[i];
    rank = meaning.rank;
  }
  if (named == nullptr) return last_run_ != nullptr && declared_.empty() ? last_run_ : Open(name_);
  if (!named->text.empty()) return Open(named->text);
  const auto number = StepOf(named->value);
  return Open(number ? std::to_string(*number) : std::to_string(named->value));
}

void Assembler::TakeHeader(const Header& header) {
  Run* run = Open(header.run.empty() ? name_ : header.run);
  if (run == nullptr) return;
  if (!header.attempt.empty()) {
    run->before = {};
    if (header.attempt == run->attempt_id) return;  // It goes on, as in the second of two parts.
    if (run->told) NewAttempt(run);
    run->retold = run->told;
    run->attempt_id = header.attempt;
  } else if (run->told) {
    if (!(run->spec == header.spec)) Warn("run " + run->name + " says twice what its model is; the first counts");
    return;
  }
  run->spec = header.spec;
  run->attn = header.attn;
}

void Assembler::Declare(const Record& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    const Meaning& meaning = keys_.Find(names[i].key);
    if (meaning.kind == Meaning::Kind::kSignal && meaning.layer) declared_.emplace_back(names[i].key, meaning);
  }
}

void Assembler::Skip(uint64_t line, std::string_view why) {
  if (++losses_.skipped_rows <= kSkipsTold)
    Warn("line " + std::to_string(line) + " was skipped: " + std::string(why));
}

void Assembler::Warn(const std::string& sentence) {
  if (losses_.warnings.size() < kWarningsMax && told_.insert(sentence).second) losses_.warnings.push_back(sentence);
}

bool Assembler::IsEvaluation(const Record& record) {
  for (size_t i = 0; i < record.size(); ++i)
    if (!record[i].text.empty() && keys_.Find(record[i].key).kind == Meaning::Kind::kSplit &&
        IsEvaluationWord(record[i].text))
      return true;
  return false;
}

// Where ranks print what is theirs, one of them is the run: the first that has a loss.
bool Assembler::OfAnotherRank(const Record& record, bool has_loss, Run* run) {
  if (!record.rank) return false;
  if (!run->leader || (!run->leader_has_loss && has_loss)) {
    run->leader = record.rank;
    run->leader_has_loss = has_loss;
  }
  if (run->leader == record.rank) return false;
  ++losses_.skipped_rows;
  Warn("several ranks print values; those of rank " + std::to_string(*run->leader) + " were read");
  return true;
}

bool Assembler::FindStep(const Record& record, Run* run, model::Step* step) {
  if (record.step) {
    run->steps_given = true;
    *step = *record.step;
    return true;
  }
  std::optional<uint8_t> best;
  for (size_t i = 0; i < record.size(); ++i) {
    const Meaning& meaning = keys_.Find(record[i].key);
    if (meaning.kind != Meaning::Kind::kStep || model::IsAbsent(record[i].value)) continue;
    if (run->step_rank ? meaning.rank != *run->step_rank : best && meaning.rank >= *best) continue;
    const auto whole = StepOf(record[i].value);
    if (!whole) continue;
    best = meaning.rank;
    *step = *whole;
  }
  if (best) {
    run->step_rank = best;
    return true;
  }
  if (record.needs_step) return false;
  if (run->step_rank || run->steps_given) {
    Skip(record.line, "it has no step");
    return false;
  }
  *step = run->numbered++;
  Warn("the file gives no steps; its rows are numbered from 0");
  return true;
}

bool Assembler::Contradicts(const Run& run, const Record& record) {
  for (size_t i = 0; i < record.size(); ++i) {
    const Field& field = record[i];
    const Meaning& meaning = keys_.Find(field.key);
    if (meaning.kind != Meaning::Kind::kSignal || meaning.rank != run.best_rank[SlotOf(meaning.signal)]) continue;
    if (!run.row.report.Has(meaning.signal)) continue;
    if (model::IsScalar(meaning.signal)) {
      if (!model::IsAbsent(field.value) && !SameButRounded(field.value, run.row.report.Scalar(meaning.signal)))
        return true;
      continue;
    }
    const auto now = run.row.report.Array(meaning.signal);
    if (!field.values.empty()) {
      if (field.values.size() != now.size()) return true;
      for (size_t k = 0; k < now.size(); ++k)
        if (!SameButRounded(static_cast<double>(now[k]), static_cast<double>(field.values[k]))) return true;
    } else if (meaning.layer && !model::IsAbsent(field.value)) {
      const size_t heads = run.shape[SlotOf(meaning.signal)].second;
      const size_t at = *meaning.layer * heads + meaning.head.value_or(0);
      if (at < now.size() && !model::IsAbsent(static_cast<double>(now[at])) &&
          !SameButRounded(static_cast<double>(static_cast<float>(field.value)), static_cast<double>(now[at])))
        return true;
    }
  }
  return false;
}

void Assembler::NewAttempt(Run* run) {
  Flush(run);
  ++run->row.attempt;
  run->row.report.sequence = 0;
  run->last_step.fill(std::nullopt);
  run->restarts.push_back(run->rows);
  if (run->restarts.size() > kRestartsMax) run->restarts.pop_front();
}

// Makes `run->row` the row of `step`. False: the record is not to be read.
bool Assembler::Advance(Run* run, model::Step step, const Record& record) {
  const model::Step now = run->row.report.step;
  if (run->pending && step == now && !Contradicts(*run, record)) return true;
  if (run->rows > 0 || run->pending) {
    if (step <= now) {
      bool repeats = false;
      for (size_t i = 0; i < record.size(); ++i) {
        const Meaning& meaning = keys_.Find(record[i].key);
        if (meaning.kind != Meaning::Kind::kSignal || !run->Counts(meaning)) continue;
        const auto& last = run->last_step[SlotOf(meaning.signal)];
        repeats = repeats || (last && step <= *last);
      }
      if (!repeats) {
        Skip(record.line, "it belongs to a step that was over");
        return false;
      }
      if (!run->several_writers && run->restarts.size() == kRestartsMax &&
          run->rows - run->restarts.front() <= kRestartRows) {
        run->several_writers = true;
        Warn("run " + run->name + " has several values for one step, from several writers or micro-batches; "
             "the first of each step was read");
      }
      if (run->several_writers && now - step <= kWriterLagSteps) {
        ++losses_.skipped_rows;
        return false;
      }
      NewAttempt(run);
    }
    Flush(run);
  }
  run->row.report.step = step;
  run->row.line = record.line;
  run->row.verbatim = false;
  run->pending = true;
  return true;
}

void Assembler::PutArray(const Field& field, Signal signal, Run* run) {
  std::vector<float>& array = run->row.report.MutableArray(signal);
  array.assign(field.values.begin(), field.values.end());
  auto& [layers, heads] = run->shape[SlotOf(signal)];
  if (field.columns > 0) {
    heads = field.columns;
    layers = static_cast<uint32_t>(field.values.size() / field.columns);
  } else {
    heads = 1;
    layers = static_cast<uint32_t>(field.values.size());
  }
}

// Cells arrive in any order; the array has its full length as soon as that is known.
void Assembler::PutCell(double value, const Meaning& meaning, Run* run) {
  std::vector<float>& array = run->row.report.MutableArray(meaning.signal);
  auto& [layers, heads] = run->shape[SlotOf(meaning.signal)];
  const uint32_t layer = meaning.layer.value_or(0), head = meaning.head.value_or(0);
  const uint32_t old_layers = layers, old_heads = std::max(heads, 1u);
  layers = std::max({layers, layer + 1, IsLayered(meaning.signal) ? run->spec.layers : 0});
  heads = std::max(old_heads, head + 1);
  if (heads != old_heads && !array.empty()) {
    std::vector<float> wider(static_cast<size_t>(layers) * heads, model::kAbsent);
    for (size_t l = 0; l < old_layers; ++l)
      for (size_t h = 0; h < old_heads && l * old_heads + h < array.size(); ++h)
        wider[l * heads + h] = array[l * old_heads + h];
    array = std::move(wider);
  }
  array.resize(static_cast<size_t>(layers) * heads, model::kAbsent);
  array[static_cast<size_t>(layer) * heads + head] = static_cast<float>(value);
}

void Assembler::Put(const Field& field, const Meaning& meaning, Run* run) {
  const size_t slot = SlotOf(meaning.signal);
  if (model::IsScalar(meaning.signal)) {
    if (model::IsAbsent(field.value)) return;
    // A scale of -1 or 0 is what Megatron prints where there is none.
    if (meaning.signal == Signal::kLossScale && field.value <= 0) return;
    // The first of two spellings of one number counts, unless the other name is the better one.
    if (run->row.report.Has(meaning.signal) && meaning.rank == run->best_rank[slot]) return;
    run->row.report.SetScalar(meaning.signal, field.value);
  } else if (!field.values.empty()) {
    PutArray(field, meaning.signal, run);
  } else if (!model::IsAbsent(field.value)) {
    PutCell(field.value, meaning, run);
  } else {
    return;
  }
  run->best_rank[slot] = meaning.rank;
  run->last_step[slot] = run->row.report.step;
  const auto kind = meaning.logit_kind != model::LogitKind::kUnknown ? meaning.logit_kind : run->attn.kind;
  if (meaning.signal == Signal::kAttnLogitMax) run->row.report.attn_logit_kind = kind;
}

// A learning rate comes in lines of settings too ("lr=0.1, steps=100"). In prose that alone begins no run; elsewhere a
// row has a step.
bool Assembler::IsSettings(const Record& record) {
  if (record.step) return false;
  for (size_t i = 0; i < record.size() && !record.needs_step; ++i)
    if (keys_.Find(record[i].key).kind == Meaning::Kind::kStep) return false;
  return true;
}

void Assembler::KeepUnknown(const Field& field) {
  if (rows_ > 0 || unknown_names_.size() >= kUnknownNamesMax) return;
  if (model::IsAbsent(field.value) && field.values.empty()) return;
  const std::string name = field.key.substr(0, 60);
  if (std::ranges::find(unknown_names_, name) == unknown_names_.end()) unknown_names_.push_back(name);
}

void Assembler::TakeRecord(const Record& record) {
  Run* run = RunOf(record);
  if (run == nullptr) return Skip(record.line, "the file names more than 4096 runs; is the run column the right one?");
  if (record.verbatim) return TakeVerbatim(record, run);
  bool has_signal = false, has_loss = false, has_loss_or_norm = false;
  for (size_t i = 0; i < record.size(); ++i) {
    const Field& field = record[i];
    const Meaning& meaning = keys_.Find(field.key);
    if (meaning.kind == Meaning::Kind::kNothing) KeepUnknown(field);
    if (meaning.kind != Meaning::Kind::kSignal || !run->Counts(meaning)) continue;
    if (model::IsAbsent(field.value) && field.values.empty()) continue;
    has_signal = true;
    has_loss = has_loss || meaning.signal == Signal::kLoss;
    has_loss_or_norm = has_loss_or_norm || has_loss || meaning.signal == Signal::kGradNorm || !field.values.empty();
  }
  if (!has_signal || IsEvaluation(record) || OfAnotherRank(record, has_loss, run)) return;
  if (!has_loss_or_norm && !run->step_rank && IsSettings(record)) return;
  model::Step step = 0;
  if (!FindStep(record, run, &step) || !Advance(run, step, record)) return;
  for (size_t i = 0; i < record.size(); ++i) {
    const Meaning& meaning = keys_.Find(record[i].key);
    if (meaning.kind == Meaning::Kind::kSignal && run->Counts(meaning)) Put(record[i], meaning, run);
  }
}

// One field of a report as gyrostat wrote it: no name is better than another, and no value a placeholder.
void Assembler::PutVerbatim(const Field& field, Run* run) {
  constexpr std::string_view kUser = "user/", kOfReport = "report/";
  model::Report& report = run->row.report;
  std::string_view key = field.key;
  if (key.substr(0, kOfReport.size()) == kOfReport) {
    const auto whole = StepOf(field.value);
    if (key == "report/attn_logit_kind") report.attn_logit_kind = model::LogitKindOf(field.text);
    if (!whole || *whole < 0) return;
    if (key == "report/sequence" && *whole > 0) report.sequence = static_cast<uint64_t>(*whole);
    if (key == "report/epoch" && *whole <= UINT32_MAX) report.epoch = static_cast<uint32_t>(*whole);
    if (key == "report/boundary") report.boundary = static_cast<model::Boundary>(*whole);
    if (key == "report/ledger_version") report.ledger_version = static_cast<uint64_t>(*whole);
    return;
  }
  const bool apart = key.substr(0, kUser.size()) == kUser;
  if (apart) key.remove_prefix(kUser.size());
  const Meaning& meaning = keys_.Find(field.key);
  if (!apart && meaning.kind == Meaning::Kind::kSignal) {
    if (model::IsScalar(meaning.signal)) report.SetScalar(meaning.signal, field.value);
    else if (!field.values.empty()) PutArray(field, meaning.signal, run);
  } else if ((apart || meaning.kind == Meaning::Kind::kNothing) && !model::IsAbsent(field.value) &&
             model::IsValidName(std::string(key)) && report.user.size() < kUserScalarsMax) {
    report.user.emplace_back(key, field.value);
  }
}

// Each record is a report of its own, whatever its step: headers tell attempts apart. What a row does not say of its
// bookkeeping follows from the one before it (ctl/export_rows.h leaves it out then).
void Assembler::TakeVerbatim(const Record& record, Run* run) {
  std::optional<model::Step> step;
  for (size_t i = 0; i < record.size(); ++i)
    if (record[i].key == "step") step = StepOf(record[i].value);
  if (!step) return Skip(record.line, "it has no step");
  Run::Verbatim& before = run->before;
  std::optional<int64_t> numbered;
  for (size_t i = 0; i < record.size(); ++i)
    if (record[i].key == "report/sequence") numbered = StepOf(record[i].value);
  if (before.any && (numbered ? *numbered <= static_cast<int64_t>(before.sequence) : *step <= before.step))
    return Skip(record.line, "it repeats a report, or goes back without a sequence of its own");
  Flush(run);
  model::Report& report = run->row.report;
  report.Clear();
  report.step = *step;
  report.sequence = before.sequence + 1;
  report.epoch = before.epoch;
  report.ledger_version = before.ledger_version;
  report.attn_logit_kind = run->attn.kind;
  constexpr model::Boundary kUnsaid = UINT64_MAX;
  report.boundary = kUnsaid;
  for (size_t i = 0; i < record.size(); ++i) PutVerbatim(record[i], run);
  if (report.boundary == kUnsaid) report.boundary = before.any ? before.boundary + 1 : report.sequence - 1;
  before = {true, report.sequence, report.ledger_version, report.epoch, report.boundary, report.step};
  run->row.line = record.line;
  run->row.verbatim = true;
  if (!run->told || run->retold) Tell(run);
  sink_->OnRow(run->row);
  ++run->rows;
  ++rows_;
}

void Assembler::Tell(Run* run) {
  if (run->told) sink_->OnAttempt(run->index, run->spec, run->attn);
  else sink_->OnRun(run->index, run->name, run->spec, run->attn);
  run->told = true;
  run->retold = false;
}

void Assembler::Flush(Run* run) {
  if (!run->pending) return;
  model::Report& report = run->row.report;
  bool any = false;
  for (const model::SignalInfo& info : model::Signals()) any = any || report.Has(info.signal);
  if (any) {
    if (!run->told) {
      const auto [logit_layers, logit_heads] = run->shape[SlotOf(Signal::kAttnLogitMax)];
      if (run->spec.heads == 0) run->spec.heads = logit_heads;
      for (const model::SignalInfo& info : model::Signals())
        if (run->spec.layers == 0 && IsLayered(info.signal)) run->spec.layers = run->shape[SlotOf(info.signal)].first;
      if (run->spec.layers > model::kLayersMax || run->spec.heads > model::kHeadsMax)
        run->spec.layers = run->spec.heads = 0;
      Tell(run);
    }
    report.boundary = ++report.sequence;
    sink_->OnRow(run->row);
    ++run->rows;
    ++rows_;
  }
  run->pending = false;
  const uint64_t sequence = report.sequence;
  const model::Step step = report.step;
  report.Clear();
  report.sequence = sequence;
  report.step = step;  // The newest step of the attempt, for what comes next.
}

void Assembler::Finish() {
  for (const auto& run : runs_) Flush(run.get());
}

}  // namespace gyrostat::logs
