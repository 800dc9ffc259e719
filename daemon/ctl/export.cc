#include "ctl/export.h"

#include <optional>
#include <set>
#include <string>

#include "ctl/commands.h"
#include "ctl/export_rows.h"
#include "ctl/history_notes.h"
#include "ctl/json.h"
#include "ctl/progress.h"
#include "ctl/text.h"
#include "logs/out_file.h"
#include "model/signal.h"

namespace gyrostat::ctl {
namespace {

constexpr uint64_t kProgressFromReports = 2000;

class Exporter {
 public:
  Exporter(const Request& request, Control* control, const Console& console)
      : request_(request), control_(control), console_(console), rows_(request.run) {
    if (!request.out.empty()) file_.emplace(request.out);
    wire_.set_run(request.run);
    if (request.from_step) wire_.set_from_step(*request.from_step);
    if (request.to_step) wire_.set_to_step(*request.to_step);
    for (const std::string& each : request.signals) wire_.add_signals(each);
    missing_.insert(request.signals.begin(), request.signals.end());
  }

  int Run() {
    if (file_ && !file_->error().empty()) return Unwritten();
    const auto run = control_->GetRun(request_.run);
    if (!run.ok()) return Complain(run.status(), request_.address, console_);
    // Of steps asked for nobody knows beforehand how many there are.
    if (!request_.from_step && !request_.to_step) total_ = run->view().reports_total();
    const absl::Status status = request_.export_format == "csv" ? Csv() : Jsonl();
    if (!good_) return Unwritten();
    if (!status.ok()) return Complain(status, request_.address, console_);
    if (reports_ == 0) {
      console_.err << "gyrostatctl: " << Escape(request_.run)
                   << (request_.from_step || request_.to_step ? " has no reports of these steps.\n"
                                                              : " has no history yet.\n");
      return kRefused;
    }
    console_.err << RenderNotes(notes_.notes());
    for (const std::string& each : missing_)
      console_.err << "gyrostatctl: no report has " << Escape(each) << ".\n";
    if (!(file_ ? file_->Close() : console_.out.flush().good())) return Unwritten();
    if (request_.json && !request_.out.empty())
      console_.out << JsonExport(request_.run, request_.out, request_.export_format, reports_, attempts_) << "\n";
    return kDone;
  }

 private:
  int Unwritten() {
    console_.err << "gyrostatctl: " << (file_ ? Escape(file_->error()) : "the output cannot be written") << "\n";
    return kRefused;
  }

  bool Put(const std::string& text) {
    return good_ = good_ && (file_ ? file_->Write(text) : (console_.out << text).good());
  }

  void Count(const v1::ExportChunk& chunk) {
    reports_ += static_cast<uint64_t>(chunk.reports_size());
    attempts_ += chunk.has_attempt() ? 1 : 0;
    notes_.Take(chunk);
    if (missing_.empty()) return;
    for (const v1::Report& report : chunk.reports()) {
      for (const uint32_t number : report.scalar_signals()) Found(number);
      for (const v1::SignalValues& array : report.arrays()) Found(array.signal());
      for (const std::string& name : report.user_names()) missing_.erase(name);
    }
  }
  void Found(uint32_t number) { missing_.erase(std::string(model::SignalName(static_cast<model::Signal>(number)))); }

  absl::Status Jsonl() {
    ProgressLine progress(console_, request_.run, kProgressFromReports);
    return control_->Export(wire_, [&](const v1::ExportChunk& chunk) {
      Count(chunk);
      text_.clear();
      rows_.Append(chunk, &text_);
      progress(reports_, total_);
      return Put(text_);
    });
  }

  // What comes in between the two times of asking is not in the table.
  absl::Status Csv() {
    ProgressLine progress(console_, request_.run, kProgressFromReports);
    const absl::Status looked = control_->Export(wire_, [&](const v1::ExportChunk& chunk) {
      Count(chunk);
      table_.Look(chunk);
      progress(reports_, 2 * total_);
      return true;
    });
    if (!looked.ok() || reports_ == 0) return looked;
    text_.clear();
    table_.AppendHeader(&text_);
    uint64_t written = 0;
    return control_->Export(wire_, [&](const v1::ExportChunk& chunk) {
      v1::ExportChunk fitting;
      const bool all = written + static_cast<uint64_t>(chunk.reports_size()) <= reports_;
      if (!all) {
        fitting = chunk;
        while (written + static_cast<uint64_t>(fitting.reports_size()) > reports_)
          fitting.mutable_reports()->RemoveLast();
      }
      table_.Append(all ? chunk : fitting, &text_);
      written += static_cast<uint64_t>((all ? chunk : fitting).reports_size());
      const bool good = Put(text_);
      text_.clear();
      progress(reports_ + written, 2 * total_);
      return good && written < reports_;
    });
  }

  const Request& request_;
  Control* const control_;
  const Console& console_;
  v1::ExportRequest wire_;
  std::optional<logs::OutFile> file_;  // Nothing: the output stream.
  bool good_ = true;  // Everything could be written so far.
  JsonlRows rows_;
  CsvRows table_;
  std::string text_;
  uint64_t reports_ = 0, attempts_ = 0, total_ = 0;
  ExportNotes notes_;
  std::set<std::string> missing_;  // Of the signals asked for.
};

}  // namespace

int Export(const Request& request, Control* control, const Console& console) {
  return Exporter(request, control, console).Run();
}

}  // namespace gyrostat::ctl
