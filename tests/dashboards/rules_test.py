"""The alerts as files: promtool's tests of each rule, Alertmanager's routes and inhibition, a runbook for each."""
import re
import subprocess

import pytest
import yaml

from committed import DASHBOARDS, RULES, metrics, named, rules

ALERTMANAGER = DASHBOARDS / "alertmanager.yaml"
NAMES = [rule["alert"] for rule in rules()]


def run(*words, cwd=None):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60, cwd=cwd)


def test_prometheus_accepts_the_rules_and_the_configuration():
    for checked in (run("promtool", "check", "rules", RULES),
                    run("promtool", "check", "config", DASHBOARDS / "prometheus.yaml")):
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_rule_fires_when_it_should_and_is_quiet_beside_it():
    tests = yaml.safe_load((RULES.parent / "gyrostat.test.yaml").read_text())["tests"]
    assert [each["name"] for each in tests] == [f"{name} {what}" for name in NAMES for what in ("fires", "stays quiet")]
    done = run("promtool", "test", "rules", RULES.parent / "gyrostat.test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name, change", [
    ("GyrostatDiverging", lambda rule: {**rule, "expr": rule["expr"].replace("> 0", "> 1")}),  # Quiet, must fire.
    ("GyrostatDiverging", lambda rule: {**rule, "expr": rule["expr"].replace("critical", "warning|critical")}),
    ("GyrostatDown", lambda rule: {**rule, "for": "0s"}),  # Does not wait.
])
def test_the_tests_of_the_rules_see_a_broken_rule(tmp_path, name, change):
    (rule,) = [each for each in rules() if each["alert"] == name]
    tests = yaml.safe_load((RULES.parent / "gyrostat.test.yaml").read_text())
    tests["tests"] = [each for each in tests["tests"] if each["name"].startswith(name + " ")]
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(tests))
    for rule, verdict in ((rule, 0), (change(rule), 1)):
        (tmp_path / RULES.name).write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}))
        assert run("promtool", "test", "rules", "test.yaml", cwd=tmp_path).returncode == verdict


def test_alerts_are_labelled_and_described_alike():
    known = metrics()
    assert len(NAMES) == len(set(NAMES))
    for rule in rules():
        assert re.fullmatch(r"Gyrostat[A-Z][A-Za-z]+", rule["alert"])
        assert list(rule["labels"]) == ["severity"] and rule["labels"]["severity"] in ("critical", "warning", "info")
        notes = rule["annotations"]
        assert list(notes) == ["summary", "description", "runbook_url"]
        assert "{{" not in notes["summary"] and notes["summary"].endswith(".") and "{{" in notes["description"]
        assert notes["runbook_url"].endswith(f"/{rule['alert']}.md")
        for metric, labels in named(rule["expr"]):
            assert metric in known and set(labels) <= set(known[metric]), rule["alert"]
        # One evaluation may fail: a rule that waits, waits for two at least.
        assert rule.get("for", "0s") in ("0s", "1m", "2m", "5m", "10m")


def test_each_alert_has_its_runbook_and_each_runbook_its_alert():
    pages = {path.stem: path.read_text() for path in (DASHBOARDS / "runbooks").glob("Gyrostat*.md")}
    assert sorted(pages) == sorted(NAMES)
    index = (DASHBOARDS / "runbooks/README.md").read_text()
    for name, page in pages.items():
        title, means, check, do = re.fullmatch(
            r"# (\w+)\n\n(.+?)\n\n## What to check\n\n(.+?)\n\n## What to do\n\n(.+)\n", page, re.S).groups()
        assert title == name and len(means) > 80 and check.startswith("- ") and do.startswith("- ")
        assert f"]({name}.md)" in index
        for other in re.findall(r"\bGyrostat[A-Z]\w+", page):
            assert other in pages, f"{name} names {other}"


# Alertmanager.

def test_alertmanager_accepts_its_configuration():
    checked = run("amtool", "check-config", ALERTMANAGER)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("severity, receiver", [("critical", "pager"), ("warning", "chat"), ("info", "none")])
def test_each_alert_goes_where_its_severity_says(severity, receiver):
    (alert, *_) = [rule["alert"] for rule in rules() if rule["labels"]["severity"] == severity]
    routed = run("amtool", "config", "routes", "test", "--config.file", ALERTMANAGER,
                 f"--verify.receivers={receiver}", f"alertname={alert}", f"severity={severity}", "run=r")
    assert routed.returncode == 0, routed.stdout + routed.stderr


def test_inhibition_names_alerts_that_exist_and_never_a_worse_one():
    severities = {rule["alert"]: ("info", "warning", "critical").index(rule["labels"]["severity"]) for rule in rules()}

    def meant(matchers):
        (matcher,) = matchers
        pattern = re.fullmatch(r'alertname=~?"(.+)"', matcher).group(1)
        return [name for name in NAMES if re.fullmatch(pattern, name)], pattern
    for each in yaml.safe_load(ALERTMANAGER.read_text())["inhibit_rules"]:
        (source,), _ = meant(each["source_matchers"])
        targets, pattern = meant(each["target_matchers"])
        assert len(targets) == 1 + pattern.count("|"), pattern
        assert source not in targets and "job" in each["equal"]
        for target in targets:
            assert severities[target] <= severities[source], (source, target)
