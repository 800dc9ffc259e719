"""How fast the built-in page is, seen from inside it. See ./run.

Gate: the packed document's size, which is the same everywhere. Milliseconds and frames are printed, with the wanted
values beside them: they are the machine's as much as ours. A headless Chromium draws without a GPU.
"""
import gzip
import statistics
import subprocess
import sys
import tempfile

import browser as browsers
from gyrostatd import BIN, Daemon, wait_until

LAYERS = HEADS = 128
RATE, FRAMES_S, TIMES = 20, 5, 5
BYTES_MAX, PAINT_MS, FRAMES_MIN = 40 << 10, 300, 30

# When the first frame after the first picture with data was due, on the page's own clock since the navigation began.
WATCH = """(() => {
  window.seen = {};
  const look = (now) => {
    const drawn = (id) => Number(document.querySelector(id + " canvas")?.dataset.draws ?? 0) > 0
      && document.querySelector(id + " canvas").width > 1;
    if (!seen.heads && drawn("#map-heads")) seen.heads = now;
    const told = document.querySelector("#chart-loss output")?.textContent.includes("at step");
    if (!seen.curves && told) seen.curves = now;
    if (!seen.heads || !seen.curves) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""

# Frames and the gaps between them while events arrive.
FRAMES = """new Promise((done) => {
  const canvas = document.querySelector("#map-heads canvas"), first = Number(canvas.dataset.draws), gaps = [];
  let start, last;
  const count = (now) => {
    if (start === undefined) start = now; else gaps.push(now - last);
    last = now;
    if (now - start < %d) return requestAnimationFrame(count);
    gaps.sort((a, b) => a - b);
    done([gaps.length / (now - start) * 1e3, gaps[Math.floor(gaps.length * 0.99)],
      (Number(canvas.dataset.draws) - first) / (now - start) * 1e3]);
  };
  requestAnimationFrame(count);
})"""


def first_paints(browser, address):
    """Milliseconds to the heads and to the curves, of each visit."""
    seen = []
    for _ in range(TIMES):
        page = browser.open("about:blank")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        page.call("Page.navigate", url=address)
        wait_until(lambda: page.js("window.seen?.heads && window.seen?.curves"), "a first paint")
        seen.append((page.js("seen.heads"), page.js("seen.curves")))
        page.close()
    return seen


def main():
    if browsers.program() is None:
        sys.exit("no Chromium: deploy/install test gets one")
    with tempfile.TemporaryDirectory() as directory, Daemon(directory) as daemon:
        _, body, _ = daemon.get("/", headers={"Accept": "text/html", "Accept-Encoding": "gzip"}, raw=True)
        if not body.startswith(b"\x1f\x8b"):
            sys.exit("the page is not built in: deploy/install page gets npm")
        print(f"page: {len(body)} bytes packed, {len(gzip.decompress(body))} plain (at most {BYTES_MAX} packed)")
        job = subprocess.Popen([BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", "big", "--scenario",
                                "strained", "--layers", str(LAYERS), "--heads", str(HEADS), "--rate", str(RATE),
                                "--steps", "1000000"], stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: '"step":1' in daemon.get("/api/runs")[1], "the run reports")
            with browsers.Browser(directory, loopback=True) as browser:
                address = f"http://{daemon.http}/#big"
                paints = first_paints(browser, address)
                for i, what in enumerate(("layer × head map", "curves")):
                    times = [each[i] for each in paints]
                    print(f"first paint with live data, {what}: median {statistics.median(times):.0f} ms, "
                          f"best {min(times):.0f}, worst {max(times):.0f} of {TIMES} (wanted: {PAINT_MS})")
                page = browser.open(address)
                wait_until(lambda: page.js("Number(document.querySelector('#map-heads canvas')?.dataset.draws) > 2"),
                           "live pictures")
                rate, gap, draws = page.js(FRAMES % (FRAMES_S * 1000))
                print(f"frames at {LAYERS} × {HEADS} heads, live: {rate:.1f} a second (wanted: {FRAMES_MIN}), "
                      f"99 % of the gaps within {gap:.0f} ms, {draws:.1f} maps drawn a second")
                assert page.complaints == []
        finally:
            job.kill()
            job.wait()
    return 0 if len(body) <= BYTES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
