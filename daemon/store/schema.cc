#include "store/schema.h"

#include <cstdint>
#include <iterator>

namespace gyrostat::store {
namespace {

// "gyro": says in the file's header whose it is.
constexpr int64_t kApplicationId = 0x6779726f;

// kMigrations[v] leads from version v to v + 1. One that has been released is never changed.
// Enumerators are stored as their numbers (model/*.h), ids of 128 bits as 16 bytes, times as Unix milliseconds.
constexpr const char* kMigrations[] = {
    R"sql(
CREATE TABLE runs(
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  mode INTEGER NOT NULL,
  began_unix_ms INTEGER NOT NULL);

CREATE TABLE attempts(
  run INTEGER NOT NULL REFERENCES runs,
  attempt BLOB NOT NULL,
  began_unix_ms INTEGER NOT NULL,
  ended_unix_ms INTEGER,
  ended_reason TEXT,
  layers INTEGER NOT NULL,
  heads INTEGER NOT NULL,
  hello BLOB NOT NULL,              -- model::Hello, by its Fields.
  PRIMARY KEY(run, attempt));

CREATE TABLE findings(
  run INTEGER NOT NULL REFERENCES runs,
  id INTEGER NOT NULL,
  attempt BLOB NOT NULL,            -- In which it began.
  key INTEGER NOT NULL,
  detector TEXT NOT NULL,
  severity INTEGER NOT NULL,
  signal INTEGER NOT NULL,
  layer INTEGER, head INTEGER, rank INTEGER,
  step_begin INTEGER NOT NULL,
  step_detected INTEGER NOT NULL,
  step_end INTEGER,
  healed INTEGER,
  value REAL, expected REAL,        -- NULL: NaN.
  message TEXT NOT NULL,
  recommend INTEGER,
  PRIMARY KEY(run, id));

CREATE TABLE decisions(
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES runs,
  unix_ms INTEGER NOT NULL,
  step INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  acted INTEGER NOT NULL,
  reason TEXT NOT NULL);
CREATE INDEX decisions_by_run ON decisions(run);

CREATE TABLE interventions(
  number INTEGER PRIMARY KEY,       -- In order of their first mention.
  run INTEGER NOT NULL REFERENCES runs,
  id TEXT NOT NULL,
  attempt BLOB NOT NULL,            -- In which it was proposed.
  kind INTEGER NOT NULL,
  state INTEGER NOT NULL,
  outcome INTEGER,
  mode INTEGER NOT NULL,
  reason TEXT NOT NULL,
  author TEXT NOT NULL,
  step_proposed INTEGER NOT NULL,
  step_applied INTEGER,
  orders INTEGER NOT NULL,
  orders_applied INTEGER NOT NULL,
  heads INTEGER NOT NULL,
  median_delay_boundaries REAL,
  UNIQUE(run, id));

CREATE TABLE orders(
  number INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES runs,
  order_id BLOB NOT NULL,
  intent TEXT NOT NULL,
  unix_ms INTEGER NOT NULL,         -- When first sent.
  basis INTEGER NOT NULL,
  expires_boundary INTEGER NOT NULL,
  bytes BLOB NOT NULL,              -- model::Order, by its Fields.
  UNIQUE(run, order_id));

CREATE TABLE acks(
  number INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES runs,
  order_id BLOB NOT NULL,
  unix_ms INTEGER NOT NULL,
  outcome INTEGER NOT NULL,
  boundary INTEGER NOT NULL,
  bytes BLOB NOT NULL);             -- model::Ack, by its Fields.
CREATE INDEX acks_by_run ON acks(run);

CREATE TABLE snapshots(
  run INTEGER PRIMARY KEY REFERENCES runs,
  bytes BLOB NOT NULL);             -- engine::Run::Save.

CREATE TABLE tail(
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES runs,
  event BLOB NOT NULL);             -- engine::Encode. All events since the run's snapshot.
CREATE INDEX tail_by_run ON tail(run);

CREATE TABLE chunks(
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES runs,
  attempt BLOB NOT NULL,
  first_sequence INTEGER NOT NULL,
  last_sequence INTEGER NOT NULL,
  step_min INTEGER NOT NULL,
  step_max INTEGER NOT NULL,
  bytes BLOB NOT NULL);             -- store/chunk.h.
CREATE INDEX chunks_by_run ON chunks(run, step_min, step_max);

CREATE TABLE audit(
  id INTEGER PRIMARY KEY,
  run TEXT NOT NULL,
  unix_ms INTEGER NOT NULL,
  mono_ms INTEGER NOT NULL,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  author TEXT NOT NULL,
  detail TEXT NOT NULL,
  hash BLOB NOT NULL);              -- store/audit.h.
CREATE TRIGGER audit_is_final BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_stays BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
)sql",
    R"sql(
CREATE TABLE mode_limit(             -- Of runs to come (engine/mode_limit.h). At most one row.
  id INTEGER PRIMARY KEY CHECK(id = 1),
  mode INTEGER NOT NULL,
  author TEXT NOT NULL,
  reason TEXT NOT NULL);
)sql",
    R"sql(
CREATE TABLE episodes(
  run INTEGER NOT NULL REFERENCES runs,
  id INTEGER NOT NULL,
  attempt BLOB NOT NULL,            -- In which it began.
  closed INTEGER NOT NULL,
  findings INTEGER NOT NULL,        -- How many conditions; findings.episode names them.
  cause INTEGER NOT NULL,           -- The likeliest.
  severity INTEGER NOT NULL,
  step_begin INTEGER NOT NULL,
  step_end INTEGER,
  healed INTEGER,
  detector TEXT NOT NULL,           -- Of the first mover, with the five below.
  signal INTEGER NOT NULL,
  layer INTEGER, head INTEGER, rank INTEGER,
  first_step INTEGER NOT NULL,
  common_mode INTEGER NOT NULL,
  recommend INTEGER,
  headline TEXT NOT NULL,
  advice TEXT NOT NULL,
  likely TEXT NOT NULL,
  ranked BLOB NOT NULL,             -- diagnose::Candidate each, by its Fields.
  evidence BLOB NOT NULL,           -- Sentences.
  PRIMARY KEY(run, id));
ALTER TABLE findings ADD COLUMN episode INTEGER;  -- NULL: it belongs to none.
)sql",
    // Chunks themselves stay as they are: gigabytes are not written again for what is said of them. That a chunk of
    // before holds fewer reports than its sequence numbers span makes `first` too large by some, and harms nothing.
    R"sql(
ALTER TABLE runs ADD COLUMN reports INTEGER NOT NULL DEFAULT 0;          -- That became chunks, in all.
ALTER TABLE runs ADD COLUMN reports_dropped INTEGER NOT NULL DEFAULT 0;  -- Of those, by retention.
CREATE TABLE history(               -- What is known of a chunk without opening it.
  chunk INTEGER PRIMARY KEY REFERENCES chunks,
  run INTEGER NOT NULL REFERENCES runs,
  tier INTEGER NOT NULL,            -- engine::Resolution.
  first INTEGER NOT NULL,           -- How many reports of the run lie before it.
  reports INTEGER NOT NULL,
  size INTEGER NOT NULL,            -- Bytes.
  unix_ms INTEGER NOT NULL,         -- When its newest report came.
  damaged INTEGER NOT NULL DEFAULT 0);
INSERT INTO history(chunk, run, tier, first, reports, size, unix_ms)
  SELECT id, run, 0, sum(n) OVER (PARTITION BY run ORDER BY id) - n, n, size, began FROM (
    SELECT chunks.id, chunks.run, min(max(last_sequence - first_sequence + 1, 1), 64) AS n, length(bytes) AS size,
      coalesce(ended_unix_ms, attempts.began_unix_ms, runs.began_unix_ms) AS began
    FROM chunks JOIN runs ON runs.number=chunks.run
    LEFT JOIN attempts ON attempts.run=chunks.run AND attempts.attempt=chunks.attempt);
UPDATE runs SET reports=coalesce((SELECT max(first + reports) FROM history WHERE history.run=runs.number), 0);
CREATE UNIQUE INDEX history_by_place ON history(run, first);
CREATE INDEX history_by_tier ON history(run, tier, first);
)sql",
};
constexpr int64_t kVersion = std::size(kMigrations);

absl::Status Check(const std::string& path, Db* db, int64_t* version) {
  const absl::StatusOr<int64_t> application = db->Number("PRAGMA application_id");
  if (!application.ok()) return application.status();
  const absl::StatusOr<int64_t> found = db->Number("PRAGMA user_version");
  if (!found.ok()) return found.status();
  const absl::StatusOr<int64_t> tables = db->Number("SELECT count(*) FROM sqlite_schema");
  if (!tables.ok()) return tables.status();
  if (*application != kApplicationId && *tables > 0)
    return absl::FailedPreconditionError(path + " is a database, but not one of gyrostat's");
  if (*found > kVersion)
    return absl::FailedPreconditionError(path + " has schema version " + std::to_string(*found) + ", made by a newer " +
                                         "gyrostatd; this one reads up to " + std::to_string(kVersion));
  *version = *found;
  return absl::OkStatus();
}

}  // namespace

absl::Status Migrate(const std::string& path, Db* db) {
  int64_t version = 0;
  if (absl::Status status = Check(path, db, &version); !status.ok()) return status;
  // Takes effect on an empty file only. Reports of tens of kilobytes are most of what is written.
  absl::Status status = db->Exec("PRAGMA page_size=8192; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;");
  if (!status.ok() || version == kVersion) return status;
  status = db->Exec("BEGIN IMMEDIATE");
  for (; version < kVersion && status.ok(); ++version) status = db->Exec(kMigrations[version]);
  if (status.ok())
    status = db->Exec("PRAGMA application_id=" + std::to_string(kApplicationId) +
                      "; PRAGMA user_version=" + std::to_string(kVersion) + "; COMMIT");
  return status;
}

}  // namespace gyrostat::store
