"""The demonstration as a newcomer meets it: its arguments, its summary, the daemon it leaves behind."""
import json
import os
import re
import signal
import subprocess
import urllib.request

import pytest

import gyrostatd

ROOT = os.environ["GYROSTAT_SOURCE_DIR"]
ARM = {"steps", "peak_logit", "final_loss", "loss_spikes", "spike_score"}


def demo(*arguments):
    """The part of deploy/quickstart that comes after building, with the build under test, at the daemon's pace."""
    path = (f"{gyrostatd.BIN.parent}/python", f"{ROOT}/deploy/demo", f"{ROOT}/tests/support")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    program = f"{ROOT}/deploy/demo/quickstart.py"
    command = ["/usr/bin/python3", "-m", "pacing", program, "--build", gyrostatd.BIN.parent.name, "--any-port"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=600, env=environment)


def test_the_summary_has_every_field_and_the_daemon_stays_where_asked(tmp_path):
    summary = tmp_path / "summary.json"
    done = demo("--steps", "90", "--tau", "20", "--summary", str(summary), "--keep")
    assert done.returncode == 0, done.stdout + done.stderr
    pid = int(re.search(r"process (\d+);", done.stdout).group(1))
    try:
        page = re.search(r"http://[^ /]+/", done.stdout).group(0)
        with urllib.request.urlopen(page + "metrics", timeout=120) as answer:
            assert b'gyrostat_step{run="quickstart-guarded"} 89' in answer.read()
    finally:
        os.kill(pid, signal.SIGTERM)
    result = json.loads(summary.read_text())
    assert set(result) == {"tau", "unguarded", "guarded", "step_time_ratio"}
    assert set(result["unguarded"]) == ARM
    assert set(result["guarded"]) == ARM | {"interventions", "orders_applied", "median_delay_steps"}
    assert result["tau"] == 20 and result["guarded"]["steps"] == 90
    assert result["guarded"]["peak_logit"] < result["unguarded"]["peak_logit"]
    assert result["guarded"]["interventions"] >= 1 and result["guarded"]["median_delay_steps"] <= 2
    assert "largest attention logit" in done.stdout and "Where to look next" in done.stdout


def test_a_run_too_short_to_clip_still_ends_with_a_table(tmp_path):
    summary = tmp_path / "summary.json"
    done = demo("--steps", "5", "--summary", str(summary))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(summary.read_text())["guarded"]["median_delay_steps"] is None


def test_a_daemon_that_never_says_that_it_is_ready_is_ended(tmp_path):
    mute = tmp_path / "gyrostatd"
    mute.write_text("#!/bin/sh\nexec sleep 1000\n")
    mute.chmod(0o755)
    program = ("import sys, quickstart; quickstart.READY_TIMEOUT_S = 0.1; "
               "quickstart.Daemon(sys.argv[1], sys.argv[1], 30, (0, 0))")
    path = os.pathsep.join([f"{gyrostatd.BIN.parent}/python", f"{ROOT}/deploy/demo"])
    done = subprocess.run(["/usr/bin/python3", "-c", program, tmp_path], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 1 and "DemoError: gyrostatd did not start within 0.1 s" in done.stderr, done.stderr


@pytest.mark.parametrize("arguments, text", [
    (["--steps", "many"], "--steps many: wanted a whole number"),
    (["--tau", "-3"], "--tau -3: wanted a number"),
    (["--attention", "mla"], "--attention mla: wanted mha or gqa"),
    (["--summary", "/nowhere/summary.json"], "there is no folder /nowhere"),
    (["--fast"], "unknown option --fast"),
    (["--seed"], "--seed needs a value"),
])
def test_a_slip_is_told_before_anything_is_built(arguments, text):
    done = subprocess.run([f"{ROOT}/deploy/quickstart", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and text in done.stderr, done.stdout + done.stderr
