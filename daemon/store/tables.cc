#include "store/tables.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "store/chunk.h"

namespace gyrostat::store {
namespace {

template <class T>
std::string Bytes(const T& value) {
  base::ByteWriter out;
  base::SaveTo(&out, value);
  return out.Take();
}

Blob Id(const model::Id128& id) { return {id.AsBytes()}; }

std::string Hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

// Runs one after the other until one fails.
template <class... Tasks>
absl::Status InOrder(Tasks&&... tasks) {
  absl::Status status;
  (void)((status = tasks(), status.ok()) && ...);
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tables>> Tables::Open(Db* db) {
  std::unique_ptr<Tables> tables(new Tables(db));
  if (absl::Status status = tables->Prepare(); !status.ok()) return status;
  return tables;
}

absl::Status Tables::Prepare() {
  const std::pair<Statement*, const char*> all[] = {
      {&select_run_, "SELECT mode FROM runs WHERE number=?1"},
      {&rename_run_, "UPDATE runs SET name=name||'.unreadable-'||number WHERE name=?1"},
      {&insert_run_, "INSERT INTO runs(number, name, mode, began_unix_ms) VALUES(?1, ?2, ?3, ?4)"},
      {&update_mode_, "UPDATE runs SET mode=?2 WHERE number=?1"},
      {&upsert_attempt_,
       "INSERT INTO attempts(run, attempt, began_unix_ms, layers, heads, hello) VALUES(?1, ?2, ?3, ?4, ?5, ?6) "
       "ON CONFLICT(run, attempt) DO UPDATE SET ended_unix_ms=NULL, ended_reason=NULL, layers=?4, heads=?5, hello=?6"},
      {&end_attempt_, "UPDATE attempts SET ended_unix_ms=?3, ended_reason=?4 WHERE run=?1 AND attempt=?2"},
      {&upsert_finding_,
       "INSERT INTO findings(run, id, attempt, key, detector, severity, signal, layer, head, rank, step_begin, "
       "step_detected, step_end, healed, value, expected, message, recommend, episode) "
       "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19) "
       "ON CONFLICT(run, id) DO UPDATE SET severity=?6, signal=?7, layer=?8, head=?9, rank=?10, step_begin=?11, "
       "step_detected=?12, step_end=?13, healed=?14, value=?15, expected=?16, message=?17, recommend=?18, episode=?19"},
      {&upsert_episode_,
       "INSERT INTO episodes(run, id, attempt, closed, findings, cause, severity, step_begin, step_end, healed, "
       "detector, signal, layer, head, rank, first_step, common_mode, recommend, headline, advice, likely, ranked, "
       "evidence) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, "
       "?21, ?22, ?23) ON CONFLICT(run, id) DO UPDATE SET closed=?4, findings=?5, cause=?6, severity=?7, "
       "step_begin=?8, step_end=?9, healed=?10, detector=?11, signal=?12, layer=?13, head=?14, rank=?15, "
       "first_step=?16, common_mode=?17, recommend=?18, headline=?19, advice=?20, likely=?21, ranked=?22, "
       "evidence=?23"},
      {&join_episode_, "UPDATE findings SET episode=?3 WHERE run=?1 AND id=?2"},
      {&insert_decision_,
       "INSERT INTO decisions(run, unix_ms, step, kind, acted, reason) VALUES(?1, ?2, ?3, ?4, ?5, ?6)"},
      {&select_intervention_, "SELECT state, outcome FROM interventions WHERE run=?1 AND id=?2"},
      {&upsert_intervention_,
       "INSERT INTO interventions(run, id, attempt, kind, state, outcome, mode, reason, author, step_proposed, "
       "step_applied, orders, orders_applied, heads, median_delay_boundaries) "
       "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) "
       "ON CONFLICT(run, id) DO UPDATE SET state=?5, outcome=?6, mode=?7, reason=?8, author=?9, step_proposed=?10, "
       "step_applied=?11, orders=?12, orders_applied=?13, heads=?14, median_delay_boundaries=?15"},
      {&insert_order_,  // An order that is sent again under its id is there already.
       "INSERT OR IGNORE INTO orders(run, order_id, intent, unix_ms, basis, expires_boundary, bytes) "
       "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)"},
      {&insert_ack_,
       "INSERT INTO acks(run, order_id, unix_ms, outcome, boundary, bytes) VALUES(?1, ?2, ?3, ?4, ?5, ?6)"},
      {&last_hash_, "SELECT hash FROM audit ORDER BY id DESC LIMIT 1"},
      {&insert_audit_,
       "INSERT INTO audit(id, run, unix_ms, mono_ms, action, subject, author, detail, hash) "
       "VALUES((SELECT coalesce(max(id), 0) + 1 FROM audit), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"},
      {&insert_event_, "INSERT INTO tail(run, event) VALUES(?1, ?2)"},
      {&select_events_, "SELECT event FROM tail WHERE run=?1 ORDER BY id"},
      {&delete_events_, "DELETE FROM tail WHERE run=?1"},
      {&upsert_snapshot_, "INSERT INTO snapshots(run, bytes) VALUES(?1, ?2) ON CONFLICT(run) DO UPDATE SET bytes=?2"},
      {&upsert_mode_limit_,
       "INSERT INTO mode_limit(id, mode, author, reason) VALUES(1, ?1, ?2, ?3) "
       "ON CONFLICT(id) DO UPDATE SET mode=?1, author=?2, reason=?3"},
      {&insert_chunk_,
       "INSERT INTO chunks(run, attempt, first_sequence, last_sequence, step_min, step_max, bytes) "
       "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)"},
      {&insert_place_,
       "INSERT INTO history(chunk, run, tier, first, reports, size, unix_ms) "
       "SELECT last_insert_rowid(), number, ?2, reports, ?3, ?4, ?5 FROM runs WHERE number=?1"},
      {&count_reports_, "UPDATE runs SET reports=reports + ?2 WHERE number=?1"},
  };
  for (const auto& [statement, sql] : all) {
    absl::StatusOr<Statement> prepared = db_->Prepare(sql);
    if (!prepared.ok()) return prepared.status();
    *statement = *std::move(prepared);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Tables::HasRun(uint64_t number) {
  const bool has = select_run_.Bind(number).Step();
  select_run_.Restart();
  if (!select_run_.status().ok()) return select_run_.status();
  return has;
}

absl::Status Tables::EnsureRun(const engine::JournalEntry& entry) {
  const bool has = select_run_.Bind(entry.run_number).Step();
  const auto mode = has ? static_cast<model::Mode>(select_run_.Int(0)) : entry.mode;
  select_run_.Restart();
  if (!select_run_.status().ok()) return select_run_.status();
  if (has) return mode == entry.mode ? absl::OkStatus() : update_mode_.Run(entry.run_number, entry.mode);
  return InOrder([&] { return rename_run_.Run(entry.run); },
                 [&] { return insert_run_.Run(entry.run_number, entry.run, entry.mode, entry.at.unix_ms); });
}

absl::Status Tables::WriteRows(const engine::JournalEntry& entry) {
  absl::Status status = WriteAttempt(entry);
  for (const model::Finding& finding : entry.findings)
    if (status.ok()) status = WriteFinding(entry, finding);
  for (const engine::EpisodeChange& change : entry.episodes)
    if (status.ok()) status = WriteEpisode(entry, change);
  for (const model::Decision& d : entry.decisions)
    if (status.ok())
      status = insert_decision_.Run(entry.run_number, entry.at.unix_ms, d.step, d.kind, d.acted, d.reason);
  if (status.ok() && entry.audit)
    status = WriteAudit(entry, entry.audit->action, entry.audit->subject, entry.audit->author, entry.audit->reason);
  for (const model::Intervention& intervention : entry.interventions)
    if (status.ok()) status = WriteIntervention(entry, intervention);
  for (const model::Order& order : entry.orders)
    if (status.ok()) status = WriteOrder(entry, order);
  if (status.ok() && entry.ack) {
    const model::Ack& ack = *entry.ack;
    const std::string bytes = Bytes(ack);
    status = insert_ack_.Run(entry.run_number, Id(ack.order_id), entry.at.unix_ms, ack.outcome, ack.boundary,
                             Blob{bytes});
  }
  return status;
}

absl::Status Tables::WriteAttempt(const engine::JournalEntry& entry) {
  absl::Status status;
  if (!entry.ended_reason.empty())
    status = end_attempt_.Run(entry.run_number, Id(entry.ended_attempt), entry.at.unix_ms, entry.ended_reason);
  if (!status.ok() || !entry.hello) return status;
  const model::Hello& hello = *entry.hello;
  const std::string bytes = Bytes(hello);
  return upsert_attempt_.Run(entry.run_number, Id(hello.attempt), entry.at.unix_ms, hello.model.layers,
                             hello.model.heads, Blob{bytes});
}

absl::Status Tables::WriteFinding(const engine::JournalEntry& entry, const model::Finding& f) {
  return upsert_finding_.Run(entry.run_number, f.id, Id(entry.attempt), f.key, f.detector, f.severity, f.signal,
                             f.layer, f.head, f.rank, f.step_begin, f.step_detected, f.step_end, f.healed, f.value,
                             f.expected, f.message, f.recommend,
                             f.episode == 0 ? std::nullopt : std::optional(f.episode));
}

absl::Status Tables::WriteEpisode(const engine::JournalEntry& entry, const engine::EpisodeChange& change) {
  const diagnose::Diagnosis& d = change.diagnosis;
  const std::string ranked = Bytes(d.ranked), evidence = Bytes(d.evidence);
  absl::Status status = upsert_episode_.Run(
      entry.run_number, d.episode, Id(entry.attempt), d.closed, d.findings, d.ranked.front().cause, d.severity,
      d.step_begin, d.step_end, d.healed, d.detector, d.signal, d.layer, d.head, d.rank, d.first_step, d.common_mode,
      d.recommend, d.headline, d.advice, d.likely, Blob{ranked}, Blob{evidence});
  for (const uint64_t finding : change.joined)
    if (status.ok()) status = join_episode_.Run(entry.run_number, finding, d.episode);
  return status;
}

absl::Status Tables::WriteIntervention(const engine::JournalEntry& entry, const model::Intervention& i) {
  const bool known = select_intervention_.Bind(entry.run_number, i.id).Step();
  const bool same = known && static_cast<model::InterventionState>(select_intervention_.Int(0)) == i.state &&
                    select_intervention_.Optional<model::Outcome>(1) == i.outcome;
  select_intervention_.Restart();
  if (!select_intervention_.status().ok()) return select_intervention_.status();
  absl::Status status = upsert_intervention_.Run(
      entry.run_number, i.id, Id(entry.attempt), i.kind, i.state, i.outcome, i.mode, i.reason, i.author,
      i.step_proposed, i.step_applied, i.orders, i.orders_applied, i.heads, i.median_delay_boundaries);
  if (!status.ok() || same) return status;
  std::string detail = std::string(model::Token(i.kind)) + " " + model::Token(i.state);
  if (i.outcome) detail += std::string(", ") + model::Token(*i.outcome);
  return WriteAudit(entry, "intervention", i.id, i.author, detail + ": " + i.reason);
}

absl::Status Tables::WriteOrder(const engine::JournalEntry& entry, const model::Order& order) {
  const std::string bytes = Bytes(order);
  absl::Status status = insert_order_.Run(entry.run_number, Id(order.id), order.intent_id, entry.at.unix_ms,
                                          order.basis, order.expires_boundary, Blob{bytes});
  if (!status.ok()) return status;
  return WriteAudit(entry, "order", order.id.ToHex(), "policy",
                    order.intent_id + ": " + model::Token(order.kind) + " " + model::Token(order.where) + ", " +
                        std::to_string(order.entries.size()) + " heads, basis " + std::to_string(order.basis) +
                        ", expires " + std::to_string(order.expires_boundary) + ", sha256 " + Hex(Sha256(bytes)));
}

absl::Status Tables::WriteAudit(const engine::JournalEntry& entry, std::string action, std::string subject,
                                std::string author, std::string detail) {
  const std::string before = last_hash_.Bind().Step() ? last_hash_.Bytes(0) : "";
  last_hash_.Restart();
  if (!last_hash_.status().ok()) return last_hash_.status();
  const AuditRow row{entry.run,          entry.at.unix_ms,  entry.at.mono_ms, std::move(action),
                     std::move(subject), std::move(author), std::move(detail)};
  const std::string hash = ChainHash(before, row);
  return insert_audit_.Run(row.run, row.unix_ms, row.mono_ms, row.action, row.subject, row.author, row.detail,
                           Blob{hash});
}

absl::Status Tables::WriteModeLimit(const engine::JournalEntry& entry) {
  const engine::ModeWord& word = *entry.mode_limit;
  return InOrder([&] { return upsert_mode_limit_.Run(word.mode, word.author, word.reason); },
                 [&] {
                   return WriteAudit(entry, entry.audit->action, entry.audit->subject, entry.audit->author,
                                     entry.audit->reason);
                 });
}

absl::Status Tables::WriteEvent(uint64_t run, const std::string& event) { return insert_event_.Run(run, Blob{event}); }

absl::Status Tables::WriteSnapshot(uint64_t run, const std::string& snapshot) {
  return InOrder([&] { return WriteChunks(run); }, [&] { return delete_events_.Run(run); },
                 [&] { return upsert_snapshot_.Run(run, Blob{snapshot}); });
}

absl::Status Tables::WriteChunks(uint64_t run) {
  std::vector<model::Report> reports;
  std::vector<int64_t> arrived;
  model::AttemptId attempt;
  const auto flush = [&]() -> absl::Status {
    if (reports.empty()) return absl::OkStatus();
    const auto range = std::ranges::minmax_element(reports, {}, &model::Report::step);
    const std::string bytes = PackChunk(reports, arrived);
    const absl::Status status = InOrder(
        [&] {
          return insert_chunk_.Run(run, Id(attempt), reports.front().sequence, reports.back().sequence, range.min->step,
                                   range.max->step, Blob{bytes});
        },
        [&] {
          return insert_place_.Run(run, engine::Resolution::kFull, reports.size(), bytes.size(), arrived.back());
        },
        [&] { return count_reports_.Run(run, reports.size()); });
    reports.clear();
    arrived.clear();
    return status;
  };
  engine::Event event;
  absl::Status status;
  for (select_events_.Bind(run); status.ok() && select_events_.Step();) {
    if (!engine::Decode(select_events_.Bytes(0), &event)) continue;  // Another version's: its replay has said so.
    auto* report = std::get_if<engine::ReportEvent>(&event.body);
    if (report == nullptr || report->report.sequence == 0) continue;
    if (report->attempt != attempt || reports.size() == kChunkReportsMax) status = flush();
    attempt = report->attempt;
    reports.push_back(std::move(report->report));
    arrived.push_back(event.at.unix_ms);
  }
  select_events_.Restart();
  return InOrder([&] { return status; }, [&] { return select_events_.status(); }, flush);
}

}  // namespace gyrostat::store
