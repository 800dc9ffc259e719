#include "store/reader.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "store/audit.h"
#include "store/chunk.h"
#include "store/decimate.h"
#include "store/series.h"
#include "store/series_builder.h"

namespace gyrostat::store {
namespace {

model::Id128 IdOf(const std::string& bytes) { return model::Id128::FromBytes(bytes).value_or(model::Id128{}); }

// NaN is stored as NULL.
double DoubleOrNan(const Statement& row, int column) {
  return row.IsNull(column) ? std::numeric_limits<double>::quiet_NaN() : row.Double(column);
}

model::Finding FindingOf(const Statement& row) {
  model::Finding f;
  f.id = static_cast<uint64_t>(row.Int(1));
  f.key = static_cast<uint64_t>(row.Int(2));
  f.detector = row.Bytes(3);
  f.severity = static_cast<model::Severity>(row.Int(4));
  f.signal = static_cast<model::Signal>(row.Int(5));
  f.layer = row.Optional<uint32_t>(6);
  f.head = row.Optional<uint32_t>(7);
  f.rank = row.Optional<uint32_t>(8);
  f.step_begin = row.Int(9);
  f.step_detected = row.Int(10);
  f.step_end = row.Optional<model::Step>(11);
  f.healed = row.Optional<bool>(12);
  f.value = DoubleOrNan(row, 13);
  f.expected = DoubleOrNan(row, 14);
  f.message = row.Bytes(15);
  f.recommend = row.Optional<model::InterventionKind>(16);
  f.episode = row.Optional<uint64_t>(17).value_or(0);
  return f;
}

// False: a blob of it cannot be read.
bool DiagnosisOf(const Statement& row, diagnose::Diagnosis* d) {
  d->episode = static_cast<uint64_t>(row.Int(1));
  d->closed = row.Int(2) != 0;
  d->findings = static_cast<uint32_t>(row.Int(3));
  d->severity = static_cast<model::Severity>(row.Int(4));
  d->step_begin = row.Int(5);
  d->step_end = row.Optional<model::Step>(6);
  d->healed = row.Optional<bool>(7);
  d->detector = row.Bytes(8);
  d->signal = static_cast<model::Signal>(row.Int(9));
  d->layer = row.Optional<uint32_t>(10);
  d->head = row.Optional<uint32_t>(11);
  d->rank = row.Optional<uint32_t>(12);
  d->first_step = row.Int(13);
  d->common_mode = row.Int(14) != 0;
  d->recommend = row.Optional<model::InterventionKind>(15);
  d->headline = row.Bytes(16);
  d->advice = row.Bytes(17);
  d->likely = row.Bytes(18);
  const std::string ranked = row.Bytes(19), evidence = row.Bytes(20);
  base::ByteReader ranked_in(ranked), evidence_in(evidence);
  return base::LoadFrom(&ranked_in, &d->ranked) && base::LoadFrom(&evidence_in, &d->evidence) && !d->ranked.empty();
}

model::Intervention InterventionOf(const Statement& row) {
  model::Intervention i;
  i.id = row.Bytes(1);
  i.kind = static_cast<model::InterventionKind>(row.Int(2));
  i.state = static_cast<model::InterventionState>(row.Int(3));
  i.outcome = row.Optional<model::Outcome>(4);
  i.mode = static_cast<model::Mode>(row.Int(5));
  i.reason = row.Bytes(6);
  i.author = row.Bytes(7);
  i.step_proposed = row.Int(8);
  i.step_applied = row.Optional<model::Step>(9);
  i.orders = static_cast<uint32_t>(row.Int(10));
  i.orders_applied = static_cast<uint32_t>(row.Int(11));
  i.heads = static_cast<uint32_t>(row.Int(12));
  i.median_delay_boundaries = row.Optional<double>(13);
  return i;
}

constexpr size_t kChunksPassedMax = 256;  // In one page, where no step of a chunk is wanted.

bool InSteps(const engine::ReportQuery& query, model::Step step) {
  return step >= query.from_step.value_or(step) && step <= query.to_step.value_or(step);
}

// A chunk's steps, as far as the query wants them.
void Note(engine::Resolution resolution, model::Step from, model::Step to, const engine::SeriesQuery& query,
          engine::HistoryNotes* notes) {
  if (resolution == engine::Resolution::kFull) return;
  from = std::max(from, query.from_step.value_or(from));
  to = std::min(to, query.to_step.value_or(to));
  engine::ReducedRange* last = notes->reduced.empty() ? nullptr : &notes->reduced.back();
  if (last == nullptr || last->resolution != resolution || from < last->from_step) {
    notes->reduced.push_back({from, to, resolution});
  } else {
    last->to_step = std::max(last->to_step, to);
  }
}

struct ModelSize {
  uint32_t layers = 0, heads = 0;
};

// Of each attempt.
using ModelSizes = std::map<model::AttemptId, ModelSize>;

ModelSize SizeOf(const ModelSizes& sizes, const model::AttemptId& attempt) {
  const auto it = sizes.find(attempt);
  return it == sizes.end() ? ModelSize{} : it->second;
}

absl::StatusOr<ModelSizes> SizesOf(Db* db, int64_t run) {
  absl::StatusOr<Statement> rows = db->Prepare("SELECT attempt, layers, heads FROM attempts WHERE run=?1");
  if (!rows.ok()) return rows.status();
  ModelSizes sizes;
  for (rows->Bind(run); rows->Step();)
    sizes[IdOf(rows->Bytes(0))] = {static_cast<uint32_t>(rows->Int(1)), static_cast<uint32_t>(rows->Int(2))};
  if (!rows->status().ok()) return rows->status();
  return sizes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> Reader::Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<Db>> db = Db::Open(path, Db::Access::kRead);
  if (!db.ok()) return db.status();
  return std::unique_ptr<Reader>(new Reader(*std::move(db)));
}

absl::Status Reader::InTransaction(const std::function<absl::Status()>& read) {
  if (absl::Status status = db_->Exec("BEGIN"); !status.ok()) return status;
  absl::Status status = read();
  const absl::Status end = db_->Exec("COMMIT");
  return status.ok() ? end : status;
}

absl::StatusOr<int64_t> Reader::NumberOf(const std::string& run) {
  absl::StatusOr<Statement> row = db_->Prepare("SELECT number FROM runs WHERE name=?1");
  if (!row.ok()) return row.status();
  if (row->Bind(run).Step()) return row->Int(0);
  return row->status().ok() ? absl::NotFoundError("run " + run + " is not known") : row->status();
}

absl::StatusOr<std::optional<engine::ModeWord>> Reader::ModeLimit() {
  absl::StatusOr<Statement> row = db_->Prepare("SELECT mode, author, reason FROM mode_limit");
  if (!row.ok()) return row.status();
  std::optional<engine::ModeWord> word;
  if (row->Bind().Step()) word = {static_cast<model::Mode>(row->Int(0)), row->Bytes(1), row->Bytes(2)};
  if (!row->status().ok()) return row->status();
  return word;
}

absl::Status Reader::ForEachRun(const std::function<absl::Status(engine::StoredRun)>& take) {
  return InTransaction([&]() -> absl::Status {
    absl::StatusOr<Statement> runs = db_->Prepare(
        "SELECT number, name, bytes FROM runs LEFT JOIN snapshots ON snapshots.run = runs.number ORDER BY number");
    if (!runs.ok()) return runs.status();
    absl::StatusOr<Statement> events = db_->Prepare("SELECT event FROM tail WHERE run=?1 ORDER BY id");
    if (!events.ok()) return events.status();
    for (runs->Bind(); runs->Step();) {
      engine::StoredRun stored;
      stored.number = static_cast<uint64_t>(runs->Int(0));
      stored.run = runs->Bytes(1);
      stored.snapshot = runs->Bytes(2);
      for (events->Bind(stored.number); events->Step();) stored.events.push_back(events->Bytes(0));
      if (!events->status().ok()) return events->status();
      if (absl::Status status = take(std::move(stored)); !status.ok()) return status;
    }
    return runs->status();
  });
}

absl::StatusOr<std::vector<engine::History::FindingRow>> Reader::Findings(const std::string& run) {
  std::vector<engine::History::FindingRow> findings;
  const absl::Status status = InTransaction([&]() -> absl::Status {
    const absl::StatusOr<int64_t> number = NumberOf(run);
    if (!number.ok()) return number.status();
    absl::StatusOr<Statement> rows = db_->Prepare(
        "SELECT attempt, id, key, detector, severity, signal, layer, head, rank, step_begin, step_detected, step_end, "
        "healed, value, expected, message, recommend, episode FROM findings WHERE run=?1 ORDER BY id");
    if (!rows.ok()) return rows.status();
    for (rows->Bind(*number); rows->Step();) findings.push_back({FindingOf(*rows), IdOf(rows->Bytes(0))});
    return rows->status();
  });
  if (!status.ok()) return status;
  return findings;
}

absl::StatusOr<std::vector<engine::History::EpisodeRow>> Reader::Episodes(const std::string& run) {
  std::vector<engine::History::EpisodeRow> episodes;
  const absl::Status status = InTransaction([&]() -> absl::Status {
    const absl::StatusOr<int64_t> number = NumberOf(run);
    if (!number.ok()) return number.status();
    absl::StatusOr<Statement> rows = db_->Prepare(
        "SELECT attempt, id, closed, findings, severity, step_begin, step_end, healed, detector, signal, layer, head, "
        "rank, first_step, common_mode, recommend, headline, advice, likely, ranked, evidence FROM episodes "
        "WHERE run=?1 ORDER BY id");
    if (!rows.ok()) return rows.status();
    for (rows->Bind(*number); rows->Step();) {
      auto& row = episodes.emplace_back();
      row.attempt = IdOf(rows->Bytes(0));
      if (!DiagnosisOf(*rows, &row.diagnosis))
        return absl::DataLossError("a row of episodes of run " + run + " cannot be read");
    }
    return rows->status();
  });
  if (!status.ok()) return status;
  return episodes;
}

absl::StatusOr<std::vector<engine::History::InterventionRow>> Reader::Interventions(const std::string& run) {
  std::vector<engine::History::InterventionRow> interventions;
  const absl::Status status = InTransaction([&]() -> absl::Status {
    const absl::StatusOr<int64_t> number = NumberOf(run);
    if (!number.ok()) return number.status();
    absl::StatusOr<Statement> rows = db_->Prepare(
        "SELECT attempt, id, kind, state, outcome, mode, reason, author, step_proposed, step_applied, orders, "
        "orders_applied, heads, median_delay_boundaries FROM interventions WHERE run=?1 ORDER BY number");
    if (!rows.ok()) return rows.status();
    for (rows->Bind(*number); rows->Step();) interventions.push_back({InterventionOf(*rows), IdOf(rows->Bytes(0))});
    return rows->status();
  });
  if (!status.ok()) return status;
  return interventions;
}

absl::Status Reader::SeriesOfChunks(int64_t run, const engine::SeriesQuery& query, SeriesBuilder* builder,
                                    engine::HistoryNotes* notes) {
  const absl::StatusOr<ModelSizes> sizes = SizesOf(db_.get(), run);
  if (!sizes.ok()) return sizes.status();
  absl::StatusOr<Statement> rows = db_->Prepare(
      "SELECT id, attempt, size, step_min, step_max, tier FROM chunks JOIN history ON chunk=id "
      "WHERE chunks.run=?1 AND step_max >= ?2 AND step_min <= ?3 ORDER BY id");
  if (!rows.ok()) return rows.status();
  const model::Step from = query.from_step.value_or(std::numeric_limits<model::Step>::min());
  const model::Step to = query.to_step.value_or(std::numeric_limits<model::Step>::max());
  for (rows->Bind(run, from, to); rows->Step();) {
    const int64_t id = rows->Int(0);
    const absl::StatusOr<ChunkColumn> column = ReadColumn(
        [&](size_t at, size_t size, char* out) { return db_->ReadBlob("chunks", "bytes", id, at, size, out); },
        static_cast<size_t>(rows->Int(2)), query.signal, query.user_name);
    if (absl::IsDataLoss(column.status())) {
      ++notes->chunks_damaged;
      continue;
    }
    if (!column.ok()) return column.status();
    Note(static_cast<engine::Resolution>(rows->Int(5)), rows->Int(3), rows->Int(4), query, notes);
    const ModelSize size = SizeOf(*sizes, IdOf(rows->Bytes(1)));
    builder->Take(*column, size.layers, size.heads);
  }
  return rows->status();
}

absl::StatusOr<engine::SeriesData> Reader::Series(const engine::SeriesQuery& query) {
  if (absl::Status status = CheckQuery(query); !status.ok()) return status;
  SeriesBuilder builder(query);
  engine::SeriesData data;
  const absl::Status status = InTransaction([&]() -> absl::Status {
    const absl::StatusOr<int64_t> number = NumberOf(query.run);
    if (!number.ok()) return number.status();
    const absl::StatusOr<int64_t> dropped =
        db_->Number("SELECT reports_dropped FROM runs WHERE number=" + std::to_string(*number));
    if (!dropped.ok()) return dropped.status();
    data.notes.reports_dropped = static_cast<uint64_t>(*dropped);
    const absl::Status chunks = SeriesOfChunks(*number, query, &builder, &data.notes);
    if (!chunks.ok()) return chunks;
    const absl::StatusOr<ModelSizes> sizes = SizesOf(db_.get(), *number);
    if (!sizes.ok()) return sizes.status();
    return ForEachTailReport(*number, [&](const model::AttemptId& attempt, const model::Report& report, int64_t) {
      const ModelSize size = SizeOf(*sizes, attempt);
      builder.Take(report, size.layers, size.heads);
      return true;
    });
  });
  if (!status.ok()) return status;
  absl::StatusOr<std::vector<engine::SeriesPoint>> points = builder.Points();
  if (!points.ok()) return points.status();
  data.points = query.points_max == 0 ? *std::move(points) : Decimate(*std::move(points), query.points_max);
  return data;
}

absl::Status Reader::ForEachTailReport(int64_t run, const TakeTail& take) {
  absl::StatusOr<Statement> rows = db_->Prepare("SELECT event FROM tail WHERE run=?1 ORDER BY id");
  if (!rows.ok()) return rows.status();
  engine::Event event;
  for (rows->Bind(run); rows->Step();) {
    if (!engine::Decode(rows->Bytes(0), &event)) continue;
    const auto* report = std::get_if<engine::ReportEvent>(&event.body);
    if (report == nullptr || report->report.sequence == 0) continue;
    if (!take(report->attempt, report->report, event.at.unix_ms)) break;
  }
  return rows->status();
}

// The next chunk that has something in it. Reports are counted through the whole run, so a cursor means the same
// whether what comes after it lies in the tail or, later, in a chunk, and whatever retention has done before it.
absl::Status Reader::PageOfChunks(int64_t run, const engine::ReportQuery& query, engine::ReportPage* page, bool* full) {
  absl::StatusOr<Statement> rows = db_->Prepare(
      "SELECT attempt, bytes, step_min, step_max, first, reports, tier FROM history JOIN chunks ON id=chunk "
      "WHERE history.run=?1 AND first > ?2 - ?3 AND first + reports > ?2 ORDER BY first");
  if (!rows.ok()) return rows.status();
  size_t passed = 0;
  for (rows->Bind(run, page->next.report, kChunkReportsMax); rows->Step();) {
    const auto first = static_cast<uint64_t>(rows->Int(4)), end = first + static_cast<uint64_t>(rows->Int(5));
    if (first > page->next.report) page->reports_lost += first - page->next.report;
    const uint64_t drop = std::max(first, page->next.report) - first;
    const bool outside = rows->Int(3) < query.from_step.value_or(rows->Int(3)) ||
                         rows->Int(2) > query.to_step.value_or(rows->Int(2));
    page->next.report = end;
    if (!outside) {
      ChunkContent content;
      const absl::Status status = UnpackChunk(rows->Bytes(1), &content);
      if (!status.ok() && !absl::IsDataLoss(status)) return status;
      if (!status.ok()) page->reports_lost += end - first - drop;
      for (size_t i = drop; status.ok() && i < content.reports.size(); ++i) {
        if (!InSteps(query, content.reports[i].step)) continue;
        page->reports.push_back(std::move(content.reports[i]));
        page->arrived_unix_ms.push_back(content.arrived_unix_ms[i]);
      }
    }
    page->attempt = IdOf(rows->Bytes(0));
    page->resolution = static_cast<engine::Resolution>(rows->Int(6));
    *full = !page->reports.empty() || ++passed == kChunksPassedMax;
    if (*full) return absl::OkStatus();
  }
  return rows->status();
}

absl::Status Reader::PageOfTail(int64_t run, const engine::ReportQuery& query, engine::ReportPage* page) {
  const absl::StatusOr<int64_t> before = db_->Number("SELECT reports FROM runs WHERE number=" + std::to_string(run));
  if (!before.ok()) return before.status();
  auto seen = static_cast<uint64_t>(*before);
  if (seen > page->next.report) page->reports_lost += seen - page->next.report;
  page->next.report = std::max(page->next.report, seen);
  page->resolution = engine::Resolution::kFull;
  page->end = true;
  return ForEachTailReport(run, [&](const model::AttemptId& attempt, const model::Report& report, int64_t arrived) {
    if (seen++ < page->next.report) return true;
    const bool wanted = InSteps(query, report.step);
    if (page->reports.size() == kChunkReportsMax || (wanted && !page->reports.empty() && attempt != page->attempt)) {
      page->end = false;
      return false;
    }
    page->next.report = seen;
    if (!wanted) return true;
    page->attempt = attempt;
    page->reports.push_back(report);
    page->arrived_unix_ms.push_back(arrived);
    return true;
  });
}

absl::StatusOr<engine::ReportPage> Reader::Reports(const engine::ReportQuery& query, const engine::ReportCursor& from) {
  engine::ReportPage page;
  page.next = from;
  const absl::Status status = InTransaction([&]() -> absl::Status {
    const absl::StatusOr<int64_t> number = NumberOf(query.run);
    if (!number.ok()) return number.status();
    page.run_number = static_cast<uint64_t>(*number);
    bool full = false;
    if (absl::Status chunks = PageOfChunks(*number, query, &page, &full); !chunks.ok() || full) return chunks;
    return PageOfTail(*number, query, &page);
  });
  if (!status.ok()) return status;
  return page;
}

absl::StatusOr<model::Hello> Reader::HelloOf(const std::string& run, const model::AttemptId& attempt) {
  model::Hello hello;
  const absl::Status status = InTransaction([&]() -> absl::Status {
    const absl::StatusOr<int64_t> number = NumberOf(run);
    if (!number.ok()) return number.status();
    absl::StatusOr<Statement> row = db_->Prepare("SELECT hello FROM attempts WHERE run=?1 AND attempt=?2");
    if (!row.ok()) return row.status();
    const std::string id(attempt.AsBytes());
    if (!row->Bind(*number, Blob{id}).Step())
      return row->status().ok() ? absl::NotFoundError("run " + run + " has no attempt " + attempt.ToHex())
                                : row->status();
    const std::string bytes = row->Bytes(0);
    base::ByteReader in(bytes);
    if (!base::LoadFrom(&in, &hello) || !in.AtEnd())
      return absl::DataLossError("the hello of attempt " + attempt.ToHex() + " of run " + run + " cannot be read");
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return hello;
}

absl::Status Reader::ForEachReport(const std::string& run, const TakeReport& take) {
  return InTransaction([&]() -> absl::Status {
    const absl::StatusOr<int64_t> number = NumberOf(run);
    if (!number.ok()) return number.status();
    absl::StatusOr<Statement> rows = db_->Prepare("SELECT attempt, bytes FROM chunks WHERE run=?1 ORDER BY id");
    if (!rows.ok()) return rows.status();
    ChunkContent content;
    for (rows->Bind(*number); rows->Step();) {
      if (absl::Status status = UnpackChunk(rows->Bytes(1), &content); !status.ok()) return status;
      const model::AttemptId attempt = IdOf(rows->Bytes(0));
      for (const model::Report& report : content.reports) take(attempt, report);
    }
    if (!rows->status().ok()) return rows->status();
    return ForEachTailReport(*number, [&take](const model::AttemptId& attempt, const model::Report& report, int64_t) {
      take(attempt, report);
      return true;
    });
  });
}

template <class T>
absl::StatusOr<std::vector<T>> Reader::Archived(const std::string& run, const std::string& table) {
  std::vector<T> values;
  const absl::Status status = InTransaction([&]() -> absl::Status {
    const absl::StatusOr<int64_t> number = NumberOf(run);
    if (!number.ok()) return number.status();
    absl::StatusOr<Statement> rows = db_->Prepare("SELECT bytes FROM " + table + " WHERE run=?1 ORDER BY number");
    if (!rows.ok()) return rows.status();
    for (rows->Bind(*number); rows->Step();) {
      const std::string bytes = rows->Bytes(0);
      base::ByteReader in(bytes);
      if (!base::LoadFrom(&in, &values.emplace_back()) || !in.AtEnd())
        return absl::DataLossError("a row of " + table + " of run " + run + " cannot be read");
    }
    return rows->status();
  });
  if (!status.ok()) return status;
  return values;
}

absl::StatusOr<std::vector<model::Order>> Reader::Orders(const std::string& run) {
  return Archived<model::Order>(run, "orders");
}
absl::StatusOr<std::vector<model::Ack>> Reader::Acks(const std::string& run) {
  return Archived<model::Ack>(run, "acks");
}

absl::Status Reader::VerifyAudit() {
  return InTransaction([&] { return store::VerifyAudit(db_.get()); });
}

}  // namespace gyrostat::store
