"""Guarded and unguarded twins of real jobs of four ranks, and a table of what became of them. `run --help`."""

import argparse
import dataclasses
import json
import os
import pathlib
import socket
import statistics
import sys
import tempfile

import cost
import gyrostatd
import killing
import launch
from job import read_text, unigram_entropy
from layout import Shape

COLLAPSED = 0.93  # Of the unigram entropy: a model that never looked at a context.
LEVEL = 0.02  # Nats: twins that end nearer than this are level.
FINAL_STEPS = 50  # The final loss is their mean; every batch is fresh.
DEADLINE_S = 3600
TAU = 30.0
ALPHA = 4.0  # Of the deep post-norm stack; its ramp is the default's, 50 boundaries.


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    config: dict
    allow: tuple
    policy: str  # Of the guarded arm's daemon, as YAML.
    layout: str  # Where nothing else is asked for.
    person: bool = False  # Whether somebody sits at a terminal.


SCENARIOS = {s.name: s for s in (
    Scenario("runaway_logits", {"norm": "pre", "layers": 2, "lr": 0.05, "warmup": 50, "steps": 300}, ("qk_clip",),
             f"{{mode: act, qk_clip: {{tau: {TAU:g}}}}}", "dp2tp2"),
    Scenario("short_warmup", {"norm": "post", "layers": 4, "lr": 0.02, "warmup": 60, "steps": 300, "planned": 1000,
                              "embedding_std": 1.0}, ("warmup_extension",),
             f"{{mode: act, qk_clip: {{tau: {TAU:g}}}}}", "dp4"),
    Scenario("deep_post_norm", {"norm": "post", "layers": 12, "batch": 4, "lr": 0.003, "warmup": 50, "steps": 350,
                                "planned": 1000, "embedding_std": 1.0}, ("deepnorm_alpha", "lr_scale"),
             f"{{mode: advise, qk_clip: {{tau: {TAU:g}}}}}", "dp4", person=True),
)}
LAYOUTS = ("dp4", "dp2tp2", "dp2pp2")


class Person:
    """The one at the terminal: reads the findings, and once they say that the first blocks' gradient is gone, proposes
    a larger alpha and approves it. (DeepNorm's own value for 12 layers, 2.21, rescues only together with beta.)
    """

    def __init__(self, daemon, run):
        self._daemon, self._run = daemon, run
        self._proposed = self._approved = False

    def __call__(self):
        if self._approved:
            return
        if not self._proposed and any(
                row["detector"] == "grad_profile" and row["severity"] != "info" and row["step_end"] is None
                for row in launch.ctl(self._daemon, "findings", self._run, check=False)):
            launch.ctl(self._daemon, "propose", self._run, "deepnorm_alpha", "--alpha", ALPHA, "--reason",
                       "the gradient of the first block is gone")
            self._proposed = True
        for row in launch.ctl(self._daemon, "interventions", self._run, check=False) if self._proposed else ():
            if row["state"] == "proposed" and row["kind"] == "deepnorm_alpha" and row["author"] != "policy":
                launch.ctl(self._daemon, "approve", row["id"], "--reason", "as proposed")
                self._approved = True


@dataclasses.dataclass
class Arm:
    """What became of one job."""

    loss: float
    peak: float
    collapsed: bool
    orders: int = 0
    interventions: list = dataclasses.field(default_factory=list)  # As gyrostatctl tells them.
    equal: bool = True  # Replicas held the same bits after every step.

    def delays(self):
        return [row["median_delay_steps"] for row in self.interventions if row.get("median_delay_steps") is not None]


class Kept:
    """Arms that are done, in a file of JSON lines: what is there is not run again. Without a file: none."""

    def __init__(self, path):
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self._arms = {tuple(key): Arm(**arm) for key, arm in map(json.loads, lines)}

    def get(self, scenario, layout, seed, guarded, folder, entropy):
        key = scenario.name, layout, seed, guarded
        if key not in self._arms:
            self._arms[key] = run_arm(scenario, layout, seed, guarded, folder, entropy)
            if self._path is not None:
                with open(self._path, "a", encoding="utf-8") as out:
                    out.write(json.dumps([key, dataclasses.asdict(self._arms[key])]) + "\n")
        return self._arms[key]


def replicas_equal(shape, results):
    """Whether the copies of each shard were bit for bit the same after every step."""
    shards = {}
    for rank, result in enumerate(results):
        pp, _, tp = shape.coordinates(rank)
        shards.setdefault((pp, tp), []).append(result["digest"])
    return all(copy == copies[0] for copies in shards.values() for copy in copies)


def run_arm(scenario, layout, seed, guarded, folder, entropy):
    config = f"policy: {scenario.policy if guarded else '{mode: observe}'}\n"
    run = f"{scenario.name}-{layout}-{seed}-{'guarded' if guarded else 'unguarded'}"
    folder.mkdir(parents=True)
    with gyrostatd.Daemon(folder, config=config) as daemon:
        ranks = launch.Ranks(folder, {"shape": layout, "config": {**scenario.config, "seed": seed}, "run": run,
                                      "address": daemon.grpc, "allow": scenario.allow})
        try:
            person = Person(daemon, run) if guarded and scenario.person else None
            results = ranks.results(DEADLINE_S, person)
        finally:
            ranks.kill()
        done = [row for row in launch.ctl(daemon, "interventions", run) if row["orders"]]
        daemon.stop()
    last = results[0]["loss"][-FINAL_STEPS:]
    loss = sum(last) / len(last)
    peak = max(max(result["peak"]) for result in results)
    collapsed = not loss < COLLAPSED * entropy
    return Arm(loss, peak, collapsed, sum(row["orders_applied"] for row in done), done,
               replicas_equal(Shape.parse(layout), results))


def verdict(unguarded, guarded):
    if unguarded.collapsed and not guarded.collapsed:
        return "rescued"
    if abs(unguarded.loss - guarded.loss) <= LEVEL:
        return "level"
    return "win" if guarded.loss < unguarded.loss else "loss"


HEADER = ("| scenario | layout | seed | loss alone | loss guarded | peak logit alone | guarded | interventions "
          "| orders | delay | replicas | verdict |")


def row_of(scenario, layout, seed, unguarded, guarded):
    def loss(arm):
        return f"{arm.loss:.3f}{' (collapsed)' if arm.collapsed else ''}"

    kinds = ", ".join(f"{i['kind']} at {i['step_applied']}, {i['outcome'] or 'open'}" for i in guarded.interventions)
    delays = guarded.delays()
    same = "equal" if unguarded.equal and guarded.equal else "DIFFER"
    return (f"| {scenario} | {layout} | {seed} | {loss(unguarded)} | {loss(guarded)} | {unguarded.peak:.0f} | "
            f"{guarded.peak:.0f} | {kinds or 'none'} | {guarded.orders} | "
            f"{statistics.median(delays) if delays else '-'} | {same} | {verdict(unguarded, guarded)} |")


def soak(seed, interventions, kills, layout, folder):
    """A job that is killed again and again; returns whether its replicas stayed equal."""
    folder.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = f"policy: {{mode: act, qk_clip: {{tau: {TAU:g}}}}}\n"
    with gyrostatd.Daemon(folder, config=config, grpc_port=port) as daemon:
        whom = [("rank", "leader", "daemon")[at % 3] for at in range(kills)]
        outcome = killing.run(folder, daemon, seed, whom, interventions, every=20, shape=layout)
        daemon.stop()
    killed = ", ".join(f"{count} times the {whom}" for whom, count in outcome.killed.items())
    print(f"{layout}, seed {seed}: {outcome.interventions} live interventions over {outcome.attempts} attempts; killed "
          f"{killed}; {outcome.boundaries} shards after a boundary and {outcome.checkpoints} checkpoints compared "
          f"between replicas, {len(outcome.faults)} differ; peak logit {outcome.peak:.0f} at tau {TAU:g}", flush=True)
    for fault in outcome.faults[:10]:
        print(f"  {fault}")
    return not outcome.faults


def parse():
    parser = argparse.ArgumentParser(prog="tests/bench/rescue/run", description=__doc__)
    parser.add_argument("--all", action="store_true",
                        help="every scenario in every layout with seeds 0, 1 and 2, then what a step costs in each")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), action="append")
    parser.add_argument("--layout", choices=LAYOUTS, action="append")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FILE", help="arms that are done; they are not run again")
    parser.add_argument("--cost", action="store_true", help="only what a step costs, and collectives a step")
    parser.add_argument("--soak", type=int, metavar="SEED", help="only a job whose ranks, leader and daemon are killed")
    parser.add_argument("--interventions", type=int, default=250, help="of the soak, at least")
    parser.add_argument("--kills", type=int, default=12, help="of the soak")
    options = parser.parse_args()
    chosen = options.scenario or list(SCENARIOS)
    seeds = options.seed or ([0, 1, 2] if options.all else [0])
    jobs = [(name, layout, seed) for name in chosen
            for layout in options.layout or (LAYOUTS if options.all else [SCENARIOS[name].layout])
            for seed in seeds]
    return options, jobs


def main():
    options, jobs = parse()
    entropy = unigram_entropy(read_text())
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    failed, kept = 0, Kept(options.keep)
    with tempfile.TemporaryDirectory(prefix="gyrostat-rescue-") as scratch:
        scratch = pathlib.Path(scratch)
        if options.soak is not None:
            equal = [soak(options.soak, options.interventions, options.kills, layout, scratch / f"soak-{layout}")
                     for layout in options.layout or ["dp2tp2"]]
            return 0 if all(equal) else 1
        if not options.cost:
            print(f"unigram entropy {entropy:.3f} nats: a run above {COLLAPSED:g} of it has collapsed\n\n{HEADER}\n"
                  f"|{'---|' * HEADER.count(' |')}", flush=True)
            for name, layout, seed in jobs:
                unguarded, guarded = (
                    kept.get(SCENARIOS[name], layout, seed, on, scratch / f"{name}-{layout}-{seed}-{on}", entropy)
                    for on in (False, True))
                print(row_of(name, layout, seed, unguarded, guarded), flush=True)
                failed += not (unguarded.equal and guarded.equal)
            print(flush=True)
        for layout in (options.layout or LAYOUTS) if options.all or options.cost else ():
            ratio, (own, maxima, sums) = cost.measure(layout, scratch / f"cost-{layout}", DEADLINE_S)
            print(f"{layout}: step time with agreement over bare {ratio:.3f}; collectives a step: the job's own "
                  f"{own:g}, gyrostat's {maxima:g} MAX and {sums:g} SUM", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
