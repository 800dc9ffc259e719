#include "web/api.h"

#include <algorithm>
#include <charconv>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "engine/people.h"
#include "model/signal.h"
#include "web/json.h"

namespace gyrostat::web {
namespace {

constexpr size_t kPointsDefault = 1000, kPointsMax = 10000;
constexpr base::Milliseconds kIntervalDefault{250};
constexpr int64_t kColumnsMax = 512;
constexpr size_t kSignalsMax = 8;         // Of one question for series.
constexpr size_t kLargeReport = 4096;  // Values of attn_logit_max.

// "a,b" → a, b. Empty parts stay, and match nothing.
std::vector<std::string> Split(std::string_view text, char by) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(by);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}
// "/api/runs/a" → runs, a.
std::vector<std::string> PartsOf(std::string_view path) {
  path.remove_prefix(std::min(path.size(), std::string_view("/api/").size()));
  return Split(path, '/');
}

int HttpStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return 200;
    case absl::StatusCode::kInvalidArgument: return 400;
    case absl::StatusCode::kPermissionDenied: return 403;
    case absl::StatusCode::kNotFound: return 404;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists: return 409;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable: return 503;
    default: return 500;
  }
}
Reply Error(const absl::Status& status) {
  return JsonError(HttpStatus(status), std::string(status.message()));
}

// Reads named values of a query and remembers the first complaint.
class Asked {
 public:
  explicit Asked(const Query& query) : query_(query) {}

  std::string Text(const char* name) {
    known_.emplace_back(name);
    if (query_.count(name) > 1) Complain(std::string(name) + " is given more than once");
    const auto it = query_.find(name);
    return it == query_.end() ? "" : it->second;
  }
  std::optional<int64_t> Number(const char* name, int64_t min, int64_t max) {
    const std::string text = Text(name);
    if (query_.find(name) == query_.end()) return std::nullopt;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
      Complain(std::string(name) + " is " + Quoted(text) + ", wanted a whole number from " + std::to_string(min) +
               " to " + std::to_string(max));
      return std::nullopt;
    }
    return value;
  }
  // The first complaint; one about names that nobody asked for comes last. Empty: all is right.
  std::string Complaint() {
    for (const auto& [name, value] : query_) {
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      std::string names;
      for (const std::string& each : known_) names += " " + each;
      Complain("no parameter is called " + Quoted(name) + "; there are:" + names);
    }
    return complaint_;
  }

 private:
  void Complain(std::string text) {
    if (complaint_.empty()) complaint_ = std::move(text);
  }

  const Query& query_;
  std::vector<std::string> known_;
  std::string complaint_;
};

constexpr int64_t kStepMax = INT64_MAX, kIndexMax = 100000;

// Reason and author of a body; nothing where it is no such body, and `*complaint` says why.
struct Word {
  std::string reason, author;
};
std::optional<Word> WordOf(const std::string& body, std::string* complaint) {
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (!json.is_object()) {
    *complaint = "the body is no JSON object, wanted {\"reason\": \"…\", \"author\": \"…\"}";
    return std::nullopt;
  }
  Word word;
  for (const auto& [name, value] : json.items()) {
    std::string* const field = name == "reason" ? &word.reason : name == "author" ? &word.author : nullptr;
    if (field == nullptr) *complaint = "no field is called " + Quoted(name) + "; there are: reason author";
    else if (!value.is_string()) *complaint = name + " is no text";
    else *field = value.get<std::string>();
    if (!complaint->empty()) return std::nullopt;
  }
  return word;
}

}  // namespace

Api::Api(ApiOptions options, engine::Engine* engine, engine::History* history, EventStreams* streams,
         std::function<std::string()> not_ready_reason)
    : options_(std::move(options)), engine_(engine), history_(history), streams_(streams),
      not_ready_reason_(std::move(not_ready_reason)) {}

Reply Api::Answer(const Request& request) {
  const Parts parts = PartsOf(request.path);
  const bool reads = request.method == "GET";
  if (parts[0] == "runs" && reads && parts.size() == 1) {
    auto runs = engine_->Runs();
    std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a->run < b->run; });
    return JsonReply(RunsJson(options_.version, not_ready_reason_(), runs));
  }
  if (parts[0] == "runs" && reads) return Run(parts[1], Parts(parts.begin() + 2, parts.end()), request);
  if (parts[0] == "interventions" && parts.size() == 4 && (parts[3] == "approve" || parts[3] == "reject")) {
    if (!reads) return Settle(parts[1] + "/" + parts[2], parts[3], request.body);
    Reply reply = JsonError(405, "wanted: POST; a GET changes nothing");
    reply.headers = {{"Allow", "POST"}};
    return reply;
  }
  return JsonError(404, "there is no " + request.method + " " + Quoted(request.path) +
                            "; there are GET /api/runs, /api/runs/RUN, /api/runs/RUN/now, /api/runs/RUN/series, "
                            "/api/runs/RUN/heat, /api/runs/RUN/events, and POST "
                            "/api/interventions/RUN/NUMBER/approve and …/reject");
}

Reply Api::Run(const std::string& run, const Parts& rest, const Request& request) {
  if (!model::IsValidName(run))
    return JsonError(400, "run is " + Quoted(run) + ", wanted 1 to 128 of A-Z a-z 0-9 . _ : -");
  if (rest.empty()) return Whole(run);
  if (rest.size() == 1 && rest[0] == "now") return Now(run, request.query);
  if (rest.size() == 1 && rest[0] == "series") return Series(run, request.query);
  if (rest.size() == 1 && rest[0] == "heat") return Heat(run, request.query);
  if (rest.size() == 1 && rest[0] == "events") return Events(run, request.query);
  return JsonError(404, "a run has no " + Quoted(rest[0]) + "; it has now, series, heat and events");
}

bool Api::TakeTurn() {
  const base::MonotonicTime deadline = base::SystemClock().Now() + options_.history_wait;
  base::MutexLock lock(mutex_);
  if (reads_ >= options_.history_reads_max) {
    if (waiting_ >= options_.history_waiting_max) return false;
    ++waiting_;
    while (reads_ >= options_.history_reads_max && base::SystemClock().Now() < deadline)
      turn_.WaitUntil(mutex_, deadline);
    --waiting_;
    if (reads_ >= options_.history_reads_max) return false;
  }
  ++reads_;
  return true;
}

Reply Api::FromHistory(const std::function<Reply()>& read) {
  if (!TakeTurn()) {
    Reply busy = JsonError(503, "too many reads of the history are under way; ask again later");
    busy.headers = {{"Retry-After", "1"}};
    return busy;
  }
  Reply reply = read();
  {
    base::MutexLock lock(mutex_);
    --reads_;
  }
  turn_.NotifyOne();
  return reply;
}

Reply Api::Whole(const std::string& run) {
  return FromHistory([&] {
    Kept kept;
    auto findings = history_->Findings(run);
    auto episodes = history_->Episodes(run);
    auto interventions = history_->Interventions(run);
    // Last, so that it is no older than what is kept. A run whose first entries are on their way is not kept yet.
    const auto state = engine::FindRunFor(*engine_, run);
    if (!state.ok()) return Error(state.status());
    for (const absl::Status& each : {findings.status(), episodes.status(), interventions.status()})
      if (!each.ok() && !absl::IsNotFound(each)) return Error(each);
    if (findings.ok()) kept.findings = *std::move(findings);
    if (episodes.ok()) kept.episodes = *std::move(episodes);
    if (interventions.ok()) kept.interventions = *std::move(interventions);
    return JsonReply(RunJson(**state, kept));
  });
}

Reply Api::Now(const std::string& run, const Query& query) {
  Asked asked(query);
  if (const std::string complaint = asked.Complaint(); !complaint.empty()) return JsonError(400, complaint);
  const auto state = engine::FindRunFor(*engine_, run);
  return state.ok() ? JsonReply(EventJson(**state)) : Error(state.status());
}

Reply Api::Series(const std::string& run, const Query& query) {
  Asked asked(query);
  const std::vector<std::string> names = Split(asked.Text("signal"), ',');
  engine::SeriesQuery wanted;
  wanted.run = run;
  const auto layer = asked.Number("layer", 0, kIndexMax), head = asked.Number("head", 0, kIndexMax);
  wanted.from_step = asked.Number("from", -kStepMax, kStepMax);
  wanted.to_step = asked.Number("to", -kStepMax, kStepMax);
  wanted.points_max = static_cast<uint32_t>(asked.Number("points", 4, kPointsMax).value_or(kPointsDefault));
  if (const std::string complaint = asked.Complaint(); !complaint.empty()) return JsonError(400, complaint);
  for (const std::string& name : names)
    if (!model::IsValidName(name)) return JsonError(400, "signal is " + Quoted(name) + ", wanted a signal's name");
  if (names.size() > kSignalsMax)
    return JsonError(400, std::to_string(names.size()) + " signals are asked for, wanted at most " +
                              std::to_string(kSignalsMax));
  if (layer) wanted.layer = static_cast<uint32_t>(*layer);
  if (head) wanted.head = static_cast<uint32_t>(*head);
  if (const auto known = engine::FindRunFor(*engine_, run); !known.ok()) return Error(known.status());
  return FromHistory([&] {
    std::string all;
    for (const std::string& name : names) {
      const model::SignalInfo* info = model::FindSignal(std::string_view(name));
      wanted.signal = info != nullptr ? info->signal : model::Signal::kNone;
      wanted.user_name = info != nullptr ? "" : name;
      auto series = history_->Series(wanted);
      if (!series.ok() && absl::IsNotFound(series.status())) series = engine::SeriesData();
      if (!series.ok()) return Error(series.status());
      all += (all.empty() ? "" : ",") + SeriesJson({name, wanted.points_max, series->points, series->notes});
    }
    return JsonReply(names.size() == 1 ? std::move(all) : "{\"series\":[" + all + "]}");
  });
}

Reply Api::Heat(const std::string& run, const Query& query) {
  Asked asked(query);
  const std::string name = asked.Text("signal");
  const auto step = asked.Number("step", -kStepMax, kStepMax);
  const auto from = asked.Number("from", -kStepMax, kStepMax), to = asked.Number("to", -kStepMax, kStepMax);
  const auto columns = asked.Number("columns", 1, kColumnsMax);
  if (const std::string complaint = asked.Complaint(); !complaint.empty()) return JsonError(400, complaint);
  const model::SignalInfo* info = model::FindSignal(std::string_view(name));
  if (info == nullptr || !model::IsArray(info->signal))
    return JsonError(400, "signal is " + Quoted(name) + ", wanted one with layers, as attn_logit_max");
  const auto state = engine::FindRunFor(*engine_, run);
  if (!state.ok()) return Error(state.status());
  if (columns) {
    LayerMapQuery wanted{.run = run, .signal = info->signal, .layers = (*state)->spec.layers,
                         .from = from.value_or(0), .to = to.value_or((*state)->step),
                         .columns = static_cast<size_t>(*columns)};
    if (wanted.from > wanted.to) return JsonError(400, "from is " + std::to_string(wanted.from) + ", after to");
    // Pages of large models cost more.
    if ((*state)->last.Array(model::Signal::kAttnLogitMax).size() > kLargeReport) wanted.pages_max /= 4;
    return FromHistory([&] {
      const auto map = LayersOverTime(history_, wanted);
      return map.ok() ? JsonReply(LayerMapJson(name, *map)) : Error(map.status());
    });
  }
  if (from || to) return JsonError(400, "from and to want columns: layers over steps");
  if (!step) return Heads(**state, {(*state)->last}, info->signal);
  return FromHistory([&] {
    const auto report = ReportAt(history_, run, *step);
    return report.ok() ? Heads(**state, *report, info->signal) : Error(report.status());
  });
}

Reply Api::Heads(const engine::RunState& run, const StoredReport& stored, model::Signal signal) {
  const std::string text = ArrayJson(run, stored, signal);
  if (!text.empty()) return JsonReply(text);
  return JsonError(404, "the report of step " + std::to_string(stored.report.step) + " of run " + run.run +
                            " does not hold " + std::string(model::SignalName(signal)));
}

Reply Api::Events(const std::string& run, const Query& query) {
  Asked asked(query);
  const int64_t interval = asked.Number("interval_ms", kEventIntervalMin.count(), kEventIntervalMax.count())
                               .value_or(kIntervalDefault.count());
  if (const std::string complaint = asked.Complaint(); !complaint.empty()) return JsonError(400, complaint);
  if (const auto known = engine::FindRunFor(*engine_, run); !known.ok()) return Error(known.status());
  const std::shared_ptr<void> place = streams_->Reserve();
  if (place == nullptr) {
    Reply reply = JsonError(503, "all event streams are taken; close a page or come again later");
    reply.headers = {{"Retry-After", "5"}};
    return reply;
  }
  Reply reply;
  reply.take_over = [this, run, interval, place](int socket) {
    streams_->Add(socket, run, base::Milliseconds(interval), place);
  };
  return reply;
}

Reply Api::Settle(const std::string& id, const std::string& verdict, const std::string& body) {
  std::string complaint;
  const std::optional<Word> word = WordOf(body, &complaint);
  if (!word) return JsonError(400, complaint);
  const bool approves = verdict == "approve";
  if (!approves && word->reason.find_first_not_of(' ') == std::string::npos)
    return JsonError(400, "reason is empty; say why it is rejected");
  const std::string run = engine::Engine::RunOfIntent(id);
  if (!model::IsValidName(run))
    return JsonError(404, "intervention " + Quoted(id) + " is not known; ids look like RUN/NUMBER");
  if (const auto known = engine::FindRunFor(*engine_, run); !known.ok()) return Error(known.status());
  const std::string author = engine::AuthorOf(word->author), reason = engine::ReasonOf(word->reason);
  const auto outcome = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> settled = outcome->get_future();
  const engine::EventBody event = approves ? engine::EventBody(engine::ApproveEvent{id, author, reason})
                                           : engine::EventBody(engine::RejectEvent{id, author, reason});
  engine_->Post(run, event, [outcome](const absl::Status& status) { outcome->set_value(status); });
  if (settled.wait_for(options_.settle_timeout) != std::future_status::ready)
    return JsonError(504, "intervention " + id + ": no answer in time; it may still be done, look again");
  if (const absl::Status status = settled.get(); !status.ok()) return Error(status);
  base::LogInfo("intervention settled", {{"id", id}, {"verdict", verdict}, {"author", author}, {"reason", reason}});
  const auto rows = history_->Interventions(run);
  if (!rows.ok()) return Error(rows.status());
  const auto state = engine_->FindRun(run);
  if (!state.ok()) return Error(state.status());
  for (const auto& row : *rows)
    if (row.intervention.id == id) return JsonReply(InterventionJson(**state, row));
  return JsonError(500, "intervention " + id + " was settled but is not stored");
}

}  // namespace gyrostat::web
