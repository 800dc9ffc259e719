#include "rpc/control_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/people.h"
#include "rpc/convert.h"
#include "rpc/export_stream.h"
#include "rpc/grpc_status.h"
#include "rpc/render.h"
#include "rpc/series_stream.h"
#include "rpc/text.h"

namespace gyrostat::rpc {
namespace {

constexpr uint32_t kExportsOpenMax = 4;  // Each holds one page, 64 reports.
constexpr uint32_t kSeriesOpenMax = 16;  // Each holds one whole series, some 16 bytes a step.
constexpr uint32_t kIntervalMsMin = 100, kIntervalMsMax = 60000, kIntervalMsDefault = 1000;
// Rows of one answer: below the 4 MiB that gRPC's clients take by default.
constexpr size_t kAnswerBytesMax = size_t{3} << 20;

// gRPC says UNAVAILABLE itself where nobody answers; whoever was answered shall not be told so.
grpc::Status ToPeople(const absl::Status& status) {
  return ToGrpc(absl::IsUnavailable(status) ? absl::AbortedError(status.message()) : status);
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToPeople(status));
  return reactor;
}

// A stream that says no and ends.
template <class Message>
class Refusal final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit Refusal(const absl::Status& status) { this->Finish(ToPeople(status)); }
  void OnDone() override { delete this; }
};

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
class ModeCall : public std::enable_shared_from_this<ModeCall> {
 public:
  ModeCall(grpc::ServerUnaryReactor* reactor, v1::SetModeResponse* response, std::function<model::Mode()> start_mode)
      : reactor_(reactor), response_(response), start_mode_(std::move(start_mode)) {}

  // One answer more to wait for. `run` is empty for the runs to come.
  std::function<void(const absl::Status&)> Expect(const std::string& run) {
    {
      base::MutexLock lock(mutex_);
      ++left_;
    }
    return [self = shared_from_this(), run](const absl::Status& status) {
      {
        base::MutexLock lock(self->mutex_);
        if (status.ok() && !run.empty()) self->response_->add_runs(run);
        if (!status.ok() && ++self->errors_ == 1) self->error_ = status;
      }
      self->Settle();
    };
  }
  // Once more than Expect was called, so that nothing is answered before all were asked.
  void Settle() {
    absl::Status outcome;
    {
      base::MutexLock lock(mutex_);
      if (--left_ > 0) return;
      outcome = error_;
      if (errors_ > 1)
        outcome = absl::Status(error_.code(), std::string(error_.message()) + "; so it is with " +
                                                  std::to_string(errors_ - 1) + " more");
    }
    std::sort(response_->mutable_runs()->begin(), response_->mutable_runs()->end());
    response_->set_default_mode(ToWire(start_mode_()));
    reactor_->Finish(ToPeople(outcome));
  }

 private:
  grpc::ServerUnaryReactor* const reactor_;
  v1::SetModeResponse* const response_;
  const std::function<model::Mode()> start_mode_;
  base::Mutex mutex_;
  size_t left_ GYROSTAT_GUARDED_BY(mutex_) = 1;
  size_t errors_ GYROSTAT_GUARDED_BY(mutex_) = 0;
  absl::Status error_ GYROSTAT_GUARDED_BY(mutex_);  // The first.
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
  return engine::FindRunFor(*engine_, run);
}

void ControlService::OnDisk(grpc::ServerUnaryReactor* reactor, std::function<absl::Status()> job) {
  if (disk_->Submit([reactor, job = std::move(job)] { reactor->Finish(ToPeople(job())); })) return;
  probe_->history_refused_total.Add();
  const absl::Status full = absl::ResourceExhaustedError("too many reads of the history wait already; ask again later");
  reactor->Finish(ToPeople(full));
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

grpc::ServerUnaryReactor* ControlService::ListEpisodes(grpc::CallbackServerContext* context,
                                                       const v1::ListEpisodesRequest* request,
                                                       v1::ListEpisodesResponse* response) {
  if (const auto run = FindRun(request->run()); !run.ok()) return Answer(context, run.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  OnDisk(reactor, [this, name = request->run(), response] {
    const auto rows = history_->Episodes(name);
    if (!rows.ok()) return rows.status();
    response->set_left_out(NewestThatFit(*rows, response->mutable_episodes(), [&](const auto& row, v1::Episode* out) {
      ToWire(row.diagnosis, name, row.attempt, out);
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
         engine::ApproveEvent{request->id(), engine::AuthorOf(request->author()), engine::ReasonOf(request->reason())},
         response->mutable_intervention());
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Reject(grpc::CallbackServerContext* context, const v1::RejectRequest* request,
                                                 v1::RejectResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Settle(reactor, request->id(),
         engine::RejectEvent{request->id(), engine::AuthorOf(request->author()), engine::ReasonOf(request->reason())},
         response->mutable_intervention());
  return reactor;
}

void ControlService::Settle(grpc::ServerUnaryReactor* reactor, const std::string& id, engine::EventBody event,
                            v1::Intervention* response) {
  const std::string name = engine::Engine::RunOfIntent(id);
  const auto run = model::IsValidName(name)
                       ? FindRun(name)
                       : absl::NotFoundError("intervention " + Quoted(id) + " is not known; ids look like RUN/NUMBER");
  if (!run.ok()) return reactor->Finish(ToPeople(run.status()));
  engine_->Post(name, std::move(event), [this, reactor, id, name, response](const absl::Status& status) {
    if (!status.ok()) return reactor->Finish(ToPeople(status));
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

grpc::ServerUnaryReactor* ControlService::Propose(grpc::CallbackServerContext* context,
                                                  const v1::ProposeRequest* request, v1::ProposeResponse* response) {
  if (const auto run = FindRun(request->run()); !run.ok()) return Answer(context, run.status());
  auto proposal = FromWire(*request);
  if (!proposal.ok()) return Answer(context, proposal.status());
  proposal->author = engine::AuthorOf(request->author());
  proposal->reason = engine::ReasonOf(request->reason());
  const std::string name = request->run();
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto answer = [this, reactor, name, kind = proposal->kind, response](const absl::Status& status) {
    if (!status.ok()) return reactor->Finish(ToPeople(status));
    OnDisk(reactor, [this, name, kind, response] {
      const auto rows = history_->Interventions(name);
      if (!rows.ok()) return rows.status();
      // At most one of a kind is open: the newest, which has the largest number behind the run's name.
      const auto rank = [kind](const auto& each) {
        const model::Intervention& one = each.intervention;
        return one.kind == kind ? std::pair(one.id.size(), one.id) : std::pair(size_t{0}, std::string());
      };
      const auto row = std::ranges::max_element(*rows, {}, rank);
      if (row == rows->end() || row->intervention.kind != kind)
        return absl::InternalError("the proposal was taken but is not stored");
      ToWire(row->intervention, name, row->attempt, response->mutable_intervention());
      return absl::OkStatus();
    });
  };
  engine_->Post(name, engine::ProposeEvent{*std::move(proposal)}, answer);
  return reactor;
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
  if (!request->all())
    if (const auto run = FindRun(request->run()); !run.ok()) return Answer(context, run.status());
  const std::string author = engine::AuthorOf(request->author()), reason = engine::ReasonOf(request->reason());
  base::LogInfo("mode asked for", {{"run", request->all() ? "(all)" : request->run()}, {"mode", model::Token(*mode)},
                                   {"author", author}, {"reason", reason}});
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto call = std::make_shared<ModeCall>(reactor, response, [this] { return engine_->start_mode(); });
  if (!request->all()) {
    engine_->Post(request->run(), engine::ModeEvent{*mode, author, reason}, call->Expect(request->run()));
  } else {
    // The limit first: a run that begins meanwhile has met it, or its name is there already.
    engine_->SetModeLimit({*mode, author, reason}, call->Expect(""));
    for (const std::string& name : engine_->RunNames())
      engine_->Post(name, engine::ModeEvent{*mode, author, reason},
                    [call, done = call->Expect(name)](const absl::Status& status) {
                      if (absl::IsNotFound(status)) return call->Settle();  // Its hello comes, and meets the limit.
                      done(status);
                    });
  }
  call->Settle();
  return reactor;
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

grpc::ServerWriteReactor<v1::ExportChunk>* ControlService::Export(grpc::CallbackServerContext* context,
                                                                  const v1::ExportRequest* request) {
  if (const auto run = FindRun(request->run()); !run.ok()) return new Refusal<v1::ExportChunk>(run.status());
  auto query = FromWire(*request);
  if (!query.ok()) return new Refusal<v1::ExportChunk>(query.status());
  if (exports_open_ >= kExportsOpenMax) {
    probe_->history_refused_total.Add();
    return new Refusal<v1::ExportChunk>(absl::ResourceExhaustedError(
        std::to_string(kExportsOpenMax) + " runs are being exported already; ask again later"));
  }
  ExportOptions options{.query = *std::move(query), .signals = {request->signals().begin(), request->signals().end()}};
  const auto stream =
      std::make_shared<ExportStream>(std::move(options), context, history_, disk_, probe_, &exports_open_);
  stream->Begin();
  return stream.get();
}

grpc::ServerWriteReactor<v1::RunView>* ControlService::Watch(grpc::CallbackServerContext* context,
                                                             const v1::WatchRequest* request) {
  if (const auto run = FindRun(request->run()); !run.ok()) return new Refusal<v1::RunView>(run.status());
  const uint32_t interval_ms = request->interval_ms() == 0 ? kIntervalMsDefault : request->interval_ms();
  if (interval_ms < kIntervalMsMin || interval_ms > kIntervalMsMax)
    return new Refusal<v1::RunView>(absl::InvalidArgumentError(
        "interval_ms is " + std::to_string(interval_ms) + ", wanted 100 to 60000, or 0 for 1000"));
  WatchOptions options{.run = request->run(), .interval = base::Milliseconds(interval_ms),
                       .heads = request->heads(), .watchers_max = options_.watchers_max};
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
  response->set_default_mode(ToWire(engine_->start_mode()));
  if (const auto limit = engine_->mode_limit()) {
    response->set_mode_limit(ToWire(limit->mode));
    response->set_mode_limit_author(limit->author);
  }
  return Answer(context, absl::OkStatus());
}

}  // namespace gyrostat::rpc
