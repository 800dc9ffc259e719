"""Series, bytes and CPU of a scrape, and the acknowledgement's delay beside scrapers. See ./run.

Gates: series, bytes and CPU of a scrape; its CPU over that of a report of the same run, which moves little with the
machine; and the 99th percentile of the acknowledgement's delay beside scrapers over that without, each block of reports
against its neighbour. The daemon is one process for all blocks, and the two kinds take turns (ABBA), so that whatever
else the machine does falls on both.

A scrape and a report share one lock, the board's (daemon/engine/board.h), for as long as a pointer a run is copied; all
else of a scrape works on published copies. So a report may wait for a scrape's CPU, where cores are few, and for
nothing else: what the daemon's threads waited for a core is printed for both (schedstat).
"""
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from gyrostatd import BIN, Daemon, wait_until

LAYERS = HEADS = 128
SERIES_MAX, BYTES_MAX, CPU_MS_MAX = 2000, 200_000, 20
SCRAPE_OVER_REPORT_MAX = 5  # Measured: 1 to 2.
SCRAPERS, EVERY_S, SLOW_S = 20, 1.0, 6
REPORTS, RATE = 400, 50  # Of a block, and a second.
P99_RATIO_MAX = 1.5  # Median over the pairs of blocks; on an idle machine, 1 to 1.1.


def cpu_s(process):
    """CPU that a process and its threads have used, to the nanosecond: Linux names its clock after the pid."""
    return time.clock_gettime((~process.pid << 3) | 2)


def load(daemon, run, steps, *words):
    """Reports of everything there is a metric for; what the load generator says of it."""
    done = subprocess.run([BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", run, "--scenario", "strained",
                           "--layers", str(LAYERS), "--heads", str(HEADS), "--steps", str(steps), "--no-bye", *words],
                          capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


def cost(daemon):
    """(series of the run, bytes of a scrape, CPU-ms of a scrape, of one of all heads, of a report)."""
    load(daemon, "run", 200)
    before = cpu_s(daemon.process)
    load(daemon, "run", 1000)  # Another attempt of the same run.
    report_ms = cpu_s(daemon.process) - before  # Of a thousand, hence milliseconds.

    def scrape_ms(path, times):
        daemon.get(path)
        before = cpu_s(daemon.process)
        for _ in range(times):
            daemon.get(path)
        return (cpu_s(daemon.process) - before) / times * 1e3
    text = daemon.get("/metrics")[1]
    series = sum('run="run"' in line for line in text.splitlines())
    return series, len(text), scrape_ms("/metrics", 100), scrape_ms("/metrics/heads?run=run", 20), report_ms


class Scrapers:
    """Twenty, one scrape a second each, spread over it; the first takes its answer a byte a second."""

    def __init__(self, address):
        self._host, _, port = address.rpartition(":")
        self._port, self._end = int(port), threading.Event()
        self._threads = [threading.Thread(target=self._slow if i == 0 else self._scrape, args=(i,))
                         for i in range(SCRAPERS)]
        self.scrapes = self.slow_bytes = 0

    def _ask(self, buffer=None):
        peer = socket.socket()
        if buffer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)  # Else the kernel takes the answer for us.
        peer.settimeout(30)
        peer.connect((self._host, self._port))
        peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return peer

    def _scrape(self, number):
        self._end.wait(EVERY_S * number / SCRAPERS)
        while not self._end.wait(EVERY_S):
            with self._ask() as peer:
                while peer.recv(65536):
                    pass
            self.scrapes += 1

    def _slow(self, _):
        while not self._end.is_set():
            with self._ask(buffer=1) as peer:
                for _ in range(SLOW_S):  # By then the server has given up, and the kernel does not tell.
                    if self._end.wait(1):
                        break
                    self.slow_bytes += len(peer.recv(1))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        for thread in self._threads:
            thread.join()


def waited_s(process):
    """What the process's threads have waited for a core, all together."""
    total = 0
    for path in Path(f"/proc/{process.pid}/task").iterdir():
        try:
            total += int((path / "schedstat").read_text().split()[1])
        except OSError:
            pass  # A thread that has ended since.
    return total / 1e9


def block(daemon, run):
    """(p50, p99, CPU-ms a report, ms waited for a core a report) of one client's stream."""
    cpu, waited = cpu_s(daemon.process), waited_s(daemon.process)
    said = load(daemon, run, REPORTS, "--rate", str(RATE))
    return (said["acknowledged_p50_ms"], said["acknowledged_p99_ms"], (cpu_s(daemon.process) - cpu) / REPORTS * 1e3,
            (waited_s(daemon.process) - waited) / REPORTS * 1e3)


def beside_scrapers(daemon, pairs):
    """Blocks of reports as [(without, beside)…], and what the scrapers did."""
    found, scrapes, slow_bytes = [], 0, 0
    load(daemon, "warm", REPORTS)
    for number in range(pairs):
        pair = {}
        for scraped in (False, True) if number % 2 == 0 else (True, False):
            run = f"load-{number}-{scraped}"
            if scraped:
                with Scrapers(daemon.http) as scrapers:
                    pair[scraped] = block(daemon, run)
                    wait_until(lambda: scrapers.scrapes >= SCRAPERS, "each has scraped")
                scrapes, slow_bytes = scrapes + scrapers.scrapes, slow_bytes + scrapers.slow_bytes
            else:
                pair[scraped] = block(daemon, run)
        found.append((pair[False], pair[True]))
    given_up = re.search(r"^gyrostat_web_request_timeouts_total (\d+)", daemon.get("/metrics")[1], re.MULTILINE)
    return found, scrapes, slow_bytes, int(given_up[1])


def tell_pairs(pairs, scrapes, slow_bytes, given_up):
    """Prints what the pairs of blocks say; the ratio of p99 that is gated."""
    print(f"Acknowledgements of {2 * len(pairs)} blocks of {REPORTS} reports at {RATE} a second, in turns without and "
          f"beside {SCRAPERS} scrapers ({scrapes} scrapes; one took {slow_bytes} bytes at a byte a second, and the "
          f"daemon gave up on it {given_up} times)")
    print("                         without   beside   ratio: median, least to most of the pairs")
    ratios = {}
    for i, what in enumerate(("p50, ms", "p99, ms", "CPU a report, ms", "waited for a core, ms")):
        without, beside = ([each[arm][i] for each in pairs] for arm in (0, 1))
        each = [b / a for a, b in zip(without, beside)]
        ratios[what] = statistics.median(each)
        print(f"  {what:22} {statistics.median(without):8.3f} {statistics.median(beside):8.3f}   "
              f"{ratios[what]:.2f}, {min(each):.2f} to {max(each):.2f}")
    cpu = sum(beside[2] - without[2] for without, beside in pairs) * REPORTS / scrapes
    print(f"  the CPU beside is the scrapes' own: {cpu:.1f} ms each, of 1 to {2 * len(pairs) + 1} runs")
    return ratios["p99, ms"]


def main(pairs=6):
    with tempfile.TemporaryDirectory() as directory, Daemon(directory) as daemon:
        series, size, scrape, heads, report = cost(daemon)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # The disk's own delays are not what is asked.
    with tempfile.TemporaryDirectory(dir=memory) as directory, Daemon(directory) as daemon:
        blocks = beside_scrapers(daemon, pairs)
    print(f"One run of {LAYERS} x {HEADS} heads that reports everything")
    print(f"  series            {series:8d}      gate {SERIES_MAX}")
    print(f"  bytes             {size:8d}      gate {BYTES_MAX}")
    print(f"  CPU of a scrape   {scrape:8.2f} ms   gate {CPU_MS_MAX} ms")
    print(f"  over a report's   {scrape / report:8.1f} x    gate {SCRAPE_OVER_REPORT_MAX}; a report: {report:.3f} ms")
    print(f"  all heads, asked  {heads:8.2f} ms")
    ratio = tell_pairs(*blocks)
    over = [what for what, is_over in (
        ("series", series > SERIES_MAX), ("bytes", size > BYTES_MAX), ("CPU of a scrape", scrape > CPU_MS_MAX),
        ("CPU over a report's", scrape > SCRAPE_OVER_REPORT_MAX * report),
        (f"p99 beside scrapers: {ratio:.2f} x, gate {P99_RATIO_MAX}", ratio > P99_RATIO_MAX)) if is_over]
    for what in over:
        print(f"  OVER THE GATE: {what}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
