"""The dashboards as files: what the generator says, valid under Grafana's published schemas, importable anywhere.

Rendering cannot be proved without a Grafana. The names in brackets are rules of grafana/dashboard-linter."""
import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from committed import DASHBOARDS, boards, data_panels, metrics, named, board_queries

SCHEMAS = os.environ.get("GYROSTAT_GRAFANA_SCHEMA", "")
BOARDS = boards()
every_board = pytest.mark.parametrize("name", BOARDS)
KINDS = {"state-timeline": "statetimeline"}  # Where a panel's type and its schema differ in name.


def test_there_are_four_and_they_are_what_the_generator_says(tmp_path):
    assert sorted(BOARDS) == ["fleet.json", "gyrostatd.json", "interventions.json", "run.json"]
    checked = subprocess.run([DASHBOARDS / "generate", "--check"], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    subprocess.run([DASHBOARDS / "generate", "--out", tmp_path], check=True, capture_output=True)
    stale = tmp_path / "grafana/run.json"
    stale.write_text(stale.read_text().replace("Loss", "Los"))
    checked = subprocess.run([DASHBOARDS / "generate", "--check", "--out", tmp_path], capture_output=True, text=True)
    assert checked.returncode == 1 and checked.stdout.startswith("grafana/run.json: is not what")


def test_runbooks_can_be_published_anywhere(tmp_path):
    subprocess.run([DASHBOARDS / "generate", "--out", tmp_path, "--runbooks", "https://books.example/g/"], check=True,
                   capture_output=True)
    written = "".join(path.read_text() for path in tmp_path.rglob("*.*"))
    assert "127.0.0.1" not in written and written.count("https://books.example/g/Gyrostat") > 40


# Schemas.

@cache
def schema(name):
    return json.loads((Path(SCHEMAS) / f"{name}.jsonschema.json").read_text())


def errors(document, name, definition=None):
    """Faults of a document under a published schema, or under one definition of it."""
    whole = schema(name)
    root = {"definitions": whole["definitions"], "$ref": f"#/definitions/{definition}" if definition else whole["$ref"]}
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            for error in jsonschema.Draft7Validator(root).iter_errors(document)]


def panel_errors(panel):
    kind = KINDS.get(panel["type"], panel["type"])
    units = {each["const"] for each in schema("units")["definitions"].values() if "const" in each}
    found = errors(panel["options"], kind, "Options")
    if "custom" in panel["fieldConfig"]["defaults"]:
        found += errors(panel["fieldConfig"]["defaults"]["custom"], kind, "FieldConfig")
    for target in panel["targets"]:
        found += errors(target, "prometheus")
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return found + ([] if unit in units else [f"unit {unit}: not one of Grafana's"])


@pytest.fixture
def schemas():
    if not os.path.isdir(SCHEMAS):
        pytest.skip("$GYROSTAT_GRAFANA_SCHEMA names no folder with Grafana's published JSON schemas")


@every_board
def test_the_published_schemas_find_no_fault(schemas, name):
    assert errors(BOARDS[name], "dashboard") == []
    for panel in data_panels(BOARDS[name]):
        assert panel_errors(panel) == [], panel["title"]


def test_the_published_schemas_would_find_faults(schemas):
    board = json.loads(json.dumps(BOARDS["run.json"]))
    board["panels"][1]["titel"] = "x"
    assert errors(board, "dashboard")
    for panel in data_panels(BOARDS["run.json"]):
        for place in ("options", "custom"):
            broken = json.loads(json.dumps(panel))
            within = broken["options"] if place == "options" else broken["fieldConfig"]["defaults"].get("custom")
            if within is None or (place == "custom" and panel["type"] == "table"):
                continue
            within["bogus"] = 1
            assert panel_errors(broken), (panel["title"], place)


# Import and provisioning.

@every_board
def test_it_can_be_imported_and_provisioned(name):
    board = BOARDS[name]
    assert board["uid"].startswith("gyrostat-") and board["id"] is None and "__inputs" not in board
    assert board["graphTooltip"] == 1 and board["editable"] is False and board["refresh"]  # [uneditable-dashboard]
    first = board["templating"]["list"][0]  # [template-datasource-rule]
    assert (first["type"], first["query"], first["name"], first["label"]) == (
        "datasource", "prometheus", "datasource", "Data source")
    # No data source of ours: Grafana takes an absent `current` as {}, and the schema forbids an empty one.
    assert "current" not in first
    assert any(each["name"] == "job" for each in board["templating"]["list"])  # [template-job-rule]
    for each in board["templating"]["list"][1:]:
        assert each["refresh"] == 2 and each["datasource"]["uid"] == "${datasource}"  # [template-on-time-change-reload]
        assert each["description"] and (not each["multi"] or each["allValue"] == ".+")
    assert any("runbooks" in link["title"].lower() and link["url"].endswith("/README.md") for link in board["links"])
    assert any(link["type"] == "dashboards" and link["keepTime"] and link["includeVars"] for link in board["links"])
    wanted = [] if name == "gyrostatd.json" else ["Findings", "Interventions"]
    assert [each["name"] for each in board["annotations"]["list"]] == wanted
    for each in board["annotations"]["list"]:
        assert each["datasource"]["uid"] == "${datasource}"


@every_board
def test_every_panel_says_what_it_shows(name):
    titles = [panel["title"] for panel in data_panels(BOARDS[name])]
    assert len(titles) == len(set(titles)), "each title once: the tests name panels by it"
    for panel in data_panels(BOARDS[name]):
        title = panel["title"]
        assert title and panel["description"].endswith(".")  # [panel-title-description-rule]
        assert panel["fieldConfig"]["defaults"]["unit"], title  # [panel-units-rule]
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert steps[0]["value"] is None and [s["value"] for s in steps[1:]] == sorted(s["value"] for s in steps[1:])
        assert panel["datasource"]["uid"] == "${datasource}"  # [panel-datasource-rule]
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"]), title
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0


def test_panels_link_to_runbooks_and_runs():
    linked = set()
    for board in BOARDS.values():
        for panel in data_panels(board):
            for link in panel.get("links", []):
                linked.add(link["url"].rsplit("/", 1)[1])
                assert link["title"] + ".md" == link["url"].rsplit("/", 1)[1]
    assert len(linked) >= 20 and all((DASHBOARDS / "runbooks" / page).exists() for page in linked)
    assert [panel["title"] for panel in data_panels(BOARDS["fleet.json"])
            if "/d/gyrostat-run?" in json.dumps(panel)][:1] == ["Every run"]


def test_the_run_has_its_maps_of_layers_over_time():
    maps = {panel["title"]: panel for panel in data_panels(BOARDS["run.json"]) if panel["type"] == "heatmap"}
    over_layers = [title for title in maps if "layer × time" in title]
    assert len(over_layers) >= 4
    for title in over_layers:  # Not `le`: the data source would take the difference of neighbours.
        (target,) = maps[title]["targets"]
        assert target["format"] == "time_series" and target["legendFormat"] == "{{layer}}"
        assert maps[title]["options"]["calculate"] is False


@every_board
def test_the_layout_has_no_hole_and_no_overlap(name):
    panels = BOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = set()
    for panel in panels:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not mine & cells and max(x for x, _ in mine) < 24, panel["title"]
        cells |= mine
    assert len(cells) == 24 * (1 + max(y for _, y in cells))
    assert panels[0]["type"] == "row" and panels[0]["title"].endswith("?"), "the first row answers one question"


# Queries.

@every_board
def test_queries_name_metrics_and_labels_that_exist(name):
    known = metrics()
    for place in board_queries(name, BOARDS[name]):
        assert named(place.expr), place
        for metric, labels in named(place.expr):
            assert metric in known, place
            assert set(labels) <= set(known[metric]), (place, metric)
            if place.kind == "panel":  # [target-job-rule]
                assert "job" in labels, place
        if place.kind != "variable" and re.search(r"\b(rate|increase|changes)\(", place.expr):
            assert "[$__rate_interval]" in place.expr or "[30m]" in place.expr, place  # [target-rate-interval-rule]


# Provisioning and compose files.

def test_the_provisioning_files_and_the_compose_file_fit_together():
    def read(name):
        return yaml.safe_load((DASHBOARDS / name).read_text())
    compose = read("compose.yaml")["services"]
    (provider,) = read("grafana/provisioning/dashboards/gyrostat.yaml")["providers"]
    (source,) = read("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    mounts = dict(each.split(":")[:2] for each in compose["grafana"]["volumes"])
    assert mounts["./grafana"] == provider["options"]["path"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    flags = dict(each.split("=", 1) for each in compose["prometheus"]["command"])
    assert source["url"] == "http://" + flags["--web.listen-address"]
    assert BOARDS["fleet.json"]["links"][1]["url"].startswith(source["url"] + "/user/")
    for service in compose.values():
        assert service["network_mode"] == "host"
        for volume in service["volumes"]:
            if volume.startswith("."):
                assert (DASHBOARDS / volume.split(":")[0]).is_dir(), volume
    home = compose["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DASHBOARDS / "grafana" / Path(home).name).exists()
