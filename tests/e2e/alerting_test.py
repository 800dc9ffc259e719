"""The way of a page, end to end: a run diverges under a real gyrostatd; Debian's Prometheus and Alertmanager, with the
rules, routes and inhibition that dashboards/ commits, tell a webhook; and tell it again when it is over."""
import json
import subprocess
import urllib.request

import yaml

from gyrostatd import BIN, Daemon, wait_until
from watchers import DASHBOARDS, Alertmanager, Prometheus, Receiver

WAIT_S = 2        # What the rules wait here, where they wait minutes; the rest is as committed.
EVERY_S = 1       # Between two evaluations here.
GROUP_WAIT_S = 1


def fast_rules(directory):
    subprocess.run([DASHBOARDS / "generate", "--seconds", str(WAIT_S), "--out", directory], check=True,
                   capture_output=True)
    return directory / "alerts/gyrostat.rules.yaml"


def fast_routes(receiver):
    """The committed configuration with shorter waits, and the test's receiver in place of its own."""
    config = yaml.safe_load((DASHBOARDS / "alertmanager.yaml").read_text())
    (ours,) = config["route"]["routes"]
    for route in (ours, *ours["routes"]):
        route.update({"group_wait": f"{GROUP_WAIT_S}s", "group_interval": "1s"})
    for each in config["receivers"]:
        for hook in each.get("webhook_configs", []):
            hook["url"] = hook["url"].replace("127.0.0.1:9095", receiver.address)
    return config


def raw(prometheus, selector):
    """The instants, in seconds, of the samples of one series above 0."""
    found = prometheus.get("/api/v1/query", query=selector + "[10m]")["data"]["result"]
    return [at for series in found for at, value in series["values"] if float(value) > 0]


def test_a_diverging_run_pages_and_the_end_is_told(tmp_path):
    with Receiver() as receiver, Daemon(tmp_path, config="telemetry: {ended_ttl_s: 0}\n") as daemon, \
            Alertmanager(tmp_path, fast_routes(receiver)) as alertmanager, \
            Prometheus(tmp_path, {"gyrostat": daemon.http}, fast_rules(tmp_path), alertmanager.address) as prometheus:
        prometheus.wait_scraped()
        # Diverges at step 85, some three seconds from now; runs on until it is told to end.
        job = subprocess.Popen([BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", "bad", "--scenario",
                                "runaway", "--rate", "25", "--steps", "1000000"], stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: receiver.alerts("/pager", "GyrostatDiverging", "firing"), "the page")
            (at, page), *_ = receiver.alerts("/pager", "GyrostatDiverging", "firing")
            assert page["labels"]["run"] == "bad" and page["labels"]["severity"] == "critical"
            assert page["annotations"]["description"].startswith("Run bad: detector divergence has 1 open.")
            assert prometheus.get("/user/" + page["annotations"]["runbook_url"].rsplit("/", 1)[1])
            on_time(prometheus, at)
            assert receiver.alerts("/chat", "GyrostatDiverging", "firing") == [], "to the pager only"
            job.terminate()
            assert job.wait(timeout=120) == 0
            wait_until(lambda: receiver.alerts("/pager", "GyrostatDiverging", "resolved"), "the end is told")
            assert receiver.alerts("/pager", "GyrostatDiverging", "resolved")[0][0] > at
            assert prometheus.query("gyrostat_step") == [], "the run that ended has left"
        finally:
            job.kill()
            job.wait()


def on_time(prometheus, paged_at):
    """The rule fired no more evaluations after the finding than its wait demands. Counted, not timed: a machine that is
    busy evaluates late, and a page that is late by two evaluations is seen all the same."""
    found = raw(prometheus, 'gyrostat_finding_active{detector="divergence",severity="critical"}')
    alert = 'ALERTS{alertname="GyrostatDiverging",alertstate="%s"}'
    pending, firing = raw(prometheus, alert % "pending"), raw(prometheus, alert % "firing")
    bound_s = WAIT_S + GROUP_WAIT_S + 2 * EVERY_S
    print(f"from the finding's first scrape to firing {min(firing) - min(found):.1f} s, to the page "
          f"{paged_at - min(found):.1f} s; wait + group_wait + two evaluations: {bound_s} s")
    assert len(pending) <= WAIT_S // EVERY_S + 1
    assert min(found) <= min(pending) <= min(firing)


def post(url, document):
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=120).close()


def test_a_consequence_is_silent_while_its_cause_is_told(tmp_path):
    def alert(name, run, severity):
        return {"labels": {"alertname": name, "run": run, "job": "gyrostat", "severity": severity}}
    with Receiver() as receiver, Alertmanager(tmp_path, fast_routes(receiver)) as alertmanager:
        for alerts in ([alert("GyrostatDiverging", "a", "critical")],
                       [alert("GyrostatSpike", "a", "warning"), alert("GyrostatSpike", "b", "warning"),
                        alert("GyrostatWarningFinding", "a", "info")]):
            post(f"http://{alertmanager.address}/api/v2/alerts", alerts)
            wait_until(lambda: receiver.messages, "the cause is told")
        wait_until(lambda: receiver.alerts("/chat", "GyrostatSpike", "firing"), "the other run's spike is told")
        states = {(each["labels"]["alertname"], each["labels"]["run"]): each["status"]["state"]
                  for each in alertmanager.get("/api/v2/alerts")}
        assert states["GyrostatSpike", "a"] == "suppressed" and states["GyrostatSpike", "b"] == "active"
        told = {(path, alert["labels"]["alertname"], alert["labels"]["run"])
                for _, path, body in receiver.messages for alert in body["alerts"]}
        assert told == {("/pager", "GyrostatDiverging", "a"), ("/chat", "GyrostatSpike", "b")}
