"""Every query of dashboards/ against a real Prometheus that scrapes a real gyrostatd under load: each panel, variable,
annotation and rule returns data, or stands below with the reason why it cannot here."""
import contextlib
import json
import math
import re
import subprocess
import time

import pytest
import yaml

import committed
from gyrostatd import BIN, Daemon, wait_until
from watchers import Prometheus

# Place → why it returns nothing in this test. An entry that does return something is a fault: the list stays true.
NOTHING_WENT_WRONG = "nothing of the kind happens to these runs"
QUIET = {
    "rule GyrostatSpikeNotHealing": "takes 200 steps, in which the loss is said to diverge",
    "rule GyrostatRunSilent": "every run reports until the end",
    "rule GyrostatReplicasDiffer": "runs of one rank",
    "rule GyrostatRankOutlier": "runs of one rank",
    "rule GyrostatCriticalFinding": NOTHING_WENT_WRONG,
    "rule GyrostatInterventionFailed": NOTHING_WENT_WRONG,
    "rule GyrostatInterventionHarmful": NOTHING_WENT_WRONG,
    "rule GyrostatControlLoop": NOTHING_WENT_WRONG,
    "rule GyrostatNotRecording": "the disk takes everything",
    "rule GyrostatHistoryLost": "the disk takes everything",
    "rule GyrostatConfigRejected": "the configuration is right",
    "rule GyrostatBehind": "some hundred reports a second are no load",
    "rule GyrostatReportsRefused": "well-formed reports only",
    "rule GyrostatSeriesDropped": "no cap is reached",
    "rule GyrostatWebhookFailing": "no webhook is configured",
    "rule GyrostatNotificationsLost": "no webhook is configured",
}
# Findings that are here only until they get worse or heal: a scrape may see them, or miss them. And a daemon that gets
# no core for the one second that a scrape waits here.
PASSING = {"rule GyrostatLossNotReturning", "rule GyrostatNonFiniteOnce", "rule GyrostatLogitsOverTau",
           "rule GyrostatHeadroomLow", "rule GyrostatSpike", "rule GyrostatDown"}
# Run → what it does, steps a second. What an intervention brings about must not be over before the first scrapes: a
# counter that was never seen at 0 does not increase.
RUNS = {"waiting": ("runaway", 10), "acting": ("runaway", 10), "strained": ("strained", 50), "spike": ("spike", 25),
        "nonfinite": ("nonfinite", 25), "calm": ("calm", 25)}
CONFIG = "policy: {mode: advise, qk_clip: {tau: 30}}\n"
FINE_STEP_S = 1


def ctl(daemon, *words):
    done = subprocess.run([BIN / "gyrostatctl", *words, "--json", "--address", daemon.grpc], capture_output=True,
                          text=True, timeout=60, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Load:
    """The runs, until it ends."""

    def __init__(self, daemon):
        self._jobs = [subprocess.Popen(
            [BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", run, "--scenario", scenario,
             "--rate", str(rate), "--steps", "1000000", "--allow", "qk_clip"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for run, (scenario, rate) in RUNS.items()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for job in self._jobs:
            job.kill()
            job.wait()


def heads_job(address):
    """The scrape job for all heads that prometheus.yaml has as a comment, for layers 0 to 1 of the run that waits."""
    text = (committed.DASHBOARDS / "prometheus.yaml").read_text()
    (job,) = yaml.safe_load(re.sub(r"^ *# ", "", text[text.index("# - job_name: heads"):], flags=re.M))
    assert list(job["params"]) == ["run", "layers"]
    return {**job, "scrape_interval": "1s", "params": {"run": ["waiting"], "layers": ["0-1"]},
            "static_configs": [{"targets": [address]}]}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """A Prometheus that has watched the load until all that it brings about has happened; and since when."""
    directory = tmp_path_factory.mktemp("queries")
    with Daemon(directory, config=CONFIG) as daemon, \
            Prometheus(directory, {"gyrostat": daemon.http}, committed.RULES,
                       scrapes=[heads_job(daemon.http)]) as prometheus, \
            contextlib.ExitStack() as stack:
        prometheus.wait_scraped()
        since = time.time()
        stack.enter_context(Load(daemon))
        wait_until(lambda: any(each["run"] == "acting" for each in ctl(daemon, "runs")), "the run that acts")
        ctl(daemon, "mode", "acting", "act")
        for what in ('gyrostat_finding_active{run="strained",detector="headroom",severity="critical"} > 0',
                     'gyrostat_finding_active{run="waiting",detector="divergence",severity="critical"} > 0',
                     'gyrostat_intervention_outcomes_total{run="acting",outcome="effective"} > 0',
                     'gyrostat_interventions_total{run="waiting",state="proposed"} > 0',
                     'gyrostat_step{run="strained"} > 700'):
            wait_until(lambda: prometheus.query(what), what, deadline_s=300)
        yield prometheus, since


def filled_in(expr, run):
    """As Grafana would send it."""
    for name, value in (("$__rate_interval", "8s"), ("$job", "gyrostat"), ("$run", run),
                        ("$site", "residual"), ("$instance", ".+")):
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


def has_data(prometheus, place, since):
    """Whether a query returns a series with a finite value for one of the runs."""
    if place.kind == "variable":
        metric, label = place.expr.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        return bool(prometheus.label_values(filled_in(metric, "strained"), label, since))
    one_run = place.where.startswith("run.json")
    for run in RUNS if one_run else (".+",):
        found = prometheus.query_range(filled_in(place.expr, run), since, time.time(), FINE_STEP_S)
        if any(math.isfinite(value) for _, values in found for value in values):
            return True
    return False


def test_every_query_returns_data_or_is_said_why_not(prometheus):
    prometheus, since = prometheus
    places = committed.queries()
    assert {place.kind for place in places} == {"panel", "variable", "annotation", "rule"}
    assert set(QUIET) | PASSING <= {place.where for place in places}, "no reason for what is not there"
    empty = [place for place in places if not has_data(prometheus, place, since)]
    print(f"{len(places)} queries, {len(places) - len(empty)} with data")
    assert {place.where for place in empty} - set(QUIET) - PASSING == set(), "no data, and no reason why"
    assert set(QUIET) - {place.where for place in empty} == set(), "a reason, and yet data"


def test_what_a_quiet_rule_looks_at_is_there(prometheus):
    """So that a wrong name cannot hide behind a reason."""
    prometheus, _ = prometheus
    for place in committed.queries():
        if place.where in PASSING.union(QUIET):
            for metric, labels in committed.named(place.expr):
                selector = place.expr[place.expr.index(metric):]
                selector = selector[:selector.index("}") + 1] if selector[len(metric):][:1] == "{" else metric
                assert prometheus.query(selector), (place.where, selector)


def test_detectors_that_rules_name_exist(prometheus):
    prometheus, _ = prometheus
    known = {labels["detector"] for labels, _ in prometheus.query("count by (detector) (gyrostat_finding_active)")}
    assert len(known) > 20
    for rule in committed.rules():
        for names in re.findall(r'detector(?:=~|!~)"([a-z_|]+)"', rule["expr"]):
            assert set(names.split("|")) <= known, rule["alert"]


def test_all_heads_are_a_scrape_job_of_their_own(prometheus):
    prometheus, _ = prometheus
    heads = prometheus.query('gyrostat_head_attention_logit_max{job="heads"}')
    assert {(each["layer"], each["head"]) for each, _ in heads} == {(str(x), str(y)) for x in (0, 1) for y in range(8)}


def test_no_panel_draws_more_than_sixteen_lines(prometheus):
    """At one instant: over time the sixteen may change."""
    prometheus, _ = prometheus
    for name, board in committed.boards().items():
        for panel in committed.data_panels(board):
            if panel["type"] == "timeseries":
                lines = sum(len(prometheus.query(filled_in(target["expr"], "waiting"))) for target in panel["targets"])
                assert lines <= 16, f"{name}: {panel['title']}: {lines} lines"


def test_what_fires_is_written_without_a_mistake(prometheus):
    prometheus, _ = prometheus
    wait_until(lambda: prometheus.get("/api/v1/alerts")["data"]["alerts"], "alerts")
    groups = prometheus.get("/api/v1/rules")["data"]["groups"]
    assert [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")] == []
    for alert in prometheus.get("/api/v1/alerts")["data"]["alerts"]:
        text = json.dumps(alert["annotations"])
        assert "error" not in text and "<no value>" not in text, text
        page = alert["annotations"]["runbook_url"].rsplit("/", 1)[1]
        assert prometheus.get(f"/user/{page}").startswith(f"# {alert['labels']['alertname']}\n")
