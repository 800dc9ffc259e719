#!/usr/bin/python3
"""Scores our rules and the rivals' on labelled runs and prints the table. `score.py [--trained FOLDER]`.

Every run is replayed by `gyrostatctl replay --json --rules all`. Counted are findings of warning and above.
recall: unstable runs with at least one. False alarms: those on healthy runs, and on traps outside their event, in
10,000 healthy steps. lead: steps from the first one to where the loss shows it, median over unstable runs, 0 where
there is none. blind: how many steps after a NaN in loss and gradient norm a spike goes unseen. Ours are gated: GATES.

A rule that fires every fiftieth step of a healthy run has fired before any failure. The second table of leads takes
off what such a rule would have had by chance: with `a` alarms per healthy report and T reports before the failure
shows, the first of them is expected (1 - exp(-a T)) / a reports after the start. What a lead exceeds the rest by is
knowledge.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import labels  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
OURS = "gyrostat"
RULES = (OURS, "olmo-core", "olmo-core-skip", "olmo2", "zclip", "megatron", "llm-foundry", "lightning", "llmc")
GATES = {"recall": 0.95, "warnings": 0.2, "criticals": 0.02, "blind": 0}
SEVERE = ("warning", "critical")
# A healthy post-norm run may be told during its warm-up that its gradient ratio is high (README of the runs).
TOLERATED = ("grad_profile",)
PROBES = (1, 2, 5, 10, 20, 40, 80, 120, 128, 140, 160, 200, 400, 999, 1010)
NAN_AT = 1100  # After every rule's window is full.
NEVER = 10**9


def replay(command, files):
    """One JSON object per run of the files; what cannot be read is said on stderr and left out."""
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    if done.stderr:
        sys.stderr.write(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def losses_of(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return [(row["step"], float(row["loss"])) for row in rows]


def labelled(trained):
    """(file, key → label): what is there of the recorded runs, the public logs and the trained runs, in two groups."""
    files, names = [], {}
    folder = os.environ.get("GYROSTAT_RUNS")
    for path in sorted(pathlib.Path(folder).glob("*.jsonl.gz")) if folder else ():
        stem = path.name[: -len(".jsonl.gz")]
        if label := labels.of_run(stem):
            files.append(path)
            names[path.name] = (label, "tuning")
    folder = os.environ.get("GYROSTAT_CORPUS")
    for key, label in labels.CORPUS.items() if folder else ():
        path = pathlib.Path(folder) / key.partition(":")[0]
        if path not in files:
            files.append(path)
        names[key] = (label, "tuning")
    if trained:
        import make_runs  # Needs torch, which the rest does not.
        made = make_runs.recipes()
        folder = pathlib.Path(trained)
        for path in sorted(p for p in folder.glob("*.jsonl") if p.stem in made):
            recipe = made[path.stem]
            twin = losses_of(folder / f"healthy_pre_s{recipe.seed}.jsonl")
            label = labels.of_trained(path.stem, recipe, losses_of(path), twin)
            if label is None:
                print(f"left out, it did not fail: {path.stem}")
                continue
            files.append(path)
            names[path.name] = (label, "tuning" if recipe.seed in make_runs.TUNING_SEEDS else "held-out")
    return files, names


class Score:
    """What one rule set did on the runs of one group."""

    def __init__(self):
        self.steps = self.warnings = self.criticals = 0
        self.found, self.missed, self.leads = 0, [], collections.defaultdict(list)
        self.alarms = collections.Counter()

    def add(self, name, label, run, findings):
        severe = [f for f in findings if f["severity"] in SEVERE]
        if label.kind == "unstable":
            detected = [f["step_detected"] for f in severe]
            self.found += bool(detected)
            if not detected:
                self.missed.append(name)
            first = min(detected, default=label.visible)
            self.leads[label.scenario].append((max(0, label.visible - first), label.visible - run["first_step"], run))
            return
        begin, end = label.quiet or (1, 0)
        false = [f for f in severe if not begin <= f["step_begin"] <= end and f["detector"] not in TOLERATED]
        self.steps += run["steps"]
        self.warnings += len(false)
        self.criticals += sum(f["severity"] == "critical" for f in false)
        self.alarms.update(f'{name}: {f["detector"]} {f["severity"]} at {f["step_detected"]}' for f in false)

    @property
    def unstable(self):
        return self.found + len(self.missed)

    def figures(self):
        leads = [lead for group in self.leads.values() for lead, _, _ in group]
        per = 10_000 / self.steps if self.steps else math.nan
        return {"recall": self.found / self.unstable if self.unstable else math.nan, "runs": self.unstable,
                "warnings": self.warnings * per, "criticals": self.criticals * per, "steps": self.steps,
                "lead": statistics.median(leads) if leads else math.nan}

    def lead(self, scenario, alarms_per_report):
        """The median lead, less what so many alarms would have by chance. 0: the plain one."""
        return statistics.median(max(0, lead - chance_lead(until, run, alarms_per_report))
                                 for lead, until, run in self.leads[scenario])


def chance_lead(until, run, alarms_per_report):
    """Steps that a blind rule's first alarm comes before a failure `until` steps after the run's beginning."""
    stride = (run["last_step"] - run["first_step"]) / max(1, run["steps"] - 1)
    if alarms_per_report == 0 or until <= 0 or stride == 0:
        return 0
    reports = until / stride
    return stride * (reports + math.expm1(-alarms_per_report * reports) / alarms_per_report)


def blindness(command):
    """Rule set → the last probe after the NaN that goes unseen; NEVER where all do; None where the rule does not see
    such a spike without a NaN either."""
    with tempfile.TemporaryDirectory() as folder:
        for nan in (False, True):
            for probe in PROBES:
                write_probe(pathlib.Path(folder) / f"{'nan' if nan else 'calm'}_{probe}.jsonl", nan, probe)
        seen = collections.defaultdict(set)
        for run in replay(command, sorted(pathlib.Path(folder).glob("*.jsonl"))):
            kind, probe = pathlib.Path(run["file"]).stem.split("_")
            at = NAN_AT + int(probe)
            for finding in run["findings"]:
                # A finding that the NaN began may be open still: a spike beside it makes it no longer nor worse.
                if finding["step_begin"] == at or finding["step_detected"] == at:
                    seen[finding["rules"]].add((kind, int(probe)))
    blind = {}
    for rules, probes in seen.items():
        sees = [p for p in PROBES if ("calm", p) in probes]
        missed = [p for p in sees if ("nan", p) not in probes]
        blind[rules] = None if not sees else NEVER if len(missed) == len(sees) else max(missed, default=0)
    return blind


def write_probe(path, nan, probe):
    noise = random.Random(5)
    rows = ['{"gyrostat":1,"run":"probe","model":{}}']
    for step in range(NAN_AT + max(PROBES) + 40):
        loss, norm = 2 + 0.02 * noise.gauss(0, 1), 0.5 * math.exp(0.1 * noise.gauss(0, 1))
        if step == NAN_AT + probe:
            loss, norm = 50.0, 50.0
        if nan and step == NAN_AT:
            loss = norm = "NaN"
        rows.append(json.dumps({"step": step, "loss": loss, "grad_norm": norm}))
    path.write_text("\n".join(rows) + "\n")


def cell(figure, digits):
    return "-" if figure is None or figure != figure else "for good" if figure == NEVER else f"{figure:.{digits}f}"


def table(scores, blind):
    rows = ["| rules | recall | warnings per 10,000 | critical per 10,000 | median lead | blind steps after NaN |",
            "|---|---|---|---|---|---|"]
    for name in RULES:
        figures = scores[name].figures()
        rows.append(f'| {name} | {cell(figures["recall"], 2)} | {cell(figures["warnings"], 1)} | '
                    f'{cell(figures["criticals"], 1)} | {cell(figures["lead"], 0)} | {cell(blind.get(name), 0)} |')
    figures = scores[OURS].figures()
    return "\n".join(rows) + f'\n({figures["runs"]} unstable runs, {figures["steps"]} healthy steps)'


def lead_table(scores, title, alarms_per_report):
    scenarios = sorted({scenario for score in scores.values() for scenario in score.leads})
    rows = [f"| {title} | " + " | ".join(scenarios) + " |", "|---" * (len(scenarios) + 1) + "|"]
    for name in RULES:
        cells = (cell(scores[name].lead(s, alarms_per_report(name)), 0) for s in scenarios)
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def print_group(group, scores, blind):
    print(f"\n{group}\n\n{table(scores, blind)}")
    if scores[OURS].leads:
        rate = {name: scores[name].warnings / max(1, scores[name].steps) for name in RULES}
        print("\n" + lead_table(scores, "median lead", lambda name: 0))
        print("\n" + lead_table(scores, "beyond chance", lambda name: rate[name]))


def scored(runs, names):
    """Group → rule set → Score; every run counts in its group and in "all". A rule set that said nothing missed it, or
    was rightly silent."""
    groups = collections.defaultdict(lambda: collections.defaultdict(Score))
    for run in runs:
        file = pathlib.Path(run["file"]).name
        key = f'{file}:{run["run"]}' if f'{file}:{run["run"]}' in names else file
        if key not in names:
            continue
        label, group = names[key]
        for name in RULES:
            findings = [f for f in run["findings"] if f["rules"] == name]
            for each in (group, "all"):
                groups[each][name].add(key, label, run, findings)
    return groups


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trained", help="folder of the runs of make_runs.py")
    parser.add_argument("--replay", default=str(ROOT / "build/release/bin/gyrostatctl") + " replay --json --rules all")
    options = parser.parse_args()
    command = options.replay.split()
    files, names = labelled(options.trained)
    if not files:
        print("GYROSTAT_RUNS and GYROSTAT_CORPUS are not set and no --trained: nothing to score")
        return 0
    runs = replay(command, files)
    groups = scored(runs, names)
    blind = blindness(command)
    for group in ("tuning", "held-out", "all"):
        if group in groups:
            print_group(group, groups[group], blind)
    ours, figures = groups["all"][OURS], groups["all"][OURS].figures()
    figures["blind"] = blind.get(OURS, NEVER)
    for name in ours.missed:
        print(f"missed: {name}")
    for alarm in ours.alarms:
        print(f"false: {alarm}")
    bad = [key for key, gate in GATES.items()
           if not (figures[key] >= gate if key == "recall" else figures[key] <= gate)]
    told = ", ".join(f"{key} {figures[key]:.2f} (wanted {GATES[key]})" for key in bad)
    print(f"gates: {told or 'all met'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
