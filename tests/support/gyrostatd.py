"""Starts a real gyrostatd for a test and ends it again.

    with Daemon(tmp_path) as daemon:
        daemon.get("/healthz")

Everything waits on a condition with a deadline. The daemon's stderr is kept in `daemon.log_path` and shown when it
fails.
"""
import http.client
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

BIN = Path(os.environ.get("GYROSTAT_BIN", "build/dev/bin"))
DEADLINE_S = 120.0  # Only what hangs meets it, on however busy a machine.
READY = re.compile(r"^gyrostatd ready grpc=(\S+) http=(\S+)$")


def wait_until(condition, what, deadline_s=DEADLINE_S, pause_s=0.02):
    """Returns the first true value of condition(); fails after the deadline, naming `what`."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what}: not within {deadline_s:g} s"
        time.sleep(pause_s)


class Daemon:
    """One gyrostatd process over a data directory; free ports unless told otherwise."""

    def __init__(self, directory, args=(), config=None, ready=True, grpc_port=0):
        directory = Path(directory)
        self.data_dir = directory / "data"
        self.config_path = directory / "gyrostat.yaml" if config is not None else None
        if config is not None:
            self.config_path.write_text(config)
        self.log_path = directory / "gyrostatd.log"
        self.args = [str(a) for a in args]
        self.grpc_port = grpc_port
        self.grpc = self.http = None
        self.stdout_lines = []
        self.process = None
        self._wait_ready = ready

    def command(self):
        command = [str(BIN / "gyrostatd"), "--data-dir", str(self.data_dir),
                   "--grpc-listen", f"127.0.0.1:{self.grpc_port}", "--http-listen", "127.0.0.1:0"]
        if self.config_path:
            command += ["--config", str(self.config_path)]
        return command + self.args

    def start(self):
        self.grpc = self.http = None  # Of an earlier life.
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=log, text=True)
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()
        if self._wait_ready:
            wait_until(lambda: self.grpc or self.process.poll() is not None, "gyrostatd ready")
            assert self.grpc, f"gyrostatd exited with {self.process.returncode}:\n{self.log()}"
        return self

    def _read(self, process):
        for line in process.stdout:
            self.stdout_lines.append(line.rstrip("\n"))
            match = READY.match(line)
            if match:
                self.http = match.group(2)
                self.grpc = match.group(1)

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def get(self, path, method="GET", headers=None, raw=False):
        """(status, body as text or, raw, as bytes, headers) of one request."""
        connection = http.client.HTTPConnection(self.http, timeout=DEADLINE_S)
        try:
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            body = response.read()
            return response.status, body if raw else body.decode(), dict(response.getheaders())
        finally:
            connection.close()

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, deadline_s=DEADLINE_S):
        code = self.process.wait(timeout=deadline_s)
        self._reader.join(timeout=deadline_s)
        self.process.stdout.close()
        return code

    def stop(self):
        """SIGTERM, then the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        """SIGKILL: what a power cut looks like to the data directory."""
        self.process.kill()
        self.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.kill()
