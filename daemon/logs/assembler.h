// Records → reports, run by run and attempt by attempt.
//
// Values of one step come on one line, on several, or twice with different rounding: neighbours of one step are one
// report. A repeated or earlier step is a new attempt of the run. Logs in which several writers mix their lines would
// open attempts without end; there the first value of a step counts and the rest is skipped, and told.
// Not thread-safe. Memory: one report and a list of step ranges per run.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "logs/keys.h"
#include "logs/record.h"
#include "model/report.h"

namespace gyrostat::logs {

// One report, and where it came from.
struct Row {
  size_t run = 0;        // Runs count from 0 in the order in which the file first names them.
  uint32_t attempt = 0;  // From 0.
  bool verbatim = false;  // A report as gyrostat exported it: steps may repeat and go back within its attempt.
  uint64_t line = 0;     // Of the first record that belongs to it.
  model::Report report;  // Sequence and boundary count from 1 in the attempt, unless the file says them.
};

class RowSink {
 public:
  virtual ~RowSink() = default;
  // Before the first row of a run. What the file does not say about the model is unknown in `spec`; numbers of layers
  // and heads are taken from the arrays where it does not say them.
  virtual void OnRun(size_t run, const std::string& name, const model::ModelSpec& spec,
                     const model::AttnLogitInfo& attn) = 0;
  // A header opened another attempt of a run, of this model; before its first row. Other files' runs keep their model.
  virtual void OnAttempt(size_t run, const model::ModelSpec& spec, const model::AttnLogitInfo& attn) {
    static_cast<void>(run), static_cast<void>(spec), static_cast<void>(attn);
  }
  virtual void OnRow(const Row& row) = 0;
};

// What was not read, per file.
struct Losses {
  uint64_t skipped_rows = 0;
  std::vector<std::string> warnings;
};

class Assembler : public RecordSink {
 public:
  // `name` is the run's where the file names none. `sink` must outlive this.
  Assembler(std::string name, KeyOptions options, RowSink* sink);
  ~Assembler() override;

  void TakeHeader(const Header& header) override;
  void Declare(const Record& names) override;
  void TakeRecord(const Record& record) override;
  void Skip(uint64_t line, std::string_view why) override;
  void Warn(const std::string& sentence) override;

  // No more records come: the last rows leave.
  void Finish();

  KeyMap* keys() { return &keys_; }
  const Losses& losses() const { return losses_; }
  size_t rows() const { return rows_; }
  // The first names with numbers that meant nothing, for the person who has to map them.
  const std::vector<std::string>& unknown_names() const { return unknown_names_; }

 private:
  struct Run;
  enum class Where { kSame, kAhead, kBack };

  Run* RunOf(const Record& record);
  Run* Open(const std::string& name);
  bool IsEvaluation(const Record& record);
  bool OfAnotherRank(const Record& record, bool has_loss, Run* run);
  bool FindStep(const Record& record, Run* run, model::Step* step);
  bool Advance(Run* run, model::Step step, const Record& record);
  bool Contradicts(const Run& run, const Record& record);
  void NewAttempt(Run* run);
  void Put(const Field& field, const Meaning& meaning, Run* run);
  void PutArray(const Field& field, model::Signal signal, Run* run);
  void PutCell(double value, const Meaning& meaning, Run* run);
  void TakeVerbatim(const Record& record, Run* run);
  void PutVerbatim(const Field& field, Run* run);
  void Tell(Run* run);
  void Flush(Run* run);
  bool IsSettings(const Record& record);
  void KeepUnknown(const Field& field);

  std::string name_;
  KeyMap keys_;
  RowSink* sink_;
  std::vector<std::unique_ptr<Run>> runs_;
  std::map<std::string, Run*> by_name_;
  Run* last_run_ = nullptr;
  Losses losses_;
  std::set<std::string> told_;
  size_t rows_ = 0;
  std::vector<std::string> unknown_names_;
  // Declared before any run is known.
  std::vector<std::pair<std::string, Meaning>> declared_;
};

}  // namespace gyrostat::logs
