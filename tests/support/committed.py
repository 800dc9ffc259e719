"""What dashboards/ commits, and every query in it."""
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

SOURCE = Path(os.environ["GYROSTAT_SOURCE_DIR"])
DASHBOARDS = SOURCE / "dashboards"
RULES = DASHBOARDS / "alerts" / "gyrostat.rules.yaml"
# Prometheus's own series about a scrape.
PROMETHEUS_OWN = {"up": ["job", "instance"], "scrape_duration_seconds": ["job", "instance"],
                  "scrape_samples_scraped": ["job", "instance"]}


@dataclass(frozen=True)
class Place:
    """One query and where it stands: "run.json: Loss", "rule GyrostatDown"."""
    where: str
    kind: str  # panel, variable, annotation, rule
    expr: str


def boards():
    """{file name: dashboard}."""
    return {path.name: json.loads(path.read_text()) for path in sorted((DASHBOARDS / "grafana").glob("*.json"))}


def data_panels(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def board_queries(name, board):
    found = [Place(f"{name}: {panel['title']}", "panel", target["expr"])
             for panel in data_panels(board) for target in panel["targets"]]
    found += [Place(f"{name}: ${each['name']}", "variable", each["definition"])
              for each in board["templating"]["list"] if each["type"] == "query"]
    found += [Place(f"{name}: annotation {each['name']}", "annotation", each["expr"])
              for each in board["annotations"]["list"]]
    return found


def queries():
    found = [place for name, board in boards().items() for place in board_queries(name, board)]
    return found + [Place(f"rule {rule['alert']}", "rule", rule["expr"]) for rule in rules()]


def metrics():
    """{name as it is scraped: labels} of all there are; a histogram has three names."""
    listed = dict(PROMETHEUS_OWN)
    for line in (SOURCE / "tests/golden/metrics.txt").read_text().splitlines():
        name, kind, labels, _ = line.split("\t")
        labels = [label for label in labels.split(",") if label] + ["job", "instance"]
        for ending in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            listed[name + ending] = labels + ["le"] * (ending == "_bucket")
    return listed


def named(expr):
    """[(metric, [labels matched])] that a query names."""
    found = []
    for name, matchers in re.findall(r"\b(gyrostat_\w+|up|scrape_\w+)\b(?:\{([^}]*)\})?", expr):
        found.append((name, re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', matchers)))
    return found
