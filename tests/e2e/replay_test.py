"""gyrostatctl replay, export and check-model from the outside: whole files in, objects out, and the same findings as a
live daemon has."""
import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest

import gyrostatd
from gyrostatd import BIN

CORPUS = Path(os.environ["GYROSTAT_SOURCE_DIR"]) / "tests/corpus"
ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "USER": "ada"}
# What an export cannot carry: names that a data directory gives, and a detector that needs the clock.
LIVE_ONLY = ("id", "run", "attempt", "episode")


def ctl(*words, stdin=None):
    return subprocess.run([BIN / "gyrostatctl", *map(str, words)], capture_output=True, text=True, timeout=120,
                          env=ENVIRONMENT, input=stdin)


def objects(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def own_logs():
    return sorted(path for path in CORPUS.iterdir() if path.is_file() and path.suffix != ".md")


def test_every_own_log_in_one_call():
    runs = objects(ctl("replay", "--json", *own_logs()))
    assert {run["file"] for run in runs} == {str(path) for path in own_logs()}
    assert all(run["steps"] >= 50 and "loss" in run["signals"] for run in runs)


def test_help_teaches():
    text = ctl("replay", "--help").stdout
    for word in ("--format", "hf-trainer", "--run-column", "--map", "--model", "--rules", "--html", "--fail-on",
                 "--findings", "Examples:", "gyrostatctl replay train.log"):
        assert word in text, word


def test_usage_names_what_there_is():
    done = ctl("replay", "--map", "los=x", CORPUS / "rows.jsonl")
    assert done.returncode == 2 and "there are: step, loss" in done.stderr
    assert ctl("replay", "--format", "excel", CORPUS / "rows.jsonl").returncode == 2
    assert ctl("replay", "--rules", "gut-feeling", CORPUS / "rows.jsonl").returncode == 2
    assert ctl("replay").returncode == 2


def test_the_standard_input_is_a_file():
    (run,) = objects(ctl("replay", "--json", "-", stdin=(CORPUS / "rows.jsonl").read_text()))
    assert run["steps"] == 60 and run["run"] == "stdin"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with gyrostatd.Daemon(tmp_path_factory.mktemp("replay")) as daemon:
        subprocess.run([BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", "live", "--scenario", "runaway",
                        "--steps", "300", "--layers", "2", "--heads", "4"],
                       check=True, capture_output=True, timeout=120)
        yield daemon


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_an_export_replays_to_what_the_daemon_found(daemon, tmp_path, format):
    live = objects(ctl("findings", "live", "--json", "--address", daemon.grpc))
    done = ctl("export", "live", "--format", format, "--address", daemon.grpc)
    assert done.returncode == 0, done.stderr
    path = tmp_path / f"live.{format}"
    path.write_text(done.stdout)
    (run,) = objects(ctl("replay", "--json", path))
    assert run["steps"] == 300 and run["skipped_rows"] == 0 and run["warnings"] == []
    wanted = [{key: value for key, value in each.items() if key not in LIVE_ONLY} for each in live
              if each["detector"] != "silence"]
    assert any(each["detector"] == "attn_logit" for each in wanted)
    if format == "csv":  # A table says nothing about the model, and how the maxima were made.
        assert {each["detector"] for each in run["findings"]} >= {"attn_logit"}
    else:
        assert run["findings"] == wanted
        (episode,) = objects(ctl("episodes", "live", "--json", "--address", daemon.grpc))
        assert episode["headline"] in ctl("replay", path).stdout


def load(daemon, run, **options):
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    subprocess.run([BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", run, *words], check=True,
                   capture_output=True, timeout=120)


def found(daemon, run):
    live = objects(ctl("findings", run, "--json", "--address", daemon.grpc))
    return [{key: value for key, value in each.items() if key not in LIVE_ONLY} for each in live
            if each["detector"] != "silence"]


def test_attempts_and_wide_arrays_are_exported_whole(daemon, tmp_path):
    load(daemon, "again", scenario="spike", steps=200, layers=40, heads=40)
    load(daemon, "again", scenario="runaway", steps=170, layers=40, heads=40)
    path = tmp_path / "again.jsonl.gz"
    (told,) = objects(ctl("export", "again", "--out", path, "--json", "--address", daemon.grpc))
    assert told == {"run": "again", "file": str(path), "format": "jsonl", "reports": 370, "attempts": 2}
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    heads = [row for row in rows if "gyrostat" in row]
    assert len(heads) == 2 and len({head["attempt"] for head in heads}) == 2
    assert heads[0]["model"]["heads"] == 40 and heads[0]["attn_logit"]["kind"] == "exact"
    maxima = rows[1]["attn_logit_max"]
    assert len(maxima) == 40 and {len(layer) for layer in maxima} == {40}
    (run,) = objects(ctl("replay", "--json", path))
    assert run["run"] == "again" and run["steps"] == 200 and run["warnings"] == []
    assert run["findings"] == found(daemon, "again")
    assert {each["detector"] for each in run["findings"]} >= {"loss_spike", "attn_logit"}


def test_some_steps_and_some_signals(daemon, tmp_path):
    done = ctl("export", "live", "--from", "10", "--to", "12", "--signals", "loss,attn_logit_max", "--address",
               daemon.grpc)
    rows = [json.loads(line) for line in done.stdout.splitlines()][1:]
    assert [row["step"] for row in rows] == [10, 11, 12]
    assert all(set(row) <= {"step", "loss", "attn_logit_max", "report"} for row in rows)
    done = ctl("export", "live", "--format", "csv", "--from", "10", "--to", "12", "--signals", "loss", "--address",
               daemon.grpc)
    assert done.stdout.splitlines()[0] == "step,attempt,loss" and len(done.stdout.splitlines()) == 4
    done = ctl("export", "live", "--from", "100000", "--address", daemon.grpc)
    assert done.returncode == 1 and done.stderr == "gyrostatctl: live has no reports of these steps.\n"
    done = ctl("export", "live", "--signals", "no_such", "--address", daemon.grpc)
    assert done.stderr == "gyrostatctl: no report has no_such.\n"
    done = ctl("export", "dead", "--out", tmp_path / "dead.jsonl", "--address", daemon.grpc)
    assert done.returncode == 1 and "run dead is not known" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_check_model_knows_config_json(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "qwen3", "num_hidden_layers": 4, "num_attention_heads": 8,
                                  "num_key_value_heads": 2}))
    (seen,) = objects(ctl("check-model", "--json", config))
    assert seen["valid"] and seen["model"]["qk_norm"] == "per_head" and seen["model"]["attention"] == "gqa"
    config.write_text("{")
    assert ctl("check-model", config).returncode == 1
