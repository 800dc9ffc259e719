"""gyrostatd: the daemon's own health."""
from .build import AMBER, GREEN, NO_RUN, RED, Board, Query, lines, query_variable, selector, stat

ALL = selector('instance=~"$instance"', run=NO_RUN)


def grown(name):
    return f"sum by (instance) (rate(gyrostat_{name}_total{ALL}[$__rate_interval]))"


def grew(names):
    """Lines for counters that should stand still, one a counter."""
    return [Query(f"sum(increase(gyrostat_{name}_total{ALL}[$__rate_interval]))", legend) for name, legend in names]


def first_row():
    yes = ((None, RED), (1, GREEN))
    return [
        (4, stat("Answers", "Whether Prometheus can scrape it; the worst of the chosen ones.", f"min(up{ALL})",
                 steps=yes)),
        (4, stat("Records", "1; 0 while the journal takes nothing: then no order is sent either.",
                 f"min(gyrostat_store_writable{ALL})", steps=yes)),
        (4, stat("Configuration", "0 while the file has a mistake and the old one is in use.",
                 f"min(gyrostat_config_last_reload_successful{ALL})", steps=yes)),
        (4, stat("Open streams", "Jobs that are connected.", f"sum(gyrostat_rpc_streams{ALL})")),
        (4, stat("Journal queue", "Entries that wait to be written; the worst of the chosen ones.",
                 f"max(gyrostat_store_queue_entries{ALL})", steps=((None, GREEN), (1000, AMBER), (10000, RED)))),
        (4, stat("Database", "Size of the database file.", f"max(gyrostat_store_size_bytes{ALL})", "bytes")),
    ]


def reports():
    refused = [("rpc_reports_refused", "reports: malformed or refused"),
               ("rpc_acks_refused", "acks: malformed or refused"),
               ("engine_reports_refused", "reports: wrong shape or foreign attempt"),
               ("rpc_streams_refused", "streams: over the limit or bad hello"),
               ("rpc_history_refused", "history reads: queue full")]
    waits = [("rpc_reads_paused", "messages that waited"), ("engine_queue_full", "queue full"),
             ("rpc_readers_cut", "peers that do not read"), ("rpc_orders_undelivered", "orders without a stream"),
             ("rpc_streams_replaced", "streams replaced")]
    return [
        (8, [(8, lines("Reports judged", "By daemon.", [Query(grown("engine_reports"), "{{instance}}")], "cps")),
             (8, lines("Bytes received", "From jobs.", [Query(grown("rpc_received_bytes"), "{{instance}}")], "Bps")),
             (8, lines("Events and orders", "Applied to runs; handed to streams.",
                       [Query(f"sum(rate(gyrostat_engine_events_total{ALL}[$__rate_interval]))", "events"),
                        Query(f"sum(rate(gyrostat_engine_orders_sent_total{ALL}[$__rate_interval]))", "orders"),
                        Query(f"sum(rate(gyrostat_engine_reports_repeated_total{ALL}[$__rate_interval]))",
                              "reports seen before")], "cps"))]),
        (8, [(12, lines("Refused", "Should stay at 0: each says that a client is wrong, old or hostile.",
                        grew(refused))),
             (12, lines("Waits", "Back-pressure, and peers that do not keep up.", grew(waits)))]),
    ]


def journal():
    trouble = [("store_failures", "entries not written at once"), ("store_left_behind", "given up for good"),
               ("engine_journal_failures", "events not durable")]
    busy = f"sum by (instance) (rate(gyrostat_store_busy_seconds_total{ALL}[$__rate_interval]))"
    return [
        (8, [(8, lines("Time in transactions", "Share of the writer's time.", [Query(busy, "{{instance}}")],
                       "percentunit")),
             (8, lines("Entries", "Written, and the transactions that wrote them.",
                       [Query(f"sum(rate(gyrostat_store_entries_total{ALL}[$__rate_interval]))", "entries"),
                        Query(f"sum(rate(gyrostat_store_transactions_total{ALL}[$__rate_interval]))", "transactions")],
                       "cps")),
             (8, lines("Trouble", "Should stay at 0.", grew(trouble)))]),
    ]


def scrapes():
    trouble = [("web_requests_refused", "requests refused"), ("web_connections_dropped", "connections dropped"),
               ("web_request_timeouts", "requests too slow"), ("web_rebinds", "ports bound again"),
               ("telemetry_series_dropped", "series left out by a cap"), ("config_reload_failures", "reloads refused")]
    return [
        (8, [(8, lines("Scrape duration", "As Prometheus sees it.",
                       [Query(f"max by (instance) (scrape_duration_seconds{ALL})", "{{instance}}")], "s")),
             (8, lines("Samples", "In a scrape; a run has 2,000 at most unless configured otherwise.",
                       [Query(f"max by (instance) (scrape_samples_scraped{ALL})", "{{instance}}")])),
             (8, lines("Trouble at the HTTP port", "Should stay at 0.", grew(trouble)))]),
        (8, [(8, lines("Requests", "HTTP requests answered, scrapes among them.",
                       [Query(f"sum(rate(gyrostat_web_requests_total{ALL}[$__rate_interval]))", "requests"),
                        Query(f"sum(rate(gyrostat_telemetry_scrapes_total{ALL}[$__rate_interval]))", "scrapes")],
                       "cps")),
             (8, lines("Watchers", "Open watch calls: gyrostatctl watch, pages.",
                       [Query(f"sum by (instance) (gyrostat_rpc_watchers{ALL})", "{{instance}}")])),
             (8, lines("Versions", "What runs where.",
                       [Query(f"count by (version) (gyrostat_build_info{ALL})", "{{version}}")]))]),
    ]


INSTANCE = query_variable("instance", "Daemon", "Address that Prometheus scrapes.",
                          'label_values(gyrostat_build_info{job=~"$job"}, instance)')

DAEMON = Board(
    "gyrostat-daemon", "gyrostat / gyrostatd", "The daemon itself: does it answer, record and keep up?", [INSTANCE],
    [("Does it work?", [(4, first_row())]), ("Reports and orders", reports()), ("Journal", journal()),
     ("Scrapes and people", scrapes())],
    runbooks={"Answers": ["GyrostatDown"], "Records": ["GyrostatNotRecording"],
              "Configuration": ["GyrostatConfigRejected"], "Refused": ["GyrostatReportsRefused"],
              "Waits": ["GyrostatBehind"], "Trouble": ["GyrostatHistoryLost"], "Samples": ["GyrostatSeriesDropped"]})
