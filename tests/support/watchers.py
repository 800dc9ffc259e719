"""Starts Debian's Prometheus and Alertmanager for a test, with the flags that dashboards/compose.yaml gives them, and a
receiver of webhooks. Loopback and free ports; whatever was started is ended by its process.

    with Prometheus(tmp_path, targets={"gyrostat": daemon.http}, rules=RULES) as prometheus:
        prometheus.query("up")
"""
import http.server
import json
import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

from gyrostatd import wait_until

DASHBOARDS = Path(os.environ["GYROSTAT_SOURCE_DIR"]) / "dashboards"


def free_port():
    """Free a moment ago; a server that finds it taken exits, and the test says so."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One process with an HTTP address. `flags` come on top of those of the service in compose.yaml."""

    def __init__(self, directory, service, program, ready, flags):
        self.address = f"127.0.0.1:{free_port()}"
        self.log_path = Path(directory) / f"{service}.log"
        command = yaml.safe_load((DASHBOARDS / "compose.yaml").read_text())["services"][service]["command"]
        self._flags = {**dict(each.split("=", 1) for each in command), "--web.listen-address": self.address, **flags}
        self._program, self._ready, self.process = program, ready, None

    def get(self, path, **query):
        """The JSON, or the text, of one answer."""
        url = f"http://{self.address}{path}" + ("?" + urllib.parse.urlencode(query) if query else "")
        with urllib.request.urlopen(url, timeout=120) as answer:
            text = answer.read().decode()
        return json.loads(text) if answer.headers["Content-Type"].startswith("application/json") else text

    def answers(self):
        assert self.process.poll() is None, f"{self._program} ended:\n{self.log_path.read_text()}"
        try:
            return bool(self.get(self._ready))
        except (urllib.error.URLError, ConnectionError):
            return False

    def __enter__(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([self._program, *(f"{k}={v}" for k, v in self._flags.items())],
                                            stdout=log, stderr=log, cwd=self.log_path.parent)
        wait_until(self.answers, f"{self._program} ready")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=120)


class Prometheus(Server):
    """Scrapes `targets` ({job: address}) every second, and whatever else `scrapes` says; judges `rules`."""

    def __init__(self, directory, targets, rules=None, alertmanager=None, scrapes=()):
        shipped = yaml.safe_load((DASHBOARDS / "prometheus.yaml").read_text())
        config = {
            "global": {**shipped["global"], "scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)] if rules else [],
            "scrape_configs": [{"job_name": job, "static_configs": [{"targets": [address]}]}
                               for job, address in targets.items()] + list(scrapes)}
        if alertmanager:
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
        path = Path(directory) / "prometheus.yaml"
        path.write_text(yaml.safe_dump(config))
        super().__init__(directory, "prometheus", "prometheus", "/-/ready", {
            "--config.file": path, "--storage.tsdb.path": Path(directory) / "tsdb",
            "--web.user-assets": DASHBOARDS / "runbooks"})

    def wait_scraped(self):
        """Until it has scraped gyrostatd once: it looks for them only some seconds after it is ready."""
        wait_until(lambda: self.query('up{job="gyrostat"} == 1'), "the first scrape")

    def query(self, expr):
        """The result of one query now: [(labels, value)]."""
        answer = self.get("/api/v1/query", query=expr)["data"]
        return [(each["metric"], float(each["value"][1])) for each in answer["result"]]

    def query_range(self, expr, start, end, step_s):
        """[(labels, [values])]."""
        answer = self.get("/api/v1/query_range", query=expr, start=start, end=end, step=step_s)["data"]
        return [(each["metric"], [float(value) for _, value in each["values"]]) for each in answer["result"]]

    def label_values(self, metric, label, start):
        return self.get(f"/api/v1/label/{label}/values", **{"match[]": metric, "start": start})["data"]


class Alertmanager(Server):
    def __init__(self, directory, config):
        path = Path(directory) / "alertmanager.yaml"
        path.write_text(yaml.safe_dump(config))
        super().__init__(directory, "alertmanager", "prometheus-alertmanager", "/-/ready", {
            "--config.file": path, "--storage.path": Path(directory) / "alertmanager"})


class Receiver:
    """Takes webhooks: `messages` are (Unix time, path, JSON)."""

    def __init__(self):
        self.messages = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(handler):
                body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                self.messages.append((time.time(), handler.path, body))
                handler.send_response(200)
                handler.end_headers()

            def log_message(self, *_):
                pass
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def alerts(self, path, name, status):
        """Alerts of one name and state that came to one path: [(Unix time, alert)]."""
        return [(at, alert) for at, where, body in list(self.messages) if where == path
                for alert in body["alerts"] if alert["labels"]["alertname"] == name and alert["status"] == status]
