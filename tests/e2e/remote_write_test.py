"""Every value of a run goes by remote write to a real VictoriaMetrics: what is asked there is what was reported, and an
endpoint or a daemon that was away leaves no gap and nothing twice."""
import http.server
import json
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from gyrostatd import BIN, Daemon, wait_until
from watchers import free_port

LAYERS, HEADS = 3, 5


class VictoriaMetrics:
    """Debian's, on a free port that it keeps when it is started again. Samples of one time are one sample, as its
    manual asks for where a sender may repeat itself."""

    def __init__(self, directory):
        self.directory = directory
        self.address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.address}/api/v1/write"
        self.process = None

    def get(self, path, **query):
        url = f"http://{self.address}{path}?" + urllib.parse.urlencode(query)
        with urllib.request.urlopen(url, timeout=120) as answer:
            return answer.read().decode()

    def answers(self):
        assert self.process.poll() is None, (self.directory / "victoria.log").read_text()
        try:
            return self.get("/health") == "OK"
        except (urllib.error.URLError, ConnectionError):
            return False

    def start(self):
        with open(self.directory / "victoria.log", "ab") as log:
            self.process = subprocess.Popen(
                ["victoria-metrics", f"-storageDataPath={self.directory / 'victoria'}",
                 f"-httpListenAddr={self.address}", "-dedup.minScrapeInterval=1ms", "-search.latencyOffset=0s",
                 "-memory.allowedBytes=256MB", "-search.disableCache"],
                stdout=log, stderr=log)
        wait_until(self.answers, "victoria-metrics ready")
        return self

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=120)

    def samples(self, selector):
        """{labels without the name, sorted: [(time in ms, value)]} of all that match."""
        self.get("/internal/force_flush")
        found = {}
        for line in self.get("/api/v1/export", **{"match[]": selector}).splitlines():
            series = json.loads(line)
            labels = tuple(sorted((k, v) for k, v in series["metric"].items() if k != "__name__"))
            found[labels] = list(zip(series["timestamps"], series["values"]))
        return found

    def count(self, selector):
        """What count_over_time says of an hour, over all series."""
        self.get("/internal/force_flush")
        answer = json.loads(self.get("/api/v1/query", query=f"sum(count_over_time({selector}[1h]))"))
        return int(float(answer["data"]["result"][0]["value"][1])) if answer["data"]["result"] else 0

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()


@pytest.fixture
def victoria(tmp_path):
    with VictoriaMetrics(tmp_path) as server:
        yield server


def configured(tmp_path, url):
    return Daemon(tmp_path, config=f"remote_write: {{url: '{url}', poll_ms: 100, backoff_max_ms: 1000}}\n")


def load(daemon, run, steps, *words):
    subprocess.run([BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", run, "--layers", str(LAYERS),
                    "--heads", str(HEADS), "--steps", str(steps), *words], check=True, timeout=120,
                   stdout=subprocess.DEVNULL)


def reported(daemon, run, signal, *words):
    done = subprocess.run([BIN / "gyrostatctl", "series", run, signal, *words, "--json", "--address", daemon.grpc],
                          capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line)["value"] for line in done.stdout.splitlines()]


def own(daemon, name):
    text = daemon.get("/metrics")[1]
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " "))


def arrived(victoria, run, steps):
    wait_until(lambda: victoria.count(f'gyrostat_step{{run="{run}"}}') >= steps, f"{steps} steps of {run}")


def same(victoria, daemon, run, metric, labels, signal, *words):
    """The one series of the metric with the labels has the values that were reported, in their order."""
    selector = ",".join(f'{name}="{value}"' for name, value in {"run": run, **labels}.items())
    (samples,) = victoria.samples(f"{metric}{{{selector}}}").values()
    times = [time_ms for time_ms, _ in samples]
    assert times == sorted(set(times))
    assert [value for _, value in samples] == pytest.approx(reported(daemon, run, signal, *words), rel=1e-9)


def test_what_is_asked_there_is_what_was_reported(tmp_path, victoria):
    with configured(tmp_path, victoria.url) as daemon:
        begin = time.time() * 1000
        load(daemon, "values", 300)
        arrived(victoria, "values", 300)
        end = time.time() * 1000
        same(victoria, daemon, "values", "gyrostat_loss", {}, "loss")
        same(victoria, daemon, "values", "gyrostat_grad_norm", {}, "grad_norm")
        same(victoria, daemon, "values", "gyrostat_layer_grad_norm", {"layer": "1"}, "layer_grad_norm", "--layer", "1")
        for layer in range(LAYERS):
            for head in range(HEADS):
                same(victoria, daemon, "values", "gyrostat_head_attention_logit_max",
                     {"layer": str(layer), "head": str(head)}, "attn_logit_max", "--layer", str(layer), "--head",
                     str(head))
        (steps,) = victoria.samples('gyrostat_step{run="values"}').values()
        assert [value for _, value in steps] == reported_steps(daemon, "values")
        assert begin - 1000 <= steps[0][0] and steps[-1][0] <= end + 1000 + 300, "times are those of arrival"
        assert own(daemon, "gyrostat_telemetry_remote_samples_rejected_total") == 0
        wait_until(lambda: own(daemon, "gyrostat_telemetry_remote_lag_seconds") == 0, "no lag is left")


def reported_steps(daemon, run):
    done = subprocess.run([BIN / "gyrostatctl", "series", run, "loss", "--json", "--address", daemon.grpc],
                          capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line)["step"] for line in done.stdout.splitlines()]


def test_an_endpoint_that_was_away_gets_what_it_missed(tmp_path, victoria):
    with configured(tmp_path, victoria.url) as daemon:
        load(daemon, "before", 50)
        arrived(victoria, "before", 50)
        victoria.stop()
        load(daemon, "gap", 200)
        wait_until(lambda: own(daemon, "gyrostat_telemetry_remote_failing") == 1, "the endpoint is seen to be away")
        victoria.start()
        arrived(victoria, "gap", 200)
        same(victoria, daemon, "gap", "gyrostat_loss", {}, "loss")
        assert victoria.count('gyrostat_loss{run="gap"}') == 200
        assert victoria.count('gyrostat_loss{run="before"}') == 50
        assert own(daemon, "gyrostat_telemetry_remote_failing") == 0


def test_a_killed_daemon_leaves_no_gap_and_nothing_twice(tmp_path, victoria):
    with configured(tmp_path, victoria.url) as daemon:
        for round_number in range(4):
            load(daemon, f"killed-{round_number}", 150, "--no-bye")
            # At any moment: what is on its way is sent again, and is the same.
            wait_until(lambda: victoria.count(f'gyrostat_step{{run="killed-{round_number}"}}') > 0, "some steps")
            daemon.kill()
            daemon.start()
        for round_number in range(4):
            run = f"killed-{round_number}"
            arrived(victoria, run, 150)
            same(victoria, daemon, run, "gyrostat_loss", {}, "loss")
            assert victoria.count(f'gyrostat_step{{run="{run}"}}') == 150
            heads = victoria.count(f'gyrostat_head_attention_logit_max{{run="{run}"}}')
            assert heads == 150 * LAYERS * HEADS


class Slow(http.server.BaseHTTPRequestHandler):
    """Takes a second for each request and then has no time for it."""

    def do_POST(self):
        time.sleep(1)
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_under_pressure_slows_nothing_down(tmp_path, status):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.asked, server.status = 0, status
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with configured(tmp_path, f"http://127.0.0.1:{server.server_port}/api/v1/write") as daemon:
            load(daemon, "pressed", 500)
            assert len(reported(daemon, "pressed", "loss")) == 500, "every report was acknowledged meanwhile"
            wait_until(lambda: server.asked >= 2, "it is asked again")
            assert own(daemon, "gyrostat_telemetry_remote_samples_total") == 0
            assert own(daemon, "gyrostat_telemetry_remote_samples_rejected_total") == 0
            assert daemon.stop() == 0, "and a stop does not wait for it"
    finally:
        server.shutdown()
