"""The demonstration's training job under a gyrostatd of the test: what the closed-loop tests drive."""
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import gyrostatd
import pacing

SOURCE = Path(os.environ.get("GYROSTAT_SOURCE_DIR", "."))
sys.path.insert(0, str(SOURCE / "deploy" / "demo"))

import byte_gpt  # noqa: E402
import gyrostat  # noqa: E402


def ctl(daemon, *arguments):
    """gyrostatctl's objects."""
    done = subprocess.run([gyrostatd.BIN / "gyrostatctl", *map(str, arguments), "--json", "--address", daemon.grpc],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"gyrostatctl {arguments}: {done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def replay_journal(daemon, run, group=1):
    """Works every applied tick out again from the journal of a daemon that has ended."""
    journal = daemon.data_dir / "gyrostat.db"
    done = subprocess.run([gyrostatd.BIN / "journal-replay", journal, run, "4", "4", str(group)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.strip())


class Job:
    """One run of the runaway recipe. `maxima[step]` lists layers x heads, as the model itself saw them; `waits[step]`
    is how often the step gave its core away to wait for something."""

    def __init__(self, daemon, run, seed, kv_heads=4, **watch):
        self.run, self.losses, self.maxima, self.waits = run, [], [], []
        self.trainer = byte_gpt.Trainer(byte_gpt.Config(seed=seed, kv_heads=kv_heads))
        self.monitor = gyrostat.watch(self.trainer.model, self.trainer.optimizer, self.trainer.scheduler, run=run,
                                      address=daemon.grpc, **watch)

    def set_mode(self, daemon, mode):
        gyrostatd.wait_until(lambda: any(r["run"] == self.run for r in ctl(daemon, "runs")), f"run {self.run} seen")
        ctl(daemon, "mode", self.run, mode)

    def advance(self, steps, answered=True):
        """answered: no step begins before the daemon has judged the last one."""
        for _ in range(steps):
            before = _waits()
            seen = self.trainer.step()
            self.monitor.step(seen.loss)
            self.waits.append(_waits() - before)
            if answered:
                pacing.wait_for_answer(self.monitor)
            self.losses.append(float(seen.loss))
            self.maxima.append(seen.logit_max.flatten().tolist())

    def peak(self):
        return max(map(max, self.maxima))

    def final_loss(self):
        return sum(self.losses[-50:]) / 50


def _waits():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def longest_excursion(maxima, limit):
    """The most steps in a row that any head spends above `limit`."""
    longest, current = 0, [0] * len(maxima[0])
    for heads in maxima:
        current = [run + 1 if value > limit else 0 for run, value in zip(current, heads)]
        longest = max(longest, *current)
    return longest
