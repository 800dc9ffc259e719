"""Which alerts there are: one row each, with an example of series that fire it and of series that must not.

The judgement is the daemon's: rules look at its findings, not at raw values a second time, so a threshold lives in one
place. `wait` is Prometheus's `for`, in seconds; `keep` its keep_firing_for, against flapping.
"""
from dataclasses import dataclass

CRITICAL, WARNING, INFO = "critical", "warning", "info"
# Detectors with a rule of their own; what the others find, GyrostatCriticalFinding and GyrostatWarningFinding page.
NAMED = ("attn_logit|divergence|grad_spike|headroom|loss_spike|nonfinite|policy|rank_outlier|silence|spike_score")


@dataclass
class Rule:
    name: str
    expr: str
    severity: str
    wait: int
    summary: str      # One sentence without values.
    description: str  # With them.
    fires: dict       # {series: values} in promtool's notation, one value a minute.
    quiet: dict       # The same, of a case near it that must not fire.
    keep: int = 300


def finding(detector, severity):
    return f'max by (job, run, detector) (gyrostat_finding_active{{detector=~"{detector}",severity=~"{severity}"}}) > 0'


def active(detector, severity, values="1x20"):
    return {f'gyrostat_finding_active{{job="gyrostat",run="r",detector="{detector}",severity="{severity}"}}': values}


def grew(counter, window, by="job, run", above=0):
    return f"sum by ({by}) (increase({counter}[{window}])) > {above}"


def counter(name, labels, values):
    return {f'{name}{{job="gyrostat",{labels}}}': values}


SHOW = " `gyrostatctl findings {{ $labels.run }}` says it in words."


def found(name, detectors, severity, level, wait, summary, fires, quiet):
    """A rule on findings of some detectors. `fires` and `quiet` are (detector, severity) or series."""
    def series(of):
        return of if isinstance(of, dict) else active(*of)
    return Rule(name, finding(detectors, severity), level, wait, summary,
                "Run {{ $labels.run }}: detector {{ $labels.detector }} has {{ $value }} open." + SHOW,
                series(fires), series(quiet))


RUN_RULES = [
    found("GyrostatDiverging", "divergence", CRITICAL, CRITICAL, 60, "The loss diverges and does not come back.",
          ("divergence", "critical"), ("divergence", "warning")),
    found("GyrostatLossNotReturning", "divergence", WARNING, WARNING, 120,
          "The loss has left its course and has not come back yet.", ("divergence", "warning"), ("divergence", "info")),
    found("GyrostatNonFinite", "nonfinite", CRITICAL, CRITICAL, 0, "NaN or infinity, and it stays.",
          ("nonfinite", "critical"), ("nonfinite", "warning")),
    # A finding of one step is over before a scrape sees it open; that it began stays counted.
    Rule("GyrostatNonFiniteOnce",
         grew('gyrostat_findings_total{detector="nonfinite",severity="warning"}', "5m"), WARNING, 0,
         "NaN or infinity in some steps.",
         "Run {{ $labels.run }} had NaN or infinity in some steps of the last five minutes." + SHOW,
         counter("gyrostat_findings_total", 'run="r",detector="nonfinite",severity="warning"', "0x5 1x15"),
         counter("gyrostat_findings_total", 'run="r",detector="nonfinite",severity="info"', "0x5 1x15")),
    found("GyrostatLogitsExploding", "attn_logit", CRITICAL, CRITICAL, 60, "Attention logits run away without bound.",
          ("attn_logit", "critical"), ("attn_logit", "warning")),
    found("GyrostatLogitsOverTau", "attn_logit", WARNING, WARNING, 120, "Attention logits stay over tau.",
          ("attn_logit", "warning"), active("attn_logit", "warning", "1 1 0x18")),
    Rule("GyrostatLogitsForecast",
         'max by (job, run) (predict_linear(gyrostat_attention_logit_top{slot="1"}[15m], 3600)) > 1000'
         ' and max by (job, run) (gyrostat_attention_logit_top{slot="1"}) > 50', WARNING, 300,
         "At their growth the attention logits pass 1,000 within the hour.",
         "Run {{ $labels.run }}: the worst head would be at {{ $value | humanize }} in an hour.",
         counter("gyrostat_attention_logit_top", 'run="r",slot="1"', "10+20x30"),
         counter("gyrostat_attention_logit_top", 'run="r",slot="1"', "60+1x30")),
    found("GyrostatOverflowNear", "headroom", CRITICAL, CRITICAL, 0, "The residual stream is about to overflow fp16.",
          ("headroom", "critical"), ("headroom", "warning")),
    found("GyrostatHeadroomLow", "headroom", WARNING, WARNING, 120, "The residual stream grows towards fp16's end.",
          ("headroom", "warning"), ("headroom", "info")),
    found("GyrostatSpikeNotHealing", "loss_spike|grad_spike", CRITICAL, CRITICAL, 60, "A spike does not heal.",
          ("loss_spike", "critical"), ("loss_spike", "warning")),
    found("GyrostatSpike", "loss_spike|grad_spike", WARNING, WARNING, 120,
          "A spike of loss or gradient norm lasts longer than noise.", ("grad_spike", "warning"),
          ("grad_spike", "info")),
    Rule("GyrostatSpikeScoreHigh",
         'max by (job, run, signal) (max_over_time(gyrostat_spike_score_percent[5m])) > 0.4'
         f' and on (job, run) {finding("spike_score", "warning|critical")}', WARNING, 300,
         "Too many steps are outliers.",
         "Run {{ $labels.run }}: {{ $value }} % of the recent steps are outliers of {{ $labels.signal }}.",
         {**counter("gyrostat_spike_score_percent", 'run="r",signal="loss"', "0.6x20"),
          **active("spike_score", "warning")},
         counter("gyrostat_spike_score_percent", 'run="r",signal="loss"', "0.6x20")),
    found("GyrostatRunSilent", "silence", "warning|critical", WARNING, 60,
          "A run stopped reporting without a good-bye.",
          ("silence", "warning"), active("silence", "warning", "0x20")),
    found("GyrostatReplicasDiffer", "rank_outlier", CRITICAL, CRITICAL, 60, "The ranks hold different weights.",
          ("rank_outlier", "critical"), ("rank_outlier", "warning")),
    found("GyrostatRankOutlier", "rank_outlier", WARNING, WARNING, 60, "One rank disagrees with the others.",
          ("rank_outlier", "warning"), ("rank_outlier", "info")),
    found("GyrostatCriticalFinding", ".+", CRITICAL, CRITICAL, 60, "Something else is critically wrong with a run.",
          ("warmup", "critical"), ("divergence", "critical")),
    found("GyrostatWarningFinding", ".+", WARNING, INFO, 600, "A detector has warned for ten minutes.",
          ("grad_growth", "warning"), ("loss_spike", "warning")),
]
for rule in RUN_RULES[-2:]:
    rule.expr = rule.expr.replace('detector=~".+"', f'detector!~"{NAMED}"')

INTERVENTION_RULES = [
    Rule("GyrostatInterventionWaiting",
         'sum by (job, run, kind) (increase(gyrostat_interventions_total{state="proposed"}[30m]))'
         ' - sum by (job, run, kind) (increase(gyrostat_interventions_total{state=~"approved|rejected"}[30m])) > 0.5',
         WARNING, 60, "A proposed intervention waits for an answer.",
         "Run {{ $labels.run }}: a {{ $labels.kind }} was proposed in the last half hour and nobody answered. "
         "`gyrostatctl interventions {{ $labels.run }}`, then `gyrostatctl approve ID` or "
         "`gyrostatctl reject ID --reason …`.",
         {**counter("gyrostat_interventions_total", 'run="r",kind="qk_clip",state="proposed"', "0 1x20"),
          **counter("gyrostat_interventions_total", 'run="r",kind="qk_clip",state="approved"', "0x21")},
         {**counter("gyrostat_interventions_total", 'run="r",kind="qk_clip",state="proposed"', "0 1x20"),
          **counter("gyrostat_interventions_total", 'run="r",kind="qk_clip",state="approved"', "0 1x20")}, keep=0),
    Rule("GyrostatInterventionFailed",
         grew('gyrostat_interventions_total{state=~"refused|foreign|lost"}', "15m", "job, run, kind, state"), CRITICAL,
         0, "An intervention was not done.",
         "Run {{ $labels.run }}: a {{ $labels.kind }} ended {{ $labels.state }}.",
         counter("gyrostat_interventions_total", 'run="r",kind="qk_clip",state="lost"', "0 0 1x18"),
         counter("gyrostat_interventions_total", 'run="r",kind="qk_clip",state="applied"', "0 0 1x18")),
    Rule("GyrostatInterventionHarmful",
         grew('gyrostat_intervention_outcomes_total{outcome="harmful"}', "1h", "job, run, kind"), CRITICAL, 0,
         "An intervention made it worse.", "Run {{ $labels.run }}: a {{ $labels.kind }} was judged harmful.",
         counter("gyrostat_intervention_outcomes_total", 'run="r",kind="qk_clip",outcome="harmful"', "0 0 1x18"),
         counter("gyrostat_intervention_outcomes_total", 'run="r",kind="qk_clip",outcome="effective"', "0 0 1x18")),
    found("GyrostatControlLoop", "policy", "warning|critical", WARNING, 60,
          "The control loop itself has trouble: late orders, a tug of war, a kind disabled, an order half done.",
          ("policy", "warning"), ("policy", "info")),
    Rule("GyrostatReportsDropped", grew("gyrostat_reports_dropped_total", "10m") +
         " and on (job, run) sum by (job, run) (increase(gyrostat_reports_dropped_total[10m]))"
         " > 0.01 * sum by (job, run) (increase(gyrostat_reports_total[10m]))", WARNING, 300,
         "A client drops reports.",
         "Run {{ $labels.run }}: {{ $value | humanize }} reports were dropped in ten minutes, over one in a hundred.",
         {**counter("gyrostat_reports_dropped_total", 'run="r"', "0+5x30"),
          **counter("gyrostat_reports_total", 'run="r"', "0+60x30")},
         {**counter("gyrostat_reports_dropped_total", 'run="r"', "0+0.1x30"),
          **counter("gyrostat_reports_total", 'run="r"', "0+60x30")}),
]


def own(name, values):
    return {f'{name}{{job="gyrostat",instance="d"}}': values}


DAEMON_RULES = [
    Rule("GyrostatDown", 'min by (job, instance) (up{job=~".*gyrostat.*"}) == 0 or absent(up{job=~".*gyrostat.*"})',
         CRITICAL, 300, "gyrostatd cannot be scraped.",
         "{{ $labels.instance }} has not answered for five minutes: no run of it is watched.",
         own("up", "1 0x20"), own("up", "1 0 0 1x18"), keep=0),
    Rule("GyrostatNotRecording", "min by (job, instance) (gyrostat_store_writable) == 0", CRITICAL, 60,
         "gyrostatd cannot write its journal.",
         "{{ $labels.instance }}: nothing is recorded and no order is sent.",
         own("gyrostat_store_writable", "1 0x20"), own("gyrostat_store_writable", "1x20")),
    Rule("GyrostatHistoryLost",
         grew("gyrostat_store_left_behind_total", "15m", "job, instance"), CRITICAL, 0,
         "Journal entries were given up.",
         "{{ $labels.instance }} lost about {{ $value | humanize }} journal entries for good.",
         own("gyrostat_store_left_behind_total", "0 0 3x18"), own("gyrostat_store_failures_total", "0 0 3x18")),
    Rule("GyrostatConfigRejected", "min by (job, instance) (gyrostat_config_last_reload_successful) == 0", WARNING, 300,
         "The configuration file has a mistake; the old one is in use.",
         "{{ $labels.instance }}: `gyrostatctl check-config FILE` names it.",
         own("gyrostat_config_last_reload_successful", "1 0x20"),
         own("gyrostat_config_last_reload_successful", "1x20"), keep=0),
    Rule("GyrostatBehind", grew("gyrostat_rpc_reads_paused_total", "5m", "job, instance"), WARNING, 600,
         "gyrostatd does not keep up with the reports.",
         "{{ $labels.instance }}: {{ $value | humanize }} messages had to wait in five minutes.",
         own("gyrostat_rpc_reads_paused_total", "0+10x30"), own("gyrostat_rpc_reads_paused_total", "0 10x30")),
    Rule("GyrostatReportsRefused",
         grew("gyrostat_rpc_reports_refused_total", "10m", "job, instance"), WARNING, 300, "gyrostatd refuses reports.",
         "{{ $labels.instance }}: about {{ $value | humanize }} reports were refused in ten minutes.",
         own("gyrostat_rpc_reports_refused_total", "0+1x30"), own("gyrostat_rpc_reports_refused_total", "0x30")),
    Rule("GyrostatSeriesDropped", grew("gyrostat_telemetry_series_dropped_total", "15m", "job, instance"), INFO, 300,
         "A cap leaves series out of /metrics.",
         "{{ $labels.instance }}: raise telemetry.series_per_run_max or series_total_max, or look at fewer runs.",
         own("gyrostat_telemetry_series_dropped_total", "0+100x30"),
         own("gyrostat_telemetry_series_dropped_total", "100x30")),
    Rule("GyrostatWebhookFailing", "max by (job, instance) (gyrostat_notify_webhooks_failing) > 0", WARNING, 600,
         "A webhook takes no notifications.",
         "{{ $labels.instance }}: {{ $value }} webhooks failed for ten minutes; the daemon's log names them.",
         own("gyrostat_notify_webhooks_failing", "0 1x20"), own("gyrostat_notify_webhooks_failing", "0 1x5 0x20"),
         keep=0),
    Rule("GyrostatNotificationsLost",
         grew("gyrostat_notify_dropped_total", "15m", "job, instance") + " or "
         + grew("gyrostat_notify_rejected_total", "15m", "job, instance"), WARNING, 0,
         "Notifications were given up.",
         "{{ $labels.instance }}: about {{ $value | humanize }} notices were dropped or messages refused.",
         own("gyrostat_notify_rejected_total", "0 0 3x18"), own("gyrostat_notify_failures_total", "0 0 3x18")),
]

GROUPS = {"gyrostat-runs": RUN_RULES, "gyrostat-interventions": INTERVENTION_RULES, "gyrostat-daemon": DAEMON_RULES}
