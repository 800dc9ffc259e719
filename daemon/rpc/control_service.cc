#include "rpc/control_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "rpc/convert.h"
#include "rpc/grpc_status.h"
#include "rpc/render.h"
#include "rpc/series_stream.h"

namespace gyrostat::rpc {
namespace {

constexpr size_t kAuthorBytesMax = 128, kReasonBytesMax = 1024;
constexpr uint32_t kSeriesOpenMax = 16;  // Each holds one whole series, some 16 bytes a step.
constexpr uint32_t kIntervalMsMin = 100, kIntervalMsMax = 60000, kIntervalMsDefault = 1000;
// Rows of one answer: below the 4 MiB that gRPC's clients take by default.
constexpr size_t kAnswerBytesMax = size_t{3} << 20;

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// A stream that says no and ends.
template <class Message>
class Refusal final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit Refusal(const absl::Status& status) { this->Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

std::string Author(const std::string& name) { return name.empty() ? "operator" : CleanText(name, kAuthorBytesMax); }
std::string Reason(const std::string& text) { return CleanText(text, kReasonBytesMax); }

// Up to five names, so that a slip of the pen shows itself.
std::string KnownRuns(const std::vector<std::shared_ptr<const engine::RunState>>& runs) {
  if (runs.empty()) return "no run is known yet";
  std::vector<std::string> names;
  for (const auto& run : runs) names.push_back(run->run);
  std::sort(names.begin(), names.end());
  constexpr size_t kNamesMax = 5;
  std::string text = "known:";
  for (size_t i = 0; i < std::min(names.size(), kNamesMax); ++i) text += " " + names[i];
  return names.size() > kNamesMax ? text + " and " + std::to_string(names.size() - kNamesMax) + " more" : text;
}

// Converts rows from the newest back while they fit; `*add` makes a message in the answer. Then oldest first.
template <class Rows, class Repeated, class Convert>
uint32_t NewestThatFit(const Rows& rows, Repeated* out, Convert convert) {
  size_t bytes = 0, taken = 0;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row, ++taken) {
    auto* message = out->Add();
    convert(*row, message);
    bytes += message->ByteSizeLong();
    if (bytes <= kAnswerBytesMax) continue;
    out->RemoveLast();
    break;
  }
  std::reverse(out->begin(), out->end());
  return static_cast<uint32_t>(rows.size() - taken);
}

// SetMode on many runs: answers when the last of them has.
struct ModeCall {
  base::Mutex mutex;
  size_t left GYROSTAT_GUARDED_BY(mutex) = 0;
  absl::Status error GYROSTAT_GUARDED_BY(mutex);  // The first.
  grpc::ServerUnaryReactor* reactor = nullptr;
  v1::SetModeResponse* response = nullptr;

  void Settle(const std::string& run, const absl::Status& status) {
    absl::Status outcome;
    {
      base::MutexLock lock(mutex);
      if (status.ok())
        response->add_runs(run);
      else if (error.ok())
        error = absl::Status(status.code(), "run " + run + " keeps its mode: " + std::string(status.message()));
      if (--left > 0) return;
      outcome = error;
    }
    std::sort(response->mutable_runs()->begin(), response->mutable_runs()->end());
    reactor->Finish(ToGrpc(outcome));
  }
};

}  // namespace

ControlService::ControlService(ControlOptions options, engine::Engine* engine, engine::History* history,
                               DiskPool* disk, Probe* probe, const base::Clock* clock,
                               std::function<DaemonStatus()> status)
    : options_(std::move(options)), engine_(engine), history_(history), disk_(disk), probe_(probe), clock_(clock),
      status_(std::move(status)) {}

void ControlService::SetGrpcAddress(const std::string& address) {
  base::MutexLock lock(mutex_);
  grpc_address_ = address;
}

void ControlService::StopWatches() { watches_.StopAll(); }

absl::StatusOr<std::shared_ptr<const engine::RunState>> ControlService::FindRun(const std::string& run) const {
  if (absl::Status status = CheckRunName("run", run); !status.ok()) return status;
  auto found = engine_->FindRun(run);
  if (!absl::IsNotFound(found.status())) return found;
  return absl::NotFoundError("run " + run + " is not known; " + KnownRuns(engine_->Runs()));
}

void ControlService::OnDisk(grpc::ServerUnaryReactor* reactor, std::function<absl::Status()> job) {
  if (disk_->Submit([reactor, job = std::move(job)] { reactor->Finish(ToGrpc(job())); })) return;
  probe_->history_refused_total.Add();
  reactor->Finish(ToGrpc(absl::ResourceExhaustedError("too many reads of the history wait already; ask again later")));
}

grpc::ServerUnaryReactor* ControlService::ListRuns(grpc::CallbackServerContext* context, const v1::ListRunsRequest*,
                                                   v1::ListRunsResponse* response) {
  auto runs = engine_->Runs();
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a->run < b->run; });
  for (const auto& run : runs) ToWire(*run, response->add_runs());
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ControlService::GetRun(grpc::CallbackServerContext* context, const v1::GetRunRequest* request,
                                                 v1::GetRunResponse* response) {
  const auto run = FindRun(request->run());
  if (run.ok()) ToWire(**run, response->mutable_view());
  return Answer(context, run.status());
}

grpc::ServerUnaryReactor* ControlService::ListFindings(grpc::CallbackServerContext* context,
                                                       const v1::ListFindingsRequest* request,
                                                       v1::ListFindingsResponse* response) {
  const auto run = FindRun(request->run());
  if (!run.ok()) return Answer(context, run.status());
  if (request->open_only()) {
    for (const model::Finding& each : (*run)->open_findings)
      ToWire(each, (*run)->run, (*run)->attempt, response->add_findings());
    return Answer(context, absl::OkStatus());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  OnDisk(reactor, [this, name = request->run(), response] {
    const auto rows = history_->Findings(name);
    if (!rows.ok()) return rows.status();
    response->set_left_out(NewestThatFit(*rows, response->mutable_findings(), [&](const auto& row, v1::Finding* out) {
      ToWire(row.finding, name, row.attempt, out);
    }));
    return absl::OkStatus();
  });
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::ListInterventions(grpc::CallbackServerContext* context,
                                                            const v1::ListInterventionsRequest* request,
                                                            v1::ListInterventionsResponse* response) {
  if (const auto run = FindRun(request->run()); !run.ok()) return Answer(context, run.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  OnDisk(reactor, [this, name = request->run(), response] {
    const auto rows = history_->Interventions(name);
    if (!rows.ok()) return rows.status();
    response->set_left_out(
        NewestThatFit(*rows, response->mutable_interventions(), [&](const auto& row, v1::Intervention* out) {
          ToWire(row.intervention, name, row.attempt, out);
        }));
    return absl::OkStatus();
  });
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Approve(grpc::CallbackServerContext* context,
                                                  const v1::ApproveRequest* request, v1::ApproveResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Settle(reactor, request->id(),
         engine::ApproveEvent{request->id(), Author(request->author()), Reason(request->reason())},
         response->mutable_intervention());
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Reject(grpc::CallbackServerContext* context, const v1::RejectRequest* request,
                                                 v1::RejectResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Settle(reactor, request->id(),
         engine::RejectEvent{request->id(), Author(request->author()), Reason(request->reason())},
         response->mutable_intervention());
  return reactor;
}

void ControlService::Settle(grpc::ServerUnaryReactor* reactor, const std::string& id, engine::EventBody event,
                            v1::Intervention* response) {
  const std::string name = engine::Engine::RunOfIntent(id);
  const auto run = model::IsValidName(name)
                       ? FindRun(name)
                       : absl::NotFoundError("intervention " + Quoted(id) + " is not known; ids look like RUN/NUMBER");
  if (!run.ok()) return reactor->Finish(ToGrpc(run.status()));
  engine_->Post(name, std::move(event), [this, reactor, id, name, response](const absl::Status& status) {
    if (!status.ok()) return reactor->Finish(ToGrpc(status));
    OnDisk(reactor, [this, id, name, response] {
      const auto rows = history_->Interventions(name);
      if (!rows.ok()) return rows.status();
      const auto row = std::find_if(rows->begin(), rows->end(),
                                    [&](const auto& each) { return each.intervention.id == id; });
      if (row == rows->end()) return absl::InternalError("intervention " + id + " was settled but is not stored");
      ToWire(row->intervention, name, row->attempt, response);
      return absl::OkStatus();
    });
  });
}

grpc::ServerUnaryReactor* ControlService::SetMode(grpc::CallbackServerContext* context,
                                                  const v1::SetModeRequest* request, v1::SetModeResponse* response) {
  const std::optional<model::Mode> mode = FromWire(request->mode());
  if (!mode)
    return Answer(context, absl::InvalidArgumentError("mode is " + std::to_string(request->mode()) +
                                                      ", wanted OBSERVE, ADVISE or ACT"));
  if (request->all() == !request->run().empty()) {
    const std::string given = request->all() ? "run and all are both given" : "neither run nor all is given";
    return Answer(context, absl::InvalidArgumentError(given + ", wanted one of them"));
  }
  std::vector<std::string> names;
  if (request->all()) {
    SetDefaultMode(*mode);
    for (const auto& run : engine_->Runs()) names.push_back(run->run);
  } else {
    const auto run = FindRun(request->run());
    if (!run.ok()) return Answer(context, run.status());
    names.push_back(request->run());
  }
  const std::string author = Author(request->author()), reason = Reason(request->reason());
  base::LogInfo("mode asked for", {{"run", request->all() ? "(all)" : request->run()}, {"mode", model::Token(*mode)},
                                   {"author", author}, {"reason", reason}});
  if (names.empty()) return Answer(context, absl::OkStatus());
  const auto call = std::make_shared<ModeCall>();
  call->reactor = context->DefaultReactor();
  call->response = response;
  {
    base::MutexLock lock(call->mutex);
    call->left = names.size();
  }
  grpc::ServerUnaryReactor* reactor = call->reactor;
  for (const std::string& name : names)
    engine_->Post(name, engine::ModeEvent{*mode, author, reason},
                  [call, name](const absl::Status& status) { call->Settle(name, status); });
  return reactor;
}

// The kill switch must also hold for a run that starts a minute later, so `all` lowers what new runs get. Upwards it
// goes back at most to where it was: what may act unasked is for the configuration to say.
void ControlService::SetDefaultMode(model::Mode mode) {
  base::MutexLock lock(mutex_);
  engine::RunOptions options = engine_->run_options();
  if (!lowered_ || lowered_->to != options.policy.mode) lowered_ = Lowered{options.policy.mode, mode};  // Or reloaded.
  lowered_->to = options.policy.mode = std::min(mode, lowered_->from);
  engine_->SetRunOptions(options);
}

grpc::ServerWriteReactor<v1::SeriesChunk>* ControlService::GetSeries(grpc::CallbackServerContext*,
                                                                     const v1::GetSeriesRequest* request) {
  if (const auto run = FindRun(request->run()); !run.ok()) return new Refusal<v1::SeriesChunk>(run.status());
  const auto query = FromWire(*request);
  if (!query.ok()) return new Refusal<v1::SeriesChunk>(query.status());
  if (series_open_ >= kSeriesOpenMax) {
    probe_->history_refused_total.Add();
    return new Refusal<v1::SeriesChunk>(absl::ResourceExhaustedError(
        std::to_string(kSeriesOpenMax) + " series are being read already; ask again later"));
  }
  auto* stream = new SeriesStream(&series_open_);
  if (!disk_->Submit([this, stream, query = *query] { stream->Begin(history_->Series(query)); })) {
    probe_->history_refused_total.Add();
    stream->Begin(absl::ResourceExhaustedError("too many reads of the history wait already; ask again later"));
  }
  return stream;
}

grpc::ServerWriteReactor<v1::RunView>* ControlService::Watch(grpc::CallbackServerContext* context,
                                                             const v1::WatchRequest* request) {
  if (const auto run = FindRun(request->run()); !run.ok()) return new Refusal<v1::RunView>(run.status());
  const uint32_t interval_ms = request->interval_ms() == 0 ? kIntervalMsDefault : request->interval_ms();
  if (interval_ms < kIntervalMsMin || interval_ms > kIntervalMsMax)
    return new Refusal<v1::RunView>(absl::InvalidArgumentError(
        "interval_ms is " + std::to_string(interval_ms) + ", wanted 100 to 60000, or 0 for 1000"));
  WatchOptions options{.run = request->run(), .interval = base::Milliseconds(interval_ms),
                       .watchers_max = options_.watchers_max};
  const auto watch = std::make_shared<WatchStream>(std::move(options), context, engine_, &watches_, probe_, clock_);
  watch->Begin();
  return watch.get();
}

grpc::ServerUnaryReactor* ControlService::GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest*,
                                                    v1::GetStatusResponse* response) {
  const DaemonStatus status = status_();
  const engine::Probe& counts = engine_->probe();
  response->set_version(options_.version);
  response->set_started_at_ms(status.started_at_unix_ms);
  {
    base::MutexLock lock(mutex_);
    response->set_grpc_address(grpc_address_);
  }
  response->set_http_address(status.http_address);
  response->set_data_dir(status.data_dir);
  response->set_runs(static_cast<uint32_t>(engine_->Runs().size()));
  response->set_streams(static_cast<uint32_t>(probe_->streams_open.value()));
  response->set_reports_total(counts.reports_total.value());
  response->set_reports_refused_total(probe_->reports_refused_total.value());  // By the engine or before it.
  response->set_journal_failures_total(counts.journal_failures_total.value());
  response->set_journal_queue(status.journal_queue);
  response->set_ready(status.ready);
  response->set_not_ready_reason(status.not_ready_reason);
  response->set_default_mode(ToWire(engine_->run_options().policy.mode));
  return Answer(context, absl::OkStatus());
}

}  // namespace gyrostat::rpc
