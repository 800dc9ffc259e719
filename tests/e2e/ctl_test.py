"""gyrostatctl from the outside: every command against a real gyrostatd that a synthetic job feeds."""
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import time

import pytest

import gyrostatd
from gyrostatd import BIN, wait_until

CTL = BIN / "gyrostatctl"
ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "USER": "ada"}
RUN_FIELDS = {"run", "attempt", "state", "mode", "step", "ranks", "last_report_at", "findings_open",
              "interventions_pending"}
FINDING_FIELDS = {"id", "attempt", "episode", "rules", "detector", "severity", "signal", "layer", "head", "rank",
                  "step_begin", "step_detected", "step_end", "healed", "value", "expected", "message", "recommend"}
# Until the test ends it; the heads pass tau 30 after some 30 steps.
RUNAWAY = ("--scenario", "runaway", "--steps", 1000000, "--rate", 100, "--allow", "qk_clip")
INTERVENTION_FIELDS = {"id", "kind", "state", "outcome", "mode", "reason", "author", "step_proposed", "step_applied",
                       "orders"}


def run(*words, address=None, **environment):
    command = [CTL, *map(str, words)] + (["--address", address] if address else [])
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**ENVIRONMENT, **environment})


def objects(daemon, *words):
    done = run(*words, "--json", address=daemon.grpc)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class Load:
    """A gyrostat-loadgen in the background; ended with the test."""

    def __init__(self, daemon, *words):
        self.process = subprocess.Popen([BIN / "gyrostat-loadgen", "--address", daemon.grpc, *map(str, words)],
                                        stdout=subprocess.PIPE, text=True)

    def finish(self):
        out, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, out
        return [json.loads(line) for line in out.splitlines()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with gyrostatd.Daemon(tmp_path_factory.mktemp("ctl"), config="policy:\n  qk_clip:\n    tau: 30\n") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def watched(daemon):
    """A run in mode observe whose heads ran away, finished."""
    with Load(daemon, "--run", "watched", "--scenario", "runaway", "--steps", 200) as load:
        load.finish()
    return "watched"


def test_runs_tells_the_fields_of_the_contract(daemon, watched):
    (entry,) = [each for each in objects(daemon, "runs") if each["run"] == watched]
    assert RUN_FIELDS <= set(entry)
    assert entry["state"] == "ended" and entry["mode"] == "observe"
    assert entry["step"] == 199 and entry["ranks"] == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["last_report_at"])
    assert re.fullmatch(r"[0-9a-f]{32}", entry["attempt"])
    text = run("runs", address=daemon.grpc).stdout
    assert re.search(r"^watched +ended +observe +199 ", text, re.M)


def test_findings_tells_what_ran_away_and_fails_when_asked_to(daemon, watched):
    findings = objects(daemon, "findings", watched)
    over = [each for each in findings if each["detector"] == "attn_logit"]
    assert over and all(FINDING_FIELDS <= set(each) for each in findings)
    assert over[0]["rules"] == "gyrostat" and over[0]["signal"] == "attn_logit_max"
    assert over[0]["recommend"] == "qk_clip" and over[0]["value"] > 30
    worst = {each["severity"] for each in findings}
    assert run("findings", watched, "--fail-on", "warning", address=daemon.grpc).returncode == \
        (1 if worst & {"warning", "critical"} else 0)
    assert "attn_logit" in run("findings", watched, address=daemon.grpc).stdout


def test_show_tells_everything_about_a_run(daemon, watched):
    (view,) = objects(daemon, "show", watched)
    assert RUN_FIELDS <= set(view)
    assert view["model"]["layers"] == 4 and view["model"]["heads"] == 8
    assert view["tau"] == 30 and view["heads_over_tau"] == 4
    assert len(view["layer_attn_logit_max"]) == 4 and len(view["worst_heads"]) == 8
    assert view["worst_heads"][0]["value"] > 1000
    assert view["reports_total"] == 200 and view["scalars"]["learning_rate"] == 3e-4
    text = run("show", watched, address=daemon.grpc).stdout
    assert "4 heads over 30" in text and "job allows" in text


def test_one_episode_joins_what_was_found(daemon, watched):
    (episode,) = objects(daemon, "episodes", watched)
    assert episode["cause"] == "attention_logits" and episode["recommend"] == "qk_clip"
    assert episode["causes"][0]["weight"] > 0.5 and episode["evidence"]
    findings = objects(daemon, "findings", watched)
    assert {each["episode"] for each in findings if each["severity"] != "info"} == {episode["id"]}
    # What came back after its end is one condition, and two findings.
    assert 0 < episode["findings"] <= sum(each["episode"] == episode["id"] for each in findings)
    (view,) = objects(daemon, "show", watched)
    assert view["episode"] == episode
    for command in ("show", "episodes"):
        text = run(command, watched, address=daemon.grpc).stdout
        assert "Attention logits run away, first in layer" in text and "Evidence:" in text, text
    assert run("episodes", "nowhere", address=daemon.grpc).returncode == 1


def test_series_gives_each_step_of_a_head(daemon, watched):
    points = objects(daemon, "series", watched, "attn_logit_max", "--layer", 0, "--head", 0, "--from", 100, "--to", 149)
    assert [each["step"] for each in points] == list(range(100, 150))
    assert points[-1]["value"] > 4 * points[0]["value"]
    lines = run("series", watched, "loss", "--from", 198, address=daemon.grpc).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["198", "199"]


def test_series_refuses_what_is_not_there(daemon, watched):
    for words in (["nowhere", "loss"], [watched, "no_such_signal"],
                  [watched, "attn_logit_max", "--layer", 99, "--head", 0]):
        done = run("series", *words, address=daemon.grpc)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.startswith("gyrostatctl: "), words


def test_an_unknown_run_or_id_is_named(daemon):
    for words in (["show", "nobody"], ["findings", "nobody"], ["interventions", "nobody"], ["mode", "nobody", "act"],
                  ["watch", "nobody"]):
        done = run(*words, address=daemon.grpc)
        assert done.returncode == 1 and "nobody" in done.stderr, (words, done)
    for words in (["approve", "nobody/1"], ["reject", "nobody/1", "--reason", "no"], ["approve", "no-slash"]):
        done = run(*words, address=daemon.grpc)
        assert done.returncode == 1 and done.stderr.startswith("gyrostatctl: "), (words, done)


def test_a_proposal_waits_for_approval_and_then_clips(daemon):
    with Load(daemon, "--run", "advised", *RUNAWAY):
        wait_until(lambda: any(each["run"] == "advised" for each in objects(daemon, "runs")), "the run is known")
        assert objects(daemon, "mode", "advised", "advise") == [{"run": "advised", "mode": "advise"}]

        def proposed():
            return [each for each in objects(daemon, "interventions", "advised") if each["state"] == "proposed"]

        (intent,) = wait_until(proposed, "a proposal")
        assert INTERVENTION_FIELDS <= set(intent)
        assert intent["kind"] == "qk_clip" and intent["outcome"] is None and intent["orders"] == 0
        (entry,) = [each for each in objects(daemon, "runs") if each["run"] == "advised"]
        assert entry["interventions_pending"] == 1
        (approved,) = objects(daemon, "approve", intent["id"], "--reason", "looks right")
        assert approved["id"] == intent["id"] and approved["state"] in ("approved", "sent", "applied")

        def applied():
            (now,) = [each for each in objects(daemon, "interventions", "advised") if each["id"] == intent["id"]]
            return now if now["step_applied"] is not None else None

        assert wait_until(applied, "the clip is applied")["orders_applied"] > 0
        again = run("approve", intent["id"], address=daemon.grpc)
        assert again.returncode == 1 and intent["id"] in again.stderr


def test_a_rejected_proposal_sends_nothing(daemon):
    with Load(daemon, "--run", "rejected", *RUNAWAY):
        wait_until(lambda: any(each["run"] == "rejected" for each in objects(daemon, "runs")), "the run is known")
        objects(daemon, "mode", "rejected", "advise")
        (intent,) = wait_until(lambda: [each for each in objects(daemon, "interventions", "rejected")
                                        if each["state"] == "proposed"], "a proposal")
        (answer,) = objects(daemon, "reject", intent["id"], "--reason", "the data was bad", "--author", "eve")
        assert answer["state"] == "rejected" and answer["author"] == "eve" and answer["orders"] == 0


def test_mode_all_is_a_kill_switch(daemon):
    with Load(daemon, "--run", "killed", "--runs", 2, "--steps", 1000000, "--rate", 50, "--allow", "qk_clip"):
        names = {"killed-0", "killed-1"}
        wait_until(lambda: names <= {each["run"] for each in objects(daemon, "runs")}, "both runs are known")
        for name in names:
            objects(daemon, "mode", name, "act")
        changed = objects(daemon, "mode", "--all", "observe", "--reason", "drill")
        assert names <= {each["run"] for each in changed}
        modes = {each["run"]: each["mode"] for each in objects(daemon, "runs")}
        assert set(modes.values()) == {"observe"}


def test_watch_prints_one_object_an_update(daemon):
    with Load(daemon, "--run", "seen", "--steps", 1000000, "--rate", 100):
        wait_until(lambda: any(each["run"] == "seen" for each in objects(daemon, "runs")), "the run is known")
        done = run("watch", "seen", "--json", "--count", 3, "--interval", 0.2, address=daemon.grpc)
        assert done.returncode == 0, done.stderr
        views = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(views) == 3
        assert views[0]["step"] < views[1]["step"] < views[2]["step"]


def screen(words, environment, until, deadline_s=gyrostatd.DEADLINE_S):
    """What a command writes to an 80 x 24 terminal until `until` matches; then Ctrl-C."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(CTL, [str(CTL), *map(str, words)], environment)
    import fcntl
    import struct
    import termios
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    seen, end = "", time.monotonic() + deadline_s
    while not re.search(until, seen) and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 65536).decode()
            except OSError:
                break
    os.write(terminal, b"\x03")
    os.waitpid(pid, 0)
    os.close(terminal)
    assert re.search(until, seen), seen
    return seen


def test_watch_redraws_one_screen_on_a_terminal(daemon, watched):
    environment = {**ENVIRONMENT, "TERM": "xterm", "GYROSTAT_ADDRESS": daemon.grpc}
    seen = screen(["watch", watched, "--interval", 0.1], environment, r"(?s)\x1b\[H.*\x1b\[H.*\x1b\[J")
    assert "\x1b[1m" in seen and "4 heads over 30" in seen and "open findings" in seen
    frames = seen.split("\x1b[H")[1:-1]
    assert frames and all(frame.count("\n") <= 23 for frame in frames)
    plain = screen(["watch", watched, "--interval", 0.1], {**environment, "NO_COLOR": "1"}, "open findings")
    assert "\x1b[1m" not in plain and "\x1b[3" not in plain


def test_nobody_there_is_exit_code_3(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound and not listening: refuses.
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for words in (["runs"], ["show", "x"], ["mode", "--all", "observe"], ["watch", "x"], ["series", "x", "loss"]):
            done = run(*words, address=address)
            assert done.returncode == 3 and done.stdout == "", words
            assert f"no gyrostatd answers at {address}" in done.stderr and "--address" in done.stderr


def test_a_daemon_that_hangs_is_given_up_in_the_end(daemon):
    daemon.signal(signal.SIGSTOP)
    try:
        done = run("runs", address=daemon.grpc)
    finally:
        daemon.signal(signal.SIGCONT)
    assert done.returncode == 3 and "no gyrostatd answers" in done.stderr
    assert run("runs", address=daemon.grpc).returncode == 0


def test_a_listener_that_is_no_daemon_is_exit_code_3(daemon):
    done = run("runs", address=daemon.http)
    assert done.returncode == 3 and daemon.http in done.stderr


def test_address_comes_from_the_environment(daemon):
    assert run("runs", GYROSTAT_ADDRESS=daemon.grpc).returncode == 0


def test_a_token_file_that_is_none_is_an_error(daemon, tmp_path):
    done = run("runs", "--token-file", tmp_path / "none", address=daemon.grpc)
    assert done.returncode == 1 and "none cannot be read" in done.stderr
    good = tmp_path / "token"
    good.write_text("s3cret\n")
    done = run("runs", "--token-file", good, address=daemon.grpc)
    assert done.returncode == 0 and "s3cret" not in done.stdout + done.stderr


def test_doctor_finds_the_daemon_well_and_says_what_is_wrong(daemon):
    checks = {each["check"]: each for each in objects(daemon, "doctor")}
    for name in ("daemon", "version", "ready", "grpc health", "journal", "http", "disk", "client library"):
        assert checks[name]["verdict"] == "ok", checks[name]
    done = run("doctor", "--data-dir", daemon.data_dir, address="127.0.0.1:1")
    assert done.returncode == 3
    assert f"use --address {daemon.grpc}" in done.stdout


def test_usage_is_exit_code_2():
    for words in ([], ["nonsense"], ["show"], ["mode", "x"], ["mode", "x", "y"], ["mode", "", "act"], ["reject", "x/1"],
                  ["runs", "--no"], ["runs", "--address", "localhost"]):
        done = run(*words)
        assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith("gyrostatctl: "), words


def test_every_command_has_help_with_an_example():
    names = re.findall(r"^  ([a-z-]+) {2,}", run("--help").stdout.split("Subcommands:")[1], re.M)
    assert {"runs", "show", "findings", "interventions", "approve", "reject", "propose", "mode", "watch", "series",
            "check-config",
            "doctor", "qk-clip", "deepnorm", "warmup"} <= set(names)
    for name in names:
        done = run(name, "--help")
        assert done.returncode == 0 and f"gyrostatctl {name}" in done.stdout, name
        for option in ("--json", "--address", "--token-file"):
            assert option in done.stdout, name


def test_check_config_agrees_with_the_daemon(tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("policy:\n  mode: acting\n")
    done = run("check-config", bad)
    assert done.returncode == 1 and f"{bad}:2: policy.mode" in done.stderr
    daemon_says = subprocess.run([BIN / "gyrostatd", "--config", bad, "--check"], capture_output=True, text=True,
                                 timeout=60)
    assert daemon_says.returncode != 0 and "policy.mode" in daemon_says.stderr
    bad.write_text("policy:\n  mode: act\n")
    assert json.loads(run("check-config", bad, "--json").stdout) == {"file": str(bad), "valid": True, "errors": []}


def test_deepnorm_has_the_constants_of_the_paper():
    done = run("deepnorm", "--arch", "encoder-decoder", "--layers", 6, "--decoder-layers", 6, "--json")
    assert done.returncode == 0, done.stderr
    stacks = json.loads(done.stdout)
    assert stacks["encoder"]["alpha"] == pytest.approx(1.4179, abs=5e-5)
    assert stacks["encoder"]["beta"] == pytest.approx(0.4970, abs=5e-5)
    assert stacks["decoder"]["alpha"] == pytest.approx(2.0598, abs=5e-5)
    assert stacks["decoder"]["beta"] == pytest.approx(0.3433, abs=5e-5)
    assert stacks["decoder"]["budget"] == pytest.approx(1)
    assert json.loads(run("deepnorm", "--arch", "decoder", "--layers", 24, "--json").stdout)["encoder"] is None
    assert run("deepnorm", "--arch", "encoder-decoder", "--layers", 6).returncode == 1
    assert run("deepnorm", "--arch", "rnn", "--layers", 6).returncode == 2


def test_warmup_drops_at_once_and_meets_the_schedule():
    words = ["warmup", "--kind", "cosine", "--peak", 1e-3, "--warmup", 1000, "--total", 20000, "--at", 300]
    done = run(*words, "--to", 2000, "--steps", "299,300,1999,2000", "--json")
    assert done.returncode == 0, done.stderr
    rates = [each["rate"] for each in json.loads(done.stdout)["steps"]]
    assert rates == pytest.approx([2.99e-4, 1.489771e-4, 9.926841e-4, 9.931807e-4], rel=1e-6)
    refused = run(*words, "--to", 9000)
    assert refused.returncode == 1 and "8 times the declared one" in refused.stderr
    assert run(*words, "--steps", "1.5").returncode == 2


def test_qk_clip_names_the_rows_of_mla():
    done = run("qk-clip", "--tau", 100, "--logits", "50,400", "--variant", "mla", "--nope-dim", 128, "--rope-dim", 64,
               "--v-dim", 128, "--json")
    head = json.loads(done.stdout)["heads"][1]
    assert (head["q"], head["k"], head["q_rope"]) == (0.5, 0.5, 0.25)
    assert head["rows"]["q_b_proj rows 320..383"] == 0.25


def test_a_full_disk_behind_stdout_is_not_success():
    with open("/dev/full", "w") as full:
        done = subprocess.run([CTL, "qk-clip", "--tau", "1", "--logits", "2"], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=60)
    assert done.returncode == 1 and "could not be written" in done.stderr


def test_completion_completes_in_a_real_bash():
    script = f"""
    source <({CTL} completion bash)
    COMP_WORDS=(gyrostatctl mode gpt a) COMP_CWORD=3
    _gyrostatctl
    echo "${{COMPREPLY[@]}}"
    COMP_WORDS=(gyrostatctl fi) COMP_CWORD=1
    _gyrostatctl
    echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["advise act", "findings"], done
