"""Series, bytes and CPU of a scrape, and the acknowledgement's delay beside scrapers. See ./run.

Gates: series and bytes, which are the same everywhere; and the CPU of a scrape over that of a report of the same run,
which moves little with the machine. Milliseconds are printed.
"""
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time

from gyrostatd import BIN, Daemon, wait_until

LAYERS = HEADS = 128
SERIES_MAX, BYTES_MAX, CPU_MS_MAX = 2000, 200_000, 20
SCRAPE_OVER_REPORT_MAX = 5  # Measured: 1 to 2.
SCRAPERS, EVERY_S = 20, 1.0


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
    """Twenty, one scrape a second each; the first takes its answer a byte a second."""

    def __init__(self, address):
        self._host, _, port = address.rpartition(":")
        self._port, self._end = int(port), threading.Event()
        self._threads = [threading.Thread(target=self._slow if i == 0 else self._scrape) for i in range(SCRAPERS)]
        self.scrapes = 0

    def _ask(self):
        peer = socket.create_connection((self._host, self._port), timeout=30)
        peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return peer

    def _scrape(self):
        while not self._end.wait(EVERY_S):
            with self._ask() as peer:
                while peer.recv(65536):
                    pass
            self.scrapes += 1

    def _slow(self):
        while not self._end.is_set():
            with self._ask() as peer:
                try:
                    while not self._end.wait(1) and peer.recv(1):
                        pass
                except OSError:
                    pass  # Cut after its five seconds.

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        for thread in self._threads:
            thread.join()


def beside_scrapers(daemon, rounds):
    """Medians over interleaved rounds of (p50, p99) in ms, without and with scrapers."""
    seen = {False: [], True: []}
    for number in range(rounds):
        for scraped in (False, True):
            words = (f"load-{number}-{scraped}", 250, "--rate", "50")
            if scraped:
                with Scrapers(daemon.http) as scrapers:
                    said = load(daemon, *words)
                    wait_until(lambda: scrapers.scrapes >= SCRAPERS, "each has scraped")
            else:
                said = load(daemon, *words)
            seen[scraped].append((said["acknowledged_p50_ms"], said["acknowledged_p99_ms"]))

    def middle(values):
        return sorted(values)[len(values) // 2]
    return [(middle([p50 for p50, _ in each]), middle([p99 for _, p99 in each])) for each in seen.values()]


def main(rounds=3):
    with tempfile.TemporaryDirectory() as directory, Daemon(directory) as daemon:
        series, size, scrape, heads, report = cost(daemon)
    with tempfile.TemporaryDirectory() as directory, Daemon(directory) as daemon:
        without, beside = beside_scrapers(daemon, rounds)
    over = [what for what, is_over in (("series", series > SERIES_MAX), ("bytes", size > BYTES_MAX),
                                       ("CPU over a report's", scrape > SCRAPE_OVER_REPORT_MAX * report)) if is_over]
    print(f"One run of {LAYERS} x {HEADS} heads that reports everything")
    print(f"  series            {series:8d}      gate {SERIES_MAX}")
    print(f"  bytes             {size:8d}      gate {BYTES_MAX}")
    print(f"  CPU of a scrape   {scrape:8.2f} ms   wanted at most {CPU_MS_MAX} ms")
    print(f"  over a report's   {scrape / report:8.1f} x    gate {SCRAPE_OVER_REPORT_MAX}; a report: {report:.3f} ms")
    print(f"  all heads, asked  {heads:8.2f} ms")
    print(f"Acknowledgements at 50 reports a second, ms: p50 {without[0]:.2f}, p99 {without[1]:.2f}; beside {SCRAPERS} "
          f"scrapers, one of a byte a second: p50 {beside[0]:.2f}, p99 {beside[1]:.2f}")
    for what in over:
        print(f"  OVER THE GATE: {what}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
