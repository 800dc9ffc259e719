"""The demonstration that deploy/quickstart runs: one daemon, three arms of one training job, a table.

unguarded   watched, mode observe: gyrostat says what it sees and changes nothing
guarded     watched, mode act: gyrostat clips the heads whose attention logits pass tau
bare        the guarded job again with GYROSTAT_DISABLE=1, taking turns with it: what watching costs
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

import byte_gpt
import gyrostat

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BLOCK_STEPS = 20  # Guarded and bare steps take turns in blocks this long, so that both see the same machine.
READY_TIMEOUT_S = 60
FINAL_STEPS = 50  # The final loss is the mean of this many last steps; every step is on a fresh batch.


class DemoError(Exception):
    """Something a user can act on; its text is the whole message."""


class Daemon:
    """A gyrostatd of our own, and gyrostatctl pointed at it."""

    def __init__(self, bin_dir, work_dir, tau, ports):
        self.bin_dir, self.work_dir = bin_dir, work_dir
        self.config = os.path.join(work_dir, "gyrostat.yaml")
        self.log_path = os.path.join(work_dir, "gyrostatd.log")
        with open(self.config, "w", encoding="utf-8") as out:
            out.write(f"policy:\n  mode: observe\n  qk_clip:\n    tau: {tau:g}\n")
        self.log = open(self.log_path, "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [os.path.join(bin_dir, "gyrostatd"), "--config", self.config, "--data-dir", os.path.join(work_dir, "data"),
             "--grpc-listen", f"127.0.0.1:{ports[0]}", "--http-listen", f"127.0.0.1:{ports[1]}"],
            stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True)
        self.grpc, self.http = self._await_ready()

    def _await_ready(self):
        with contextlib.ExitStack() as guard:
            guard.callback(self.stop)
            limit = threading.Timer(READY_TIMEOUT_S, self.process.kill)
            limit.start()
            guard.callback(limit.cancel)
            line = self.process.stdout.readline()
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if "grpc" not in words or "http" not in words:
                raise DemoError(f"gyrostatd did not start within {READY_TIMEOUT_S} s; its log is {self.log_path}:\n"
                                f"{self._log_tail()}")
            guard.pop_all()
            limit.cancel()
        return words["grpc"], words["http"]

    def _log_tail(self):
        self.log.flush()
        with open(self.log_path, encoding="utf-8") as text:
            return "".join(text.readlines()[-10:])

    def ctl(self, *arguments):
        """Runs gyrostatctl with --json; returns its objects."""
        done = subprocess.run([os.path.join(self.bin_dir, "gyrostatctl"), *arguments, "--json", "--address", self.grpc],
                              capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise DemoError(f"gyrostatctl {' '.join(arguments)} failed: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines() if line]

    def set_mode(self, run, mode):
        """Sets the mode of a run as soon as its stream is open."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while all(known["run"] != run for known in self.ctl("runs")):
            if time.monotonic() > deadline:
                raise DemoError(f"run {run} did not reach gyrostatd at {self.grpc} within {READY_TIMEOUT_S} s")
            time.sleep(0.05)
        self.ctl("mode", run, mode)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


class Arm:
    """One training job, watched as `run`, and what each of its steps showed."""

    def __init__(self, name, options, address, **watch):
        self.name, self.run = name, f"quickstart-{name}"
        self.losses, self.head_maxima, self.step_s = [], [], []
        kv_heads = 2 if options.attention == "gqa" else 4
        self.trainer = byte_gpt.Trainer(byte_gpt.Config(seed=options.seed, kv_heads=kv_heads))
        self.monitor = gyrostat.watch(self.trainer.model, self.trainer.optimizer, self.trainer.scheduler, run=self.run,
                                      address=address, **watch)

    def advance(self, steps):
        for _ in range(steps):
            begin = time.perf_counter()
            seen = self.trainer.step()
            self.monitor.step(seen.loss)
            self.step_s.append(time.perf_counter() - begin)
            self.losses.append(float(seen.loss))
            self.head_maxima.append(seen.logit_max.flatten().tolist())

    def peak(self):
        return max(max(heads) for heads in self.head_maxima)

    def share_over(self, limit):
        return statistics.fmean(value > limit for heads in self.head_maxima for value in heads)

    def final_loss(self):
        return statistics.fmean(self.losses[-FINAL_STEPS:])


def olmo_core_spike_score(losses, grad_norms, window=128, threshold_stds=6.0, horizon=10_000):
    """OLMo-core's monitor: the fraction of the last `horizon` steps whose loss or gradient norm lies more than
    `threshold_stds` population standard deviations above the mean of the `window` values before it (methods: OLMo 2,
    arXiv 2501.00656 §3.2; OLMo-core train/callbacks/stability_monitor.py)."""

    def flags(series):
        out = [False] * len(series)
        for i in range(window, len(series)):
            past = series[i - window:i]
            spread = statistics.pstdev(past)
            out[i] = spread >= 1e-10 and series[i] > statistics.fmean(past) + threshold_stds * spread
        return out

    either = [a or b for a, b in zip(flags(losses), flags(grad_norms))][-horizon:]
    return sum(either) / len(either) if either else 0.0


def show_progress(arm, done, total, tau):
    heads = arm.head_maxima[-1]
    print(f"      {arm.name:<10} step {done:>4}/{total}  loss {arm.losses[-1]:.3f}  "
          f"largest attention logit {max(heads):8.1f}  heads over tau {sum(h > tau for h in heads):>2}", flush=True)


def run_arm(arm, steps, tau, companion=None):
    """Trains `arm`; `companion` (not watched) takes turns, each time from the arm's weights of a block ago."""
    report_every = max(BLOCK_STEPS, steps // 8 // BLOCK_STEPS * BLOCK_STEPS)
    for done in range(0, steps, BLOCK_STEPS):
        block = min(BLOCK_STEPS, steps - done)
        if companion is not None:
            companion.trainer.take_over(arm.trainer)
        arm.advance(block)
        if companion is not None:
            companion.advance(block)
        if (done + block) % report_every == 0 or done + block == steps:
            show_progress(arm, done + block, steps, tau)


def summarise(arm, daemon):
    findings = daemon.ctl("findings", arm.run)
    grad_norms = [float(point["value"]) for point in daemon.ctl("series", arm.run, "grad_norm")]
    return {
        "steps": len(arm.losses),
        "peak_logit": arm.peak(),
        "final_loss": arm.final_loss(),
        "loss_spikes": sum(finding["detector"] == "loss_spike" for finding in findings),
        "spike_score": olmo_core_spike_score(arm.losses, grad_norms),
    }


def print_table(result, heads_over):
    unguarded, guarded = result["unguarded"], result["guarded"]
    delay = guarded["median_delay_steps"]
    rows = [
        ("largest attention logit", f"{unguarded['peak_logit']:.0f}", f"{guarded['peak_logit']:.1f}"),
        ("(head, step) pairs over 1.5 tau", f"{heads_over['unguarded']:.1%}", f"{heads_over['guarded']:.1%}"),
        ("final loss, nats per byte", f"{unguarded['final_loss']:.3f}", f"{guarded['final_loss']:.3f}"),
        ("spike score (OLMo-core)", f"{unguarded['spike_score']:.4f}", f"{guarded['spike_score']:.4f}"),
        ("loss spikes found", str(unguarded["loss_spikes"]), str(guarded["loss_spikes"])),
        ("interventions", "0 (observe)", str(guarded["interventions"])),
        ("clip orders applied", "0", str(guarded["orders_applied"])),
        ("median delay, steps", "-", "-" if delay is None else f"{delay:g}"),
    ]
    print(f"\n{'':<36}{'unguarded':>14}{'guarded':>14}")
    for label, left, right in rows:
        print(f"{label:<36}{left:>14}{right:>14}")
    ratio = result["step_time_ratio"]
    print(f"\nA watched and clipped step takes {ratio:.2f} times as long as one without gyrostat "
          "(medians, taking turns).")


def print_where_next(daemon, run, keep):
    ctl = os.path.relpath(os.path.join(daemon.bin_dir, "gyrostatctl"), ROOT)
    print("\nWhere to look next")
    if keep:
        print(f"  the daemon goes on: gRPC {daemon.grpc}, pages and metrics at http://{daemon.http}/ "
              f"(process {daemon.process.pid}; stop it with: kill {daemon.process.pid})")
        for command in (f"show {run}", f"findings {run}", f"interventions {run}", f"series {run} loss",
                        f"watch {run} --count 1"):
            print(f"    {ctl} {command} --address {daemon.grpc}")
        print(f"    curl http://{daemon.http}/metrics")
    else:
        print("  deploy/quickstart --keep        leaves the daemon running to look around in")
    print("  README.md                       three lines to watch a loop of your own")


def train_arms(options, daemon):
    """All three arms. Returns the summary and, for the table, each arm's share of (head, step) pairs over 1.5 tau."""
    print(f"[3/4] unguarded: seed {options.seed}, mode observe")
    unguarded = Arm("unguarded", options, daemon.grpc)
    run_arm(unguarded, options.steps, options.tau)
    unguarded.monitor.close()

    print(f"[4/4] guarded: the same seed, mode act, tau {options.tau:g}")
    guarded = Arm("guarded", options, daemon.grpc, allow=("qk_clip",))
    daemon.set_mode(guarded.run, "act")
    os.environ["GYROSTAT_DISABLE"] = "1"
    bare = Arm("bare", options, daemon.grpc)
    del os.environ["GYROSTAT_DISABLE"]
    run_arm(guarded, options.steps, options.tau, companion=bare)
    guarded.monitor.close()
    bare.monitor.close()

    applied = [i for i in daemon.ctl("interventions", guarded.run) if i["step_applied"] is not None]
    delays = [i["median_delay_steps"] for i in applied if i["median_delay_steps"] is not None]
    result = {
        "tau": options.tau,
        "unguarded": summarise(unguarded, daemon),
        "guarded": {
            **summarise(guarded, daemon),
            "interventions": len(applied),
            "orders_applied": sum(i["orders_applied"] for i in applied),
            "median_delay_steps": statistics.median(delays) if delays else None,
        },
        "step_time_ratio": statistics.median(guarded.step_s) / statistics.median(bare.step_s),
    }
    return result, {arm.name: arm.share_over(1.5 * options.tau) for arm in (unguarded, guarded)}


def pick_ports(options):
    """The usual ports where they are free, so that the printed addresses are those of the documentation."""
    if options.any_port:
        return 0, 0
    for port in (7431, 7432):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                print(f"      port {port} is taken; using any free one")
                return 0, 0
    return 7431, 7432


def parse_options():
    parser = argparse.ArgumentParser(prog="deploy/quickstart", add_help=False)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tau", type=float, default=30.0)
    parser.add_argument("--attention", choices=("mha", "gqa"), default="mha")
    parser.add_argument("--summary", metavar="FILE")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--any-port", action="store_true")  # For tests.
    parser.add_argument("--build", default="release")       # For tests: which preset's binaries.
    options = parser.parse_args()
    if not 1 <= options.steps <= 1_000_000:
        parser.error(f"--steps {options.steps}: wanted 1 to 1000000")
    if not 1.0 <= options.tau <= 1e6:
        parser.error(f"--tau {options.tau:g}: wanted 1 to 1000000")
    return options


def main():
    options = parse_options()
    work_dir = os.path.join(ROOT, "build", "quickstart")
    shutil.rmtree(work_dir, ignore_errors=True)
    os.makedirs(work_dir)
    keep = False
    daemon = Daemon(os.path.join(ROOT, "build", options.build, "bin"), work_dir, options.tau, pick_ports(options))
    try:
        result, over = train_arms(options, daemon)
        print_table(result, over)
        if options.summary:
            with open(options.summary, "w", encoding="utf-8") as out:
                json.dump(result, out, indent=2)
                out.write("\n")
            print(f"The same as JSON: {options.summary}")
        keep = options.keep
        print_where_next(daemon, "quickstart-guarded", keep)
    finally:
        if not keep:
            daemon.stop()


if __name__ == "__main__":
    try:
        main()
    except DemoError as error:
        sys.exit(f"quickstart: {error}")
    except KeyboardInterrupt:
        sys.exit("quickstart: interrupted")
