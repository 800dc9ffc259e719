#include "ctl/replay.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "ctl/progress.h"
#include "ctl/render.h"
#include "ctl/replay_html.h"
#include "ctl/replay_page.h"
#include "ctl/replayed.h"
#include "ctl/spec_file.h"
#include "logs/log_file.h"

namespace gyrostat::ctl {
namespace {

constexpr uint64_t kProgressFromBytes = uint64_t{8} << 20;  // What is smaller is read before one has looked.

// True: the page is written.
bool WriteHtml(const std::string& file, const std::vector<Replayed>& runs, const Console& console) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  if (out && out << HtmlReport(runs) << std::flush) return true;
  console.err << "gyrostatctl: " << Escape(file) << ": the page cannot be written: " << std::strerror(errno) << "\n";
  return false;
}

bool Fails(const Replayed& run, const std::string& fail_on) {
  return !fail_on.empty() && std::ranges::any_of(run.findings, [&fail_on](const RuledFinding& each) {
    return SeverityRank(model::Token(each.finding.severity)) >= SeverityRank(fail_on);
  });
}

// What --model and --config say; nothing, and the reason on the error stream, where they cannot be read.
std::optional<ReplayOptions> OptionsOf(const Request& request, const Console& console,
                                       const ThresholdsReader& read_thresholds) {
  ReplayOptions options;
  options.rules = request.rules;
  absl::Status status;
  if (!request.model.empty()) {
    const auto spec = ReadModel(request.model);
    if (spec.ok()) options.model = *spec;
    status.Update(spec.status());
  }
  if (!request.config.empty()) {
    const auto thresholds = read_thresholds(request.config);
    if (thresholds.ok()) options.thresholds = *thresholds;
    status.Update(thresholds.status());
    options.thresholds.policy.mode = model::Mode::kObserve;  // Nobody is there to send anything to.
  }
  if (status.ok()) return options;
  std::istringstream lines{std::string(status.message())};
  for (std::string line; std::getline(lines, line);) console.err << "gyrostatctl: " << Escape(line) << "\n";
  return std::nullopt;
}

}  // namespace

int ReplayFiles(const Request& request, const Console& console, const ThresholdsReader& read_thresholds) {
  const std::optional<ReplayOptions> options = OptionsOf(request, console, read_thresholds);
  if (!options) return kRefused;
  const Detail detail = request.list_findings ? Detail::kFindings : Detail::kEpisodes;
  int code = kDone;
  bool first = true;
  std::vector<Replayed> pages;
  for (const std::string& file : request.files) {
    Replay replay(*options);
    ProgressLine progress(console, file, kProgressFromBytes);
    const logs::ReadOutcome outcome = logs::ReadLog(
        file, request.reading, &replay, [&progress](uint64_t done, uint64_t total) { progress(done, total); });
    for (Replayed& run : replay.Take(file, outcome)) {
      if (request.json) console.out << Json(run) << "\n" << std::flush;
      else console.out << (first ? "" : "\n") << RenderReplayed(run, detail, console.style) << std::flush;
      first = false;
      if (Fails(run, request.fail_on)) code = kRefused;
      if (!request.html.empty()) pages.push_back(std::move(run));
    }
    if (outcome.error.empty()) continue;
    console.err << "gyrostatctl: " << Escape(outcome.error) << "\n";
    code = kRefused;
  }
  if (!request.html.empty() && !WriteHtml(request.html, pages, console)) return kRefused;
  return code;
}

}  // namespace gyrostat::ctl
