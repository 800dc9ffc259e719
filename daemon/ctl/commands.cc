#include "ctl/commands.h"

#include <string_view>
#include <vector>

#include "base/check.h"
#include "ctl/export.h"
#include "ctl/history_notes.h"
#include "ctl/json.h"
#include "ctl/render.h"
#include "ctl/watch.h"
#include "model/intervention.h"
#include "model/signal.h"

namespace gyrostat::ctl {
namespace {

constexpr size_t kTailPoints = 10;  // What a terminal shows of a series below its summary.

v1::Mode ModeOf(const std::string& token) {
  return token == "act" ? v1::ACT : token == "advise" ? v1::ADVISE : v1::OBSERVE;
}

int Runs(const Request& request, Control* control, const Console& console) {
  const auto runs = control->ListRuns();
  if (!runs.ok()) return Complain(runs.status(), request.address, console);
  if (!request.json) {
    console.out << RenderRuns(*runs, console.style, console.clock.UnixMs());
    return kDone;
  }
  for (const v1::RunSummary& each : runs->runs()) console.out << Json(each) << "\n";
  return kDone;
}

int Show(const Request& request, Control* control, const Console& console) {
  const auto run = control->GetRun(request.run);
  if (!run.ok()) return Complain(run.status(), request.address, console);
  if (request.json) console.out << Json(run->view()) << "\n";
  else console.out << RenderView(run->view(), console.style, console.clock.UnixMs());
  return kDone;
}

// The daemon sends the newest that fit into one message; silence about the rest would be read as "that is all".
void TellLeftOut(uint32_t left_out, std::string_view what, const Console& console) {
  if (left_out > 0)
    console.err << "gyrostatctl: left out, since they did not fit into one answer: " << left_out << " older " << what
                << ".\n";
}

int FindingsOf(const Request& request, Control* control, const Console& console) {
  v1::ListFindingsRequest wire;
  wire.set_run(request.run);
  wire.set_open_only(request.open_only);
  const auto findings = control->ListFindings(wire);
  if (!findings.ok()) return Complain(findings.status(), request.address, console);
  bool fail = false;
  for (const v1::Finding& each : findings->findings()) {
    if (request.json) console.out << Json(each) << "\n";
    fail = fail || (!request.fail_on.empty() && SeverityRank(each.severity()) >= SeverityRank(request.fail_on));
  }
  if (!request.json) console.out << RenderFindings(findings->findings(), console.style);
  TellLeftOut(findings->left_out(), "findings", console);
  return fail ? kRefused : kDone;
}

int EpisodesOf(const Request& request, Control* control, const Console& console) {
  const auto episodes = control->ListEpisodes(request.run);
  if (!episodes.ok()) return Complain(episodes.status(), request.address, console);
  if (!request.json) console.out << RenderEpisodes(episodes->episodes(), console.style);
  else
    for (const v1::Episode& each : episodes->episodes()) console.out << Json(each) << "\n";
  TellLeftOut(episodes->left_out(), "episodes", console);
  return kDone;
}

int InterventionsOf(const Request& request, Control* control, const Console& console) {
  const auto interventions = control->ListInterventions(request.run);
  if (!interventions.ok()) return Complain(interventions.status(), request.address, console);
  if (!request.json) console.out << RenderInterventions(interventions->interventions(), console.style);
  else
    for (const v1::Intervention& each : interventions->interventions()) console.out << Json(each) << "\n";
  TellLeftOut(interventions->left_out(), "interventions", console);
  return kDone;
}

int PrintAnswered(const Request& request, const v1::Intervention& intent, const Console& console) {
  if (request.json) console.out << Json(intent) << "\n";
  else
    console.out << Escape(intent.id()) << " is now " << Escape(intent.state()) << " (" << Token(intent.kind())
                << ", by " << Escape(intent.author()) << ").\n";
  return kDone;
}

// Both answers to a proposal say the same of themselves.
template <class Wire>
Wire Signed(const Request& request) {
  Wire wire;
  wire.set_id(request.id);
  wire.set_reason(request.reason);
  wire.set_author(request.author);
  return wire;
}

int Answer(const Request& request, Control* control, const Console& console) {
  const auto print = [&](const auto& answer) {
    return answer.ok() ? PrintAnswered(request, answer->intervention(), console)
                       : Complain(answer.status(), request.address, console);
  };
  return request.command == Command::kApprove ? print(control->Approve(Signed<v1::ApproveRequest>(request)))
                                              : print(control->Reject(Signed<v1::RejectRequest>(request)));
}

int Propose(const Request& request, Control* control, const Console& console) {
  const ProposeQuestion& question = request.propose;
  v1::ProposeRequest wire;
  wire.set_run(request.run);
  if (const auto kind = model::InterventionKindOf(question.kind))
    wire.set_kind(static_cast<v1::InterventionKind>(*kind));
  if (question.to_step) wire.set_warmup_end_step(*question.to_step);
  if (question.alpha) wire.set_alpha(*question.alpha);
  if (question.beta) wire.set_beta(*question.beta);
  if (question.ramp) wire.set_ramp_boundaries(*question.ramp);
  if (question.scale) wire.set_scale(*question.scale);
  if (question.for_boundaries) wire.set_for_boundaries(*question.for_boundaries);
  if (question.max_norm) wire.set_max_norm(*question.max_norm);
  if (question.at_step) wire.set_at_step(*question.at_step);
  wire.set_reason(request.reason);
  wire.set_author(request.author);
  const auto answer = control->Propose(wire);
  if (!answer.ok()) return Complain(answer.status(), request.address, console);
  const v1::Intervention& intent = answer->intervention();
  if (request.json) console.out << Json(intent) << "\n";
  else
    console.out << Escape(intent.id()) << " is proposed (" << Token(intent.kind()) << "): " << Escape(intent.reason())
                << "\nIt waits for: gyrostatctl approve " << Escape(intent.id()) << "\n";
  return kDone;
}

int SetMode(const Request& request, Control* control, const Console& console) {
  v1::SetModeRequest wire;
  wire.set_run(request.run);
  wire.set_all(request.all);
  wire.set_mode(ModeOf(request.mode));
  wire.set_author(request.author);
  wire.set_reason(request.reason);
  const auto answer = control->SetMode(wire);
  if (!answer.ok()) return Complain(answer.status(), request.address, console);
  for (const std::string& run : answer->runs()) {
    if (request.json) console.out << JsonMode(run, wire.mode()) << "\n";
    else console.out << Escape(run) << " is now in mode " << request.mode << ".\n";
  }
  if (!request.json && request.all)
    console.out << Count(static_cast<uint64_t>(answer->runs_size()), "run") << " changed; new runs start in mode "
                << Token(answer->default_mode()) << ".\n";
  return kDone;
}

std::string SeriesName(const Request& request) {
  std::string name = request.signal;
  if (request.layer) name += " layer " + std::to_string(*request.layer);
  if (request.head) name += " head " + std::to_string(*request.head);
  return name;
}

// A job may report scalars under any name, so a mistyped signal only looks empty: the daemon cannot tell, a person
// must.
int NoValues(const Request& request, const Console& console) {
  console.err << "gyrostatctl: " << Escape(request.run) << " has no values of " << Escape(SeriesName(request))
              << " in these steps.";
  const bool known = model::FindSignal(request.signal) != nullptr;
  if (!known) {
    console.err << " gyrostat's own signals are:";
    for (const model::SignalInfo& each : model::Signals()) console.err << " " << each.name;
  }
  console.err << "\n";
  return known ? kDone : kRefused;
}

int Series(const Request& request, Control* control, const Console& console) {
  v1::GetSeriesRequest wire;
  wire.set_run(request.run);
  wire.set_signal(request.signal);
  if (request.layer) wire.set_layer(*request.layer);
  if (request.head) wire.set_head(*request.head);
  if (request.from_step) wire.set_from_step(*request.from_step);
  if (request.to_step) wire.set_to_step(*request.to_step);
  const bool summary = console.terminal && !request.json;
  std::vector<SeriesPoint> points;  // Only for the summary: what goes into a pipe is not kept.
  uint64_t count = 0;
  wire.set_points_max(request.points);
  const absl::StatusOr<v1::HistoryNotes> notes = control->GetSeries(wire, [&](int64_t step, double value) {
    ++count;
    if (request.json) console.out << JsonPoint(step, value) << "\n";
    else if (!summary) console.out << step << " " << Number(value) << "\n";
    else points.push_back({step, value});
  });
  if (!notes.ok()) return Complain(notes.status(), request.address, console);
  console.err << RenderNotes(*notes);
  if (count == 0) return NoValues(request, console);
  if (!summary) return kDone;
  console.out << RenderSeriesSummary(SeriesName(request), points, console.style);
  for (size_t i = points.size() > kTailPoints ? points.size() - kTailPoints : 0; i < points.size(); ++i)
    console.out << "  " << points[i].step << " " << Number(points[i].value) << "\n";
  return kDone;
}

}  // namespace

int Complain(const absl::Status& status, const std::string& address, const Console& console) {
  const std::string text = Escape(std::string(status.message()));
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    console.err << "gyrostatctl: no gyrostatd answers at " << Escape(address) << " (" << text << ").\n"
                << "Start gyrostatd, or name another one with --address HOST:PORT or GYROSTAT_ADDRESS; "
                << "\"gyrostatctl doctor\" looks closer.\n";
    return kUnreachable;
  }
  if (status.code() == absl::StatusCode::kUnimplemented)
    console.err << "gyrostatctl: what answers at " << Escape(address)
                << " does not know this command; it is an older gyrostatd or another program (" << text << ").\n";
  else
    console.err << "gyrostatctl: " << text << "\n";
  return kRefused;
}

int RunCommand(const Request& request, Control* control, const Console& console) {
  switch (request.command) {
    case Command::kRuns: return Runs(request, control, console);
    case Command::kShow: return Show(request, control, console);
    case Command::kFindings: return FindingsOf(request, control, console);
    case Command::kEpisodes: return EpisodesOf(request, control, console);
    case Command::kInterventions: return InterventionsOf(request, control, console);
    case Command::kApprove:
    case Command::kReject: return Answer(request, control, console);
    case Command::kPropose: return Propose(request, control, console);
    case Command::kMode: return SetMode(request, control, console);
    case Command::kWatch: return Watch(request, control, console);
    case Command::kSeries: return Series(request, control, console);
    case Command::kExport: return Export(request, control, console);
    case Command::kCheckConfig:
    case Command::kDoctor:
    case Command::kQkClip:
    case Command::kDeepNorm:
    case Command::kWarmup:
    case Command::kReplay:
    case Command::kCheckModel:
    case Command::kCompletion: break;
  }
  GYROSTAT_CHECK(false);  // main.cc keeps the offline commands for itself.
  return kUsage;
}

}  // namespace gyrostat::ctl
