"""A job of four ranks whose ranks, leader and daemon are killed by a seed, and what it left behind.

run(folder, daemon, seed, kills, interventions, every, shape) → Outcome. The caller gives a daemon with a port of its
own choosing: a job dials one address for its whole life.
"""

import dataclasses
import itertools
import json
import random
import time

import launch
from layout import Shape

DEADLINE_S = 1800
CONFIG = {"norm": "pre", "layers": 2, "lr": 0.05, "warmup": 20, "steps": 1_000_000}
APART = (15, 60)  # Steps between two kills.


@dataclasses.dataclass
class Outcome:
    attempts: int = 0
    killed: dict = dataclasses.field(default_factory=lambda: {"rank": 0, "leader": 0, "daemon": 0})
    interventions: int = 0  # Boundaries at which an order changed weights, over all attempts.
    boundaries: int = 0  # Of shards whose copies were all seen: in a job of 2 x 2 ranks two shards a boundary.
    checkpoints: int = 0
    faults: list = dataclasses.field(default_factory=list)  # Where replicas were not bit for bit the same.
    peak: float = 0.0  # Largest logit of any step past the first intervention.


def rows_of(folder, rank):
    """{(attempt, step): row}; a line that was cut by a kill is left out."""
    rows = {}
    path = folder / f"seen{rank}.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows[row["attempt"], row["step"]] = row
    return rows


def compare(folder, outcome, shape):
    """Fills in what the ranks saw. shape: a layout.Shape."""
    seen = [rows_of(folder, rank) for rank in range(shape.world)]
    changed = {key for rank in seen for key, row in rank.items() if row["changed"]}
    outcome.interventions = len(changed)
    outcome.boundaries = outcome.checkpoints = 0
    outcome.faults = []
    for key, row in seen[0].items():
        rows = [rank.get(key) for rank in seen]
        for pp, tp in itertools.product(range(shape.pp), range(shape.tp)):
            copies = [rows[shape.rank(pp, dp, tp)] for dp in range(shape.dp)]
            if None in copies:
                continue
            outcome.boundaries += 1
            if len({(copy["digest"], copy["changed"]) for copy in copies}) > 1:
                outcome.faults.append((key, [copy["digest"] for copy in copies]))
        states = {each.get("state") for each in rows if each is not None}
        if "state" in row:
            outcome.checkpoints += 1
            if len(states) > 1:
                outcome.faults.append((key, "the ranks' states for the checkpoint differ"))
    if changed:
        outcome.peak = max(row["peak"] for rank in seen for key, row in rank.items() if key > min(changed))
    return outcome


class Run:
    """The job over its attempts."""

    def __init__(self, folder, daemon, every, shape):
        self.folder, self.daemon, self.every, self.shape = folder, daemon, every, shape
        self.outcome = Outcome()
        self.ranks = None

    def start(self):
        self.outcome.attempts += 1
        spec = {"shape": self.shape, "config": CONFIG, "run": "soak", "address": self.daemon.grpc, "allow": ["qk_clip"],
                "attempt": self.outcome.attempts, "every": self.every}
        self.ranks = launch.Ranks(self.folder, spec, "soak.py")

    def steps(self):
        """Steps of this attempt so far."""
        return sum(attempt == self.outcome.attempts for attempt, _ in rows_of(self.folder, 0))

    def await_steps(self, count):
        self._await(lambda: self.steps() >= count, f"{count} steps of attempt {self.outcome.attempts}")

    def await_interventions(self, count):
        self._await(lambda: self.compare().interventions >= count, f"{count} interventions")

    def compare(self):
        return compare(self.folder, self.outcome, Shape.parse(self.shape))

    def _await(self, condition, what):
        end = time.monotonic() + DEADLINE_S
        while not condition():
            if not self.ranks.running():
                raise RuntimeError(f"the ranks ended before {what}")
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: not within {DEADLINE_S} s")
            time.sleep(0.1)

    def kill(self, whom, rng):
        self.outcome.killed[whom] += 1
        if whom == "daemon":
            self.daemon.kill()
            self.await_steps(self.steps() + rng.randint(1, 10))  # The job goes on without it.
            self.daemon.start()
            return
        self.ranks.kill(0 if whom == "leader" else rng.randint(1, self.ranks.world - 1))
        time.sleep(rng.random() * 0.2)  # The others find out, or hang in a collective.
        self.ranks.kill()
        self.start()

    def finish(self):
        (self.folder / "stop").touch()
        end = time.monotonic() + DEADLINE_S
        while self.ranks.running():
            if time.monotonic() > end:
                raise RuntimeError(f"the ranks did not stop within {DEADLINE_S} s")
            time.sleep(0.1)


def run(folder, daemon, seed, kills, interventions, every=10, shape="dp2tp2"):
    """kills: a list of "rank", "leader", "daemon", in any order: the seed shuffles it and draws the moments."""
    rng = random.Random(seed)
    kills = list(kills)
    rng.shuffle(kills)
    job = Run(folder, daemon, every, shape)
    job.start()
    try:
        for whom in kills:
            job.await_steps(rng.randint(*APART))
            job.kill(whom, rng)
        job.await_interventions(interventions)
        job.finish()
    finally:
        job.ranks.kill()
    return job.compare()
