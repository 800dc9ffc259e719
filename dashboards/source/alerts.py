"""The rules of rules.py as Prometheus's YAML, and their tests as promtool's."""
import json

from .rules import GROUPS

# Between two evaluations. A rule waits at least twice as long, or not at all.
EVERY_S = 15
HEADER = "# Written by dashboards/generate from dashboards/source; change it there.\n"


def duration(seconds):
    return f"{seconds // 60}m" if seconds and seconds % 60 == 0 else f"{seconds}s"


def scalar(text):
    """A YAML string that needs no thought: JSON is YAML."""
    return json.dumps(text, ensure_ascii=False)


def folded(text, indent):
    """A long string over several lines, of at most 120 columns each."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + len(word) + indent + 1 > 118:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return ">-\n" + "\n".join(" " * indent + each for each in [*lines, line])


def rule_yaml(rule, runbooks, seconds):
    wait, keep = (min(rule.wait, seconds), min(rule.keep, seconds)) if seconds else (rule.wait, rule.keep)
    lines = [f"      - alert: {rule.name}", f"        expr: {folded(rule.expr, 10)}"]
    if wait:
        lines.append(f"        for: {duration(wait)}")
    if keep:
        lines.append(f"        keep_firing_for: {duration(keep)}")
    lines += [f"        labels: {{severity: {rule.severity}}}", "        annotations:",
              f"          summary: {scalar(rule.summary)}", f"          description: {folded(rule.description, 12)}",
              f"          runbook_url: {runbooks}/{rule.name}.md"]
    return lines


def rules_yaml(runbooks, seconds=None):
    """`seconds`: waits of at most so many, and evaluation every second, for tests."""
    lines = ["groups:"]
    for group, rules in GROUPS.items():
        lines += [f"  - name: {group}", f"    interval: {'1s' if seconds else duration(EVERY_S)}", "    rules:"]
        for rule in rules:
            lines += rule_yaml(rule, runbooks, seconds)
    return HEADER + "\n".join(lines) + "\n"


def series_yaml(series):
    lines = []
    for name, values in series.items():
        lines += [f"          - series: {scalar(name)}", f"            values: {scalar(values)}"]
    return lines


def case_yaml(rule, fires):
    """Whether the alert fires at any time in the 25 minutes for which there are series."""
    once = f'max by (alertname, severity) (max_over_time(ALERTS{{alertname="{rule.name}",alertstate="firing"}}[25m]))'
    wanted = f'[{{labels: \'{{alertname="{rule.name}", severity="{rule.severity}"}}\', value: 1}}]' if fires else "[]"
    return [f"  - name: {rule.name} {'fires' if fires else 'stays quiet'}", "    interval: 1m", "    input_series:",
            *[line[4:] for line in series_yaml(rule.fires if fires else rule.quiet)],
            "    promql_expr_test:", f"      - expr: {folded(once, 10)}", "        eval_time: 25m",
            f"        exp_samples: {wanted}"]


def tests_yaml():
    lines = ["rule_files: [gyrostat.rules.yaml]", f"evaluation_interval: {duration(EVERY_S)}", "tests:"]
    for rules in GROUPS.values():
        for rule in rules:
            lines += case_yaml(rule, True) + case_yaml(rule, False)
    return HEADER + "\n".join(lines) + "\n"
