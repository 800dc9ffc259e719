#include "service/own_metrics.h"

namespace gyrostat::service {
namespace {

using Metrics = std::vector<telemetry::OwnMetric>;

void AppendEngine(const engine::Probe& p, Metrics* out) {
  out->push_back({"gyrostat_engine_events_total", "Events applied to runs.", &p.events_total, {}});
  out->push_back({"gyrostat_engine_reports_total", "Reports judged.", &p.reports_total, {}});
  out->push_back({"gyrostat_engine_reports_repeated_total",
                  "Reports seen before: acknowledged, not judged again.", &p.reports_repeated_total, {}});
  out->push_back({"gyrostat_engine_reports_refused_total", "Reports of a wrong shape or a foreign attempt.",
                  &p.reports_refused_total, {}});
  out->push_back({"gyrostat_engine_queue_full_total", "Events that found a shard's queue full and came again later.",
                  &p.queue_full_total, {}});
  out->push_back({"gyrostat_engine_journal_failures_total", "Events whose effects could not be made durable.",
                  &p.journal_failures_total, {}});
  out->push_back({"gyrostat_engine_orders_sent_total", "Orders handed to streams, again included.",
                  &p.orders_sent_total, {}});
}

void AppendRpc(const rpc::Probe& p, Metrics* out) {
  out->push_back({"gyrostat_rpc_streams", "Report streams that are open.", &p.streams_open, {}});
  out->push_back({"gyrostat_rpc_watchers", "Watch calls that are open.", &p.watchers_open, {}});
  out->push_back({"gyrostat_rpc_streams_total", "Report streams that were opened.", &p.streams_total, {}});
  out->push_back({"gyrostat_rpc_streams_refused_total", "Streams beyond the limit, without a hello, or with a bad one.",
                  &p.streams_refused_total, {}});
  out->push_back({"gyrostat_rpc_streams_replaced_total", "Streams that a newer one of the same attempt replaced.",
                  &p.streams_replaced_total, {}});
  out->push_back({"gyrostat_rpc_readers_cut_total", "Peers that did not read what was sent to them.",
                  &p.readers_cut_total, {}});
  out->push_back({"gyrostat_rpc_messages_received_total", "Messages from jobs.", &p.messages_received_total, {}});
  out->push_back({"gyrostat_rpc_received_bytes_total", "Bytes of messages from jobs.", &p.bytes_received_total, {}});
  out->push_back({"gyrostat_rpc_reports_refused_total", "Reports that were malformed or refused by the engine.",
                  &p.reports_refused_total, {}});
  out->push_back({"gyrostat_rpc_acks_refused_total", "Acks that were malformed or refused by the engine.",
                  &p.acks_refused_total, {}});
  out->push_back({"gyrostat_rpc_reads_paused_total", "Messages that waited because the engine's queue was full.",
                  &p.reads_paused_total, {}});
  out->push_back({"gyrostat_rpc_unknown_signals_total", "Signals of a newer client, skipped.",
                  &p.unknown_signals_total, {}});
  out->push_back({"gyrostat_rpc_orders_undelivered_total", "Orders without a stream; the next hello settles them.",
                  &p.orders_undelivered_total, {}});
  out->push_back({"gyrostat_rpc_history_refused_total", "Reads of history that found the queue full.",
                  &p.history_refused_total, {}});
}

void AppendStore(const store::Probe& p, Metrics* out) {
  out->push_back({"gyrostat_store_entries_total", "Journal entries written.", &p.entries_total, {}});
  out->push_back({"gyrostat_store_transactions_total", "Transactions that wrote them.", &p.transactions_total, {}});
  out->push_back({"gyrostat_store_failures_total", "Journal entries that could not be written.", &p.failures_total,
                  {}});
  out->push_back({"gyrostat_store_left_behind_total", "Failed entries that were given up for good.",
                  &p.left_behind_total, {}});
  out->push_back({"gyrostat_store_busy_seconds_total", "Time spent in transactions.", &p.busy_microseconds_total, {},
                  1e-6});
  out->push_back({"gyrostat_store_queue_entries", "Journal entries that wait to be written.", &p.queue_entries, {}});
  out->push_back({"gyrostat_store_size_bytes", "Size of the database file.", &p.size_bytes, {}});
  out->push_back({"gyrostat_store_history_bytes", "Size of the history of signals, all runs.", &p.history_bytes,
                  {}});
  out->push_back({"gyrostat_store_chunks_reduced_total", "Pieces of old history rewritten at a lower resolution.",
                  &p.chunks_reduced_total, {}});
  out->push_back({"gyrostat_store_reports_dropped_total",
                  "Reports dropped from the history because of age or a limit of size.", &p.reports_dropped_total, {}});
  out->push_back({"gyrostat_store_chunks_damaged_total", "Pieces of the history that retention found damaged.",
                  &p.chunks_damaged_total, {}});
  out->push_back({"gyrostat_store_damaged_reads_total", "Series read that passed over something damaged.",
                  &p.damaged_reads_total, {}});
  out->push_back({"gyrostat_store_retention_failures_total", "Reductions of old history that could not be written.",
                  &p.retention_failures_total, {}});
  out->push_back({"gyrostat_store_retention_seconds_total", "Time spent on reducing old history.",
                  &p.retention_microseconds_total, {}, 1e-6});
  out->push_back({"gyrostat_store_writable", "1; 0 from a failed transaction until one succeeds.", &p.writable, {}});
}

void AppendOutside(const Probes& p, Metrics* out) {
  out->push_back({"gyrostat_telemetry_scrapes_total", "Times that /metrics was rendered.", &p.telemetry.scrapes_total,
                  {}});
  out->push_back({"gyrostat_telemetry_series_dropped_total",
                  "Series left out of a scrape because of a cap, counted once per scrape.",
                  &p.telemetry.series_dropped_total, {}});
  out->push_back({"gyrostat_web_requests_total", "HTTP requests answered.", &p.web.requests_total, {}});
  out->push_back({"gyrostat_web_requests_refused_total", "HTTP requests answered with a status from 400 to 499.",
                  &p.web.requests_refused_total, {}});
  out->push_back({"gyrostat_web_connections_dropped_total", "HTTP connections closed unread: too many.",
                  &p.web.connections_dropped_total, {}});
  out->push_back({"gyrostat_web_request_timeouts_total", "HTTP requests not complete in time, or too large.",
                  &p.web.request_timeouts_total, {}});
  out->push_back({"gyrostat_web_event_streams", "Browsers that follow a run.", &p.web.event_streams_open, {}});
  out->push_back({"gyrostat_web_events_sent_total", "Events sent to browsers.", &p.web.events_sent_total, {}});
  out->push_back({"gyrostat_web_event_readers_cut_total", "Browsers cut off: they did not take what was sent.",
                  &p.web.event_readers_cut_total, {}});
  out->push_back({"gyrostat_web_rebinds_total", "Times that the HTTP port was lost and bound again.",
                  &p.web.rebinds_total, {}});
  out->push_back({"gyrostat_config_reloads_total", "Reloads of the configuration that took effect.",
                  &p.service.reloads_total, {}});
  out->push_back({"gyrostat_config_reload_failures_total", "Reloads refused because of a mistake in the file.",
                  &p.service.reload_failures_total, {}});
  out->push_back({"gyrostat_config_last_reload_successful", "0 while the file has a mistake and the old one is in use.",
                  &p.service.last_reload_successful, {}});
}

void AppendRemote(const telemetry::RemoteProbe& p, Metrics* out) {
  out->push_back({"gyrostat_telemetry_remote_samples_total", "Samples that the endpoint took.", &p.samples_total, {}});
  out->push_back({"gyrostat_telemetry_remote_requests_total", "Requests that the endpoint took.", &p.requests_total,
                  {}});
  out->push_back({"gyrostat_telemetry_remote_bytes_total", "Bytes of those requests, packed.", &p.bytes_total, {}});
  out->push_back({"gyrostat_telemetry_remote_retries_total", "Requests sent again.", &p.retries_total, {}});
  out->push_back({"gyrostat_telemetry_remote_samples_rejected_total",
                  "Samples dropped because the endpoint called their request no good.", &p.samples_rejected_total,
                  {}});
  out->push_back({"gyrostat_telemetry_remote_reports_lost_total",
                  "Reports dropped or damaged in the history before they were sent.", &p.reports_lost_total, {}});
  out->push_back({"gyrostat_telemetry_remote_reports_too_old_total",
                  "Reports passed over because they are older than remote_write.max_age_hours.",
                  &p.reports_too_old_total, {}});
  out->push_back({"gyrostat_telemetry_remote_reports_untimed_total",
                  "Reports passed over because an older gyrostatd kept no time for them.", &p.reports_untimed_total,
                  {}});
  out->push_back({"gyrostat_telemetry_remote_history_failures_total",
                  "Reads of the history or of a cursor that failed.", &p.history_failures_total, {}});
  out->push_back({"gyrostat_telemetry_remote_lag_seconds",
                  "How long ago the newest report that was sent came, while others of its run wait.",
                  &p.lag_milliseconds, {}, 1e-3});
  out->push_back({"gyrostat_telemetry_remote_failing", "1 while the endpoint takes nothing.", &p.failing, {}});
}

void AppendNotify(const notify::Probe& p, Metrics* out) {
  out->push_back({"gyrostat_notify_posts_total", "Messages that a webhook took.", &p.posts_total, {}});
  out->push_back({"gyrostat_notify_failures_total",
                  "Requests to a webhook without a success, the same message again included.", &p.failures_total, {}});
  out->push_back({"gyrostat_notify_rejected_total", "Messages given up because the webhook refuses them.",
                  &p.rejected_total, {}});
  out->push_back({"gyrostat_notify_dropped_total", "Notices dropped because the queue of a webhook was full.",
                  &p.dropped_total, {}});
  out->push_back({"gyrostat_notify_queue_notices", "Notices that wait for a webhook.", &p.queue_notices, {}});
  out->push_back({"gyrostat_notify_webhooks_failing", "Webhooks whose last request failed.", &p.webhooks_failing, {}});
}

}  // namespace

Metrics OwnMetrics(const Probes& probes) {
  Metrics metrics;
  AppendEngine(probes.engine, &metrics);
  AppendRpc(probes.rpc, &metrics);
  AppendStore(probes.store, &metrics);
  AppendOutside(probes, &metrics);
  AppendRemote(probes.remote, &metrics);
  AppendNotify(probes.notify, &metrics);
  return metrics;
}

std::string ListAllMetrics() {
  const engine::Probe engine;
  const rpc::Probe rpc;
  const store::Probe store;
  const telemetry::Probe telemetry;
  const web::Probe web;
  const telemetry::RemoteProbe remote;
  const notify::Probe notify;
  const Probe service;
  return telemetry::ListMetrics(OwnMetrics({engine, rpc, store, telemetry, web, remote, notify, service}));
}

}  // namespace gyrostat::service
