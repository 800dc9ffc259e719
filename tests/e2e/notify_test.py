"""Webhooks, end to end: a real gyrostatd, runs that go wrong, and receivers that take, refuse, hang, are away or come
back. What became durable is told, once, whatever is killed in between."""
import hashlib
import hmac
import http.server
import json
import os
import re
import signal
import subprocess
import textwrap
import threading
import time
from pathlib import Path

import pytest
import yaml

from gyrostatd import BIN, Daemon, wait_until
from watchers import free_port


class Webhook:
    """Answers as `answer(n)` says for the n-th request, n from 1: a status, and headers. `requests` are (monotonic
    time, path, headers, body); `taken` the JSON bodies that were answered with 2xx."""

    def __init__(self, answer=lambda n: (200, {}), port=0):
        self.requests, self.taken, self.held = [], [], threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(handler):
                body = handler.rfile.read(int(handler.headers["Content-Length"]))
                self.requests.append((time.monotonic(), handler.path, dict(handler.headers), body))
                status, headers = answer(len(self.requests))
                if status == "hang":
                    self.held.wait()
                    return
                if status < 300:
                    self.taken.append(json.loads(body))
                handler.send_response(status)
                for name, value in {"Content-Length": "0", **headers}.items():
                    handler.send_header(name, value)
                handler.end_headers()

            def log_message(self, *_):
                pass
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.held.set()
        self._server.shutdown()
        self._server.server_close()

    def ids(self, run=None):
        """Of all events that were taken, in order."""
        return [event["id"] for body in list(self.taken) if run in (None, body["run"]) for event in body["events"]]

    def events(self, kind, run):
        return [event for body in list(self.taken) if body["run"] == run for event in body["events"]
                if event["event"] == kind]


def configured(*webhooks, **keys):
    """Who is asked has the most time that may be given: asked again, it would be told twice."""
    webhooks = [{"timeout_ms": 60000, **webhook} for webhook in webhooks]
    return yaml.safe_dump({"notify": {"gather_ms": 100, **keys, "webhooks": webhooks}})


def load(daemon, run, scenario="spike", steps=300, *words):
    subprocess.run([BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", run, "--scenario", scenario, "--steps",
                    str(steps), *words], check=True, timeout=120, stdout=subprocess.DEVNULL)


def own(daemon, name):
    text = daemon.get("/metrics")[1]
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " "))


def journal(daemon, run, what):
    done = subprocess.run([BIN / "gyrostatctl", what, run, "--json", "--address", daemon.grpc], capture_output=True,
                          text=True, timeout=60, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def wanted(daemon, run):
    """What must have been told of a run that is over, by what the journal says."""
    ids = []
    for finding in journal(daemon, run, "findings"):
        ids.append(f"finding/{finding['id']}/finding_raised")
        if finding["step_end"] is not None:
            ids.append(f"finding/{finding['id']}/finding_resolved")
    return ids


def told_all(daemon, hook, run):
    """Until everything of the run was told; each once."""
    wait_until(lambda: set(wanted(daemon, run)) <= set(hook.ids(run)) and hook.events("run_ended", run),
               f"all of {run} is told")
    told = [each for each in hook.ids(run) if "worsened" not in each]
    assert len(told) == len(set(told)), "told twice"
    assert any(each.endswith("/finding_resolved") for each in told), "the spike's end is told"


def test_a_run_that_goes_wrong_is_told_in_every_form(tmp_path):
    (tmp_path / "key").write_text("k3y of the test\n")
    (tmp_path / "token").write_text("t0ken-of-the-test\n")
    with Webhook() as plain, Webhook() as slack, Webhook() as grafana:
        (tmp_path / "slack_url").write_text(slack.url + "/T0/s3cret-path\n")
        config = configured(
            {"name": "ops", "url": plain.url, "min_severity": "info", "hmac_key_file": str(tmp_path / "key")},
            {"name": "chat", "url_file": str(tmp_path / "slack_url"), "format": "slack"},
            {"name": "notes", "url": grafana.url, "format": "grafana", "token_file": str(tmp_path / "token")},
            page_url="https://gyrostat.example.org/")
        with Daemon(tmp_path, config=config) as daemon:
            load(daemon, "team:spiky.run")
            told_all(daemon, plain, "team:spiky.run")
            body = plain.taken[0]
            assert body["url"] == "https://gyrostat.example.org/#team%3Aspiky.run"
            raised = plain.events("finding_raised", "team:spiky.run")[0]["finding"]
            (same,) = [each for each in journal(daemon, "team:spiky.run", "findings") if each["id"] == raised["id"]]
            assert {key: raised[key] for key in ("detector", "signal", "step_begin", "layer")} == \
                {key: same[key] for key in ("detector", "signal", "step_begin", "layer")}
            for _, _, headers, raw in plain.requests:
                at = headers["X-Gyrostat-Timestamp"]
                assert abs(time.time() - int(at)) < 120
                signed = hmac.new(b"k3y of the test", at.encode() + b"." + raw, hashlib.sha256).hexdigest()
                assert headers["X-Gyrostat-Signature"] == "v1=" + signed
                assert headers["User-Agent"].startswith("gyrostatd/") and "Authorization" not in headers

            load(daemon, "bad", "runaway", 200)
            wait_until(lambda: plain.events("episode_opened", "bad"), "an episode with its diagnosis")
            episode = plain.events("episode_opened", "bad")[0]["episode"]
            assert episode["headline"] and episode["advice"]
            wait_until(lambda: any("run bad" in body["text"] for body in slack.taken), "Slack is told")
            assert slack.requests[0][1] == "/hook/T0/s3cret-path"
            assert all(block["type"] in ("section", "context") for body in slack.taken for block in body["blocks"])
            wait_until(lambda: any("run:bad" in body["tags"] for body in grafana.taken), "Grafana is told")
            assert grafana.requests[0][2]["Authorization"] == "Bearer t0ken-of-the-test"
            assert abs(grafana.taken[-1]["time"] / 1000 - time.time()) < 120

            wait_until(lambda: own(daemon, "gyrostat_notify_queue_notices") == 0, "the queues are empty")
            assert own(daemon, "gyrostat_notify_posts_total") == \
                len(plain.taken) + len(slack.taken) + len(grafana.taken)
            for name in ("failures", "rejected", "dropped"):
                assert own(daemon, f"gyrostat_notify_{name}_total") == 0
            everything = daemon.log() + daemon.get("/metrics")[1] + daemon.get("/")[1] + daemon.get("/api/runs")[1]
            for secret in ("k3y of", "t0ken-of", "s3cret-path"):
                assert secret not in everything


def test_a_webhook_that_was_away_gets_what_it_missed(tmp_path):
    port = free_port()
    config = configured({"name": "ops", "url": f"http://127.0.0.1:{port}/hook", "min_severity": "info"},
                        backoff_max_ms=1000)
    with Daemon(tmp_path, config=config) as daemon:
        load(daemon, "first")
        wait_until(lambda: own(daemon, "gyrostat_notify_webhooks_failing") == 1, "it is seen to be away")
        load(daemon, "second")
        assert own(daemon, "gyrostat_notify_queue_notices") > 0
        with Webhook(port=port) as hook:
            told_all(daemon, hook, "first")
            told_all(daemon, hook, "second")
            wait_until(lambda: own(daemon, "gyrostat_notify_webhooks_failing") == 0, "it is seen to be back")
            assert own(daemon, "gyrostat_notify_dropped_total") == 0
            assert daemon.log().count("a webhook takes nothing") == 1, "one line for an outage"


def test_a_server_that_asks_for_time_gets_it(tmp_path):
    with Webhook(lambda n: (503, {"Retry-After": "3"}) if n == 1 else (200, {})) as hook, \
            Daemon(tmp_path, config=configured({"name": "ops", "url": hook.url, "min_severity": "info"})) as daemon:
        load(daemon, "spiky")
        told_all(daemon, hook, "spiky")
        first, second = hook.requests[0][0], hook.requests[1][0]
        assert second - first >= 2.9
        assert own(daemon, "gyrostat_notify_failures_total") == 1


def test_a_killed_daemon_tells_the_rest_and_nothing_again(tmp_path):
    port = free_port()
    config = configured({"name": "ops", "url": f"http://127.0.0.1:{port}/hook", "min_severity": "info"},
                        backoff_max_ms=1000)
    with Daemon(tmp_path, config=config) as daemon:
        for round_number in range(3):
            load(daemon, f"killed-{round_number}")
            daemon.kill()  # Whatever its threads were about to do.
            daemon.start()
        with Webhook(port=port) as hook:
            for round_number in range(3):
                told_all(daemon, hook, f"killed-{round_number}")
            wait_until(lambda: own(daemon, "gyrostat_notify_queue_notices") == 0, "all is noted")
            before = hook.ids()
            daemon.kill()
            daemon.start()
            load(daemon, "after")
            told_all(daemon, hook, "after")
            assert hook.ids()[:len(before)] == before
            assert {each["run"] for each in hook.taken[len(before):]} <= {"after"}
            assert not set(hook.ids("after")) & set(before)
            told = [each for each in hook.ids() if "worsened" not in each]
            assert len(told) == len(set(told)), "nothing is told again"


def test_a_webhook_that_hangs_delays_nobody(tmp_path):
    with Webhook(lambda n: ("hang", {})) as stuck, Webhook() as other:
        config = configured({"name": "stuck", "url": stuck.url, "min_severity": "info"},
                            {"name": "other", "url": other.url, "min_severity": "info"})
        with Daemon(tmp_path, config=config) as daemon:
            load(daemon, "first")
            told_all(daemon, other, "first")
            wait_until(lambda: stuck.requests, "the other one is being asked")
            load(daemon, "second")
            told_all(daemon, other, "second")
            assert daemon.stop() == 0
            assert "not drained in time" not in daemon.log()
            stuck.held.set()
            # Another life tells the one that hung what it never took; here another server stands for it.
            with Webhook() as mended:
                daemon.config_path.write_text(configured({"name": "stuck", "url": mended.url, "min_severity": "info"}))
                daemon.start()
                told_all(daemon, mended, "first")
                told_all(daemon, mended, "second")


def test_a_refusal_is_given_up_and_a_reload_mends_it(tmp_path):
    with Webhook(lambda n: (404, {})) as wrong, Webhook() as right:
        elsewhere = Webhook(lambda n: (307, {"Location": right.url}))
        with elsewhere, Daemon(tmp_path, config=configured(
                {"name": "ops", "url": wrong.url, "min_severity": "info"},
                {"name": "moved", "url": elsewhere.url, "min_severity": "info"})) as daemon:
            load(daemon, "lost")
            wait_until(lambda: own(daemon, "gyrostat_notify_rejected_total") >= 2, "both are given up")
            wait_until(lambda: own(daemon, "gyrostat_notify_queue_notices") == 0, "nothing waits")
            assert own(daemon, "gyrostat_notify_webhooks_failing") == 2
            assert right.requests == [], "no redirect is followed"
            daemon.config_path.write_text(configured({"name": "ops", "url": right.url, "min_severity": "info"}))
            daemon.signal(signal.SIGHUP)
            wait_until(lambda: own(daemon, "gyrostat_config_reloads_total") >= 1, "the reload")
            load(daemon, "told")
            told_all(daemon, right, "told")
            assert right.ids("lost") == []


def test_a_storm_is_one_message(tmp_path):
    with Webhook() as hook, Daemon(tmp_path, config=configured(
            {"name": "ops", "url": hook.url, "min_severity": "info", "queue_max": 10000}, gather_ms=2000)) as daemon:
        begin = time.monotonic()
        load(daemon, "storm", "runaway", 200, "--layers", "32", "--heads", "32")
        told_all_of = wait_until(lambda: hook.taken and hook.events("run_ended", "storm") and hook.taken, "the storm")
        messages = [body for body in told_all_of if body["run"] == "storm"]
        events = sum(sum(body["counts"].values()) for body in messages)
        print(f"{events} events in {len(messages)} messages, {len(hook.requests[0][3])} bytes the first")
        # One for each time of gathering that it lasted, which is one or two unless the machine is slow.
        assert events >= 5 and len(messages) <= 1 + (hook.requests[-1][0] - begin) / 2


def test_the_readmes_example_is_valid(tmp_path):
    readme = (Path(os.environ["GYROSTAT_SOURCE_DIR"]) / "README.md").read_text()
    (example,) = re.findall(r"(?m)(?:^    .*\n)+", readme[readme.index("\n    notify:"):])[:1]
    (tmp_path / "g.yaml").write_text(textwrap.dedent(example))
    done = subprocess.run([BIN / "gyrostatd", "--check", "--config", tmp_path / "g.yaml"], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0 and "webhooks" in example, done.stderr


@pytest.mark.parametrize("status, code, said", [(200, 0, "ops: taken"), (403, 1, "ops: not taken: HTTP 403")])
def test_a_test_message_says_what_became_of_it(tmp_path, status, code, said):
    with Webhook(lambda n: (status, {})) as hook:
        (tmp_path / "g.yaml").write_text(configured({"name": "ops", "url": hook.url, "events": ["run_ended"]}))
        done = subprocess.run([BIN / "gyrostatd", "--test-notify", "--config", tmp_path / "g.yaml"],
                              capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout.strip()) == (code, said), done.stderr
        assert json.loads(hook.requests[0][3])["events"][0]["event"] == "test"
