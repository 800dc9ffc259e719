"""gyrostatd from the outside: command line, life, probes, metrics, reload, strangers, a disk that takes no more."""
import json
import math
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from gyrostatd import BIN, READY, Daemon, wait_until

SOURCE = Path(os.environ["GYROSTAT_SOURCE_DIR"])
GYROSTATD = BIN / "gyrostatd"


def run(*words, **environment):
    return subprocess.run([GYROSTATD, *map(str, words)], capture_output=True, text=True, timeout=60,
                          env={"PATH": os.environ["PATH"], **environment})


def load(daemon, *words, check=True):
    """Synthetic runs to their end."""
    return subprocess.run([BIN / "gyrostat-loadgen", "--address", daemon.grpc, *map(str, words)], check=check,
                          capture_output=True, text=True, timeout=120)


def samples(text):
    """{series: value} of a metrics text."""
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[:1] != "#"}


def metric(daemon, series):
    return samples(daemon.get("/metrics")[1]).get(series)


# Command line.

def test_help_version_and_usage():
    assert re.fullmatch(r"gyrostatd \d+\.\d+\.\d+\n", run("--version").stdout)
    assert "Examples:" in run("--help").stdout
    refused = run("--bogus")
    assert refused.returncode == 2 and "--bogus" in refused.stderr


def test_the_golden_list_of_metrics():
    assert run("--list-metrics").stdout == (SOURCE / "tests/golden/metrics.txt").read_text()


def test_the_default_configuration_is_the_shipped_one_and_valid():
    assert run("--print-default-config").stdout == (SOURCE / "deploy/gyrostat.yaml").read_text()
    checked = run("--check", "--config", SOURCE / "deploy/gyrostat.yaml")
    assert checked.returncode == 0 and checked.stdout.endswith("gyrostat.yaml: valid\n")


def test_check_says_all_that_is_wrong_with_a_file(tmp_path):
    path = tmp_path / "g.yaml"
    path.write_text("policy:\n  mode: atc\n  qk_clip: {tau: -1}\nlisten.http: 0.0.0.0:80\n")
    checked = run("--check", "--config", path)
    assert checked.returncode == 1 and checked.stdout == ""
    lines = checked.stderr.splitlines()
    assert lines[0] == f"{path}:2: policy.mode: saw 'atc', accepted is one of observe, advise, act"
    assert lines[1] == f"{path}:3: policy.qk_clip.tau: saw '-1', accepted is a number from 1 to 1000000"
    assert lines[2].startswith(f"{path}:4: listen.http: saw '0.0.0.0:80', accepted is a loopback address")
    assert len(lines) == 3


@pytest.mark.parametrize("flag", ["--grpc-listen", "--http-listen"])
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:0"])
def test_an_address_that_is_not_loopback_is_refused(tmp_path, flag, address):
    refused = run("--data-dir", tmp_path / "data", flag, address)
    assert refused.returncode == 1 and refused.stdout == ""
    assert refused.stderr.startswith(f"{flag}: saw '{address}', accepted is a loopback address")
    assert "neither TLS nor authentication" in refused.stderr
    assert not (tmp_path / "data").exists()


# Life.

def test_it_says_once_that_it_is_ready_and_where(tmp_path):
    with Daemon(tmp_path) as daemon:
        endpoints = json.loads((daemon.data_dir / "endpoints.json").read_text())
        assert endpoints == {"grpc": daemon.grpc, "http": daemon.http}
        assert daemon.get("/healthz")[:2] == (200, "ok\n")
        assert daemon.get("/readyz")[:2] == (200, "ready\n")
        assert "gyrostatctl" in daemon.get("/")[1]
        assert daemon.stop() == 0
        assert len(daemon.stdout_lines) == 1 and READY.match(daemon.stdout_lines[0])
        assert not (daemon.data_dir / "endpoints.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_drains_in_time_with_a_job_connected(tmp_path, number):
    with Daemon(tmp_path) as daemon:
        job = subprocess.Popen([BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", "r", "--steps", "100000",
                                "--rate", "200"], stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: (metric(daemon, 'gyrostat_step{run="r"}') or 0) > 20, "steps")
            daemon.signal(number)
            assert daemon.wait() == 0
        finally:
            job.kill()
            job.wait()
        daemon.start()
        assert metric(daemon, 'gyrostat_step{run="r"}') >= 20
        assert daemon.stop() == 0


def test_a_second_daemon_on_the_directory_is_refused_and_the_first_goes_on(tmp_path):
    with Daemon(tmp_path) as daemon:
        second = run(*daemon.command()[1:])
        assert second.returncode == 1 and second.stdout == ""
        assert f"data directory {daemon.data_dir} is in use by another gyrostatd" in second.stderr
        assert f"(pid {daemon.process.pid})" in second.stderr
        assert json.loads((daemon.data_dir / "endpoints.json").read_text())["grpc"] == daemon.grpc
        assert daemon.get("/readyz")[0] == 200


@pytest.mark.parametrize("flag,room", [("--grpc-listen", "grpc"), ("--http-listen", "http")])
def test_a_port_that_is_taken_is_named(tmp_path, flag, room):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        ports = {"--grpc-listen": "127.0.0.1:0", "--http-listen": "127.0.0.1:0", flag: address}
        refused = run("--data-dir", tmp_path, *[word for pair in ports.items() for word in pair])
        assert refused.returncode == 1 and refused.stdout == ""
        assert address in refused.stderr and "Address already in use" in refused.stderr
        assert not (tmp_path / "endpoints.json").exists()


def test_it_comes_back_after_a_kill(tmp_path):
    with Daemon(tmp_path) as daemon:
        load(daemon, "--run", "r", "--steps", 50)
        daemon.kill()
        assert (daemon.data_dir / "endpoints.json").exists()  # Stale, until the next start replaces it.
        daemon.start()
        assert json.loads((daemon.data_dir / "endpoints.json").read_text())["grpc"] == daemon.grpc
        assert metric(daemon, 'gyrostat_step{run="r"}') == 49
        assert metric(daemon, 'gyrostat_reports_total{run="r"}') == 50


def test_a_unix_socket_serves_as_well(tmp_path):
    directory = Path(tmp_path)
    daemon = Daemon(directory, args=["--grpc-listen", f"unix:{directory}/s"])
    command = daemon.command()
    at = command.index("--grpc-listen")
    del command[at:at + 2]  # The last word counts, but only once may a flag be given.
    daemon.command = lambda: command
    with daemon:
        assert daemon.grpc == f"unix:{directory}/s"
        load(daemon, "--run", "r", "--steps", 10)
        assert metric(daemon, 'gyrostat_step{run="r"}') == 9


# Metrics.

def test_metrics_are_well_formed_and_all_in_the_list(tmp_path):
    listed = {}
    for line in (SOURCE / "tests/golden/metrics.txt").read_text().splitlines():
        name, kind, labels, _ = line.split("\t")
        listed[name] = (kind, labels.split(",") if labels else [])
    with Daemon(tmp_path) as daemon:
        load(daemon, "--runs", 2, "--steps", 200, "--scenario", "spike")
        status, text, headers = daemon.get("/metrics")
        assert status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        if shutil.which("promtool"):
            lint = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            assert (lint.returncode, lint.stdout + lint.stderr) == (0, "")
        else:
            print("promtool is not installed (package prometheus): the format was not linted")
    shown = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    assert shown == {name: kind for name, (kind, _) in listed.items() if name in shown}
    for series in samples(text):
        name, labels = re.match(r"([^{]+)(?:\{(.*)\})?$", series).groups()
        name = re.sub(r"(_bucket|_sum|_count)$", "", name) if name not in listed else name
        names = [label for label in re.findall(r'(\w+)="', labels or "") if label != "le"]
        assert names == listed[name][1], series
    own = {name for name in listed if re.match(r"gyrostat_(engine|rpc|store|telemetry|web|config)_", name)}
    assert own <= set(shown)
    assert samples(text)['gyrostat_findings_total{run="load-0",detector="loss_spike",severity="critical"}'] == 0
    assert sum(value for series, value in samples(text).items()
               if series.startswith('gyrostat_findings_total{run="load-1",detector="loss_spike"')) >= 1


def test_all_heads_are_there_for_who_asks(tmp_path):
    with Daemon(tmp_path) as daemon:
        load(daemon, "--run", "r", "--steps", 3, "--layers", 3, "--heads", 2)
        status, text, headers = daemon.get("/metrics/heads?run=r&layers=1-2")
        assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lint = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        assert (lint.returncode, lint.stdout + lint.stderr) == (0, "")
        places = [re.findall(r'="(\w+)"', series) for series in samples(text)]
        assert places == [["r", str(layer), str(head)] for layer in (1, 2) for head in (0, 1)]
        assert len(samples(daemon.get("/metrics/heads?run=r")[1])) == 6
        assert max(samples(text).values()) <= metric(daemon, 'gyrostat_attention_logit_top{run="r",slot="1"}')
        assert daemon.get("/metrics/heads?run=s")[:2] == (404, "run: /metrics shows no run of this name\n")
        for wrong in ("", "?layers=1", "?run=r&layers=x", "?run=r&run=s", "?run=r&step=1"):
            assert daemon.get("/metrics/heads" + wrong)[0] == 400, wrong


def test_headroom_is_shown_where_the_stream_can_overflow(tmp_path):
    with Daemon(tmp_path) as daemon:
        load(daemon, "--run", "calm", "--steps", 100)
        load(daemon, "--run", "strained", "--steps", 100, "--scenario", "strained")
        # Grows 1 % a step from 4 sqrt(1 + layers) and has had 99 of them.
        left = 100 * math.log(65504 / (4 * math.sqrt(5))) - 99
        assert abs(metric(daemon, 'gyrostat_headroom_steps{run="strained"}') - left) < 0.1 * left
        assert metric(daemon, 'gyrostat_headroom_steps{run="calm"}') is None
        daemon.stop()
        daemon.start()
        assert metric(daemon, 'gyrostat_headroom_steps{run="strained"}') > 0, "after a restart too"


def test_a_client_that_does_not_compress_and_one_that_does_see_the_same(tmp_path):
    with Daemon(tmp_path) as daemon:
        packed = subprocess.run(["curl", "-sS", "--compressed", f"http://{daemon.http}/metrics"], capture_output=True,
                                text=True, check=True).stdout
        assert set(samples(packed)) == set(samples(daemon.get("/metrics")[1]))


# Reload.

def modes(daemon):
    out = subprocess.run([BIN / "gyrostatctl", "runs", "--json", "--address", daemon.grpc], capture_output=True,
                         text=True, check=True, timeout=60).stdout
    return {run["run"]: run["mode"] for run in map(json.loads, out.splitlines())}


def mount_config_map(directory, text):
    """The file as Kubernetes mounts a ConfigMap: a link through ..data, which a rename turns to another directory."""
    version = Path(tempfile.mkdtemp(prefix="..version", dir=directory))
    (version / "gyrostat.yaml").write_text(text)
    (directory / "..data_tmp").symlink_to(version.name)
    os.replace(directory / "..data_tmp", directory / "..data")
    link = directory / "mounted.yaml"
    if not link.is_symlink():
        link.symlink_to("..data/gyrostat.yaml")
    for old in directory.glob("..version*"):
        if old != version:
            shutil.rmtree(old)
    return link


@pytest.mark.parametrize("how", ["SIGHUP", "file", "in place", "ConfigMap"])
def test_a_reload_takes_effect_and_a_mistake_changes_nothing(tmp_path, how):
    def rewrite(text):
        draft = tmp_path / "draft"
        draft.write_text(text)
        if how == "ConfigMap":
            mount_config_map(tmp_path, text)
        elif how == "in place":
            daemon.config_path.write_text(text)
        else:
            os.replace(draft, daemon.config_path)
        if how == "SIGHUP":
            daemon.signal(signal.SIGHUP)

    daemon = Daemon(tmp_path, config="policy: {mode: observe}\n")
    if how == "ConfigMap":
        daemon.config_path = mount_config_map(tmp_path, "policy: {mode: observe}\n")
    with daemon:
        load(daemon, "--run", "first", "--steps", 2)
        assert metric(daemon, "gyrostat_config_last_reload_successful") == 1

        rewrite("policy: {mode: act}\nengine: {shards: 3}\n")
        wait_until(lambda: metric(daemon, "gyrostat_config_reloads_total"), "reload")
        load(daemon, "--run", "second", "--steps", 2)
        assert modes(daemon) == {"first": "observe", "second": "act"}, "what is running keeps its mode"
        assert re.search(r'warning "configuration key changes only at a restart" key="engine.shards"', daemon.log())

        rewrite("policy: {mode: advise, tau: 3}\n")
        wait_until(lambda: metric(daemon, "gyrostat_config_reload_failures_total"), "refused reload")
        assert metric(daemon, "gyrostat_config_last_reload_successful") == 0
        assert f"{daemon.config_path}:1: policy.tau: there is no such key" in daemon.log()
        load(daemon, "--run", "third", "--steps", 2)
        assert modes(daemon)["third"] == "act"

        reloads = metric(daemon, "gyrostat_config_reloads_total")
        rewrite("policy: {mode: advise}\n")
        wait_until(lambda: metric(daemon, "gyrostat_config_reloads_total") > reloads, "repaired file")
        assert metric(daemon, "gyrostat_config_last_reload_successful") == 1
        assert daemon.stop() == 0


def ctl(daemon, *words):
    return subprocess.run([BIN / "gyrostatctl", *words, "--address", daemon.grpc], capture_output=True, text=True,
                          timeout=60, env={"PATH": os.environ["PATH"], "USER": "ada"})


def test_the_kill_switch_holds_until_somebody_lets_go(tmp_path):
    with Daemon(tmp_path, config="policy: {mode: act}\n") as daemon:
        load(daemon, "--run", "before", "--steps", 2)
        stopped = ctl(daemon, "mode", "--all", "observe")
        assert stopped.returncode == 0 and "1 run changed; new runs start in mode observe.\n" in stopped.stdout
        load(daemon, "--run", "begun", "--steps", 2)

        reloads = metric(daemon, "gyrostat_config_reloads_total")
        daemon.signal(signal.SIGHUP)
        wait_until(lambda: metric(daemon, "gyrostat_config_reloads_total") > reloads, "reload of the same file")
        load(daemon, "--run", "reloaded", "--steps", 2)
        reloads = metric(daemon, "gyrostat_config_reloads_total")
        daemon.config_path.write_text("policy: {mode: act, qk_clip: {tau: 77}}\n")
        wait_until(lambda: metric(daemon, "gyrostat_config_reloads_total") > reloads, "reload of another file")
        load(daemon, "--run", "edited", "--steps", 2)

        daemon.kill()
        daemon.start()
        for name in ("restarted", "begun", "before"):  # The last two: a new attempt.
            load(daemon, "--run", name, "--steps", 2)
        assert set(modes(daemon)) == {"before", "begun", "reloaded", "edited", "restarted"}
        assert set(modes(daemon).values()) == {"observe"}
        assert "new runs begin in mode observe (mode --all observe, by ada," in ctl(daemon, "doctor").stdout
        assert 'mode="observe" mode_of_file="act"' in daemon.log()

        assert ctl(daemon, "mode", "begun", "act").returncode == 0
        assert modes(daemon)["begun"] == "act" and modes(daemon)["before"] == "observe"
        released = ctl(daemon, "mode", "--all", "act")
        assert released.returncode == 0 and "5 runs changed; new runs start in mode act.\n" in released.stdout
        load(daemon, "--run", "released", "--steps", 2)
        assert set(modes(daemon).values()) == {"act"}
        assert "(mode --all" not in ctl(daemon, "doctor").stdout


# Strangers and disks.

def test_garbage_on_both_ports_harms_nobody(tmp_path):
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    garbage = [os.urandom(4096), b"\0" * 65536, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20000, preface,
               preface + os.urandom(60000), b"\x16\x03\x01\x02\x00\x01"]
    with Daemon(tmp_path) as daemon:
        for address in (daemon.grpc, daemon.http):
            host, port = address.rsplit(":", 1)
            for noise in garbage:
                with socket.create_connection((host, int(port)), timeout=120) as stranger:
                    try:
                        stranger.sendall(noise)
                        stranger.shutdown(socket.SHUT_WR)
                        while stranger.recv(65536):
                            pass
                    except OSError as cut:  # An answer too, unless it is none.
                        assert not isinstance(cut, TimeoutError), noise[:40]
        load(daemon, "--run", "r", "--steps", 20)
        assert metric(daemon, 'gyrostat_step{run="r"}') == 19
        assert daemon.stop() == 0


def test_a_disk_that_takes_no_more_makes_it_not_ready_until_it_does(tmp_path):
    with Daemon(tmp_path) as daemon:
        load(daemon, "--run", "before", "--steps", 5)
        # As a full disk: no file may grow beyond this any more.
        limits = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (64 << 10, limits[1]))
        stuck = subprocess.Popen([BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", "during", "--layers",
                                  "64", "--heads", "64", "--steps", "200"],
                                 stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: daemon.get("/readyz")[0] == 503, "not ready")
            assert daemon.get("/readyz")[1].startswith("journal: ")
            assert daemon.get("/healthz")[0] == 200
            assert metric(daemon, "gyrostat_store_writable") == 0
            assert metric(daemon, "gyrostat_store_failures_total") > 0

            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, limits)
            wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready again, by itself")
        finally:
            stuck.kill()
            stuck.wait()
        load(daemon, "--run", "after", "--steps", 5)
        assert metric(daemon, 'gyrostat_step{run="after"}') == 4
        assert daemon.stop() == 0


@pytest.fixture
def full(tmp_path):
    """A daemon whose disk takes no more, as in mode advise with a proposal waiting; (daemon, give it room)."""
    with Daemon(tmp_path, config="policy: {mode: advise, qk_clip: {tau: 30}}\n") as daemon:
        words = ("--run", "r", "--scenario", "runaway", "--steps", "1000000", "--rate", "50", "--allow", "qk_clip")
        job = subprocess.Popen([BIN / "gyrostat-loadgen", "--address", daemon.grpc, *words],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: '"proposed"' in ctl(daemon, "interventions", "r", "--json").stdout, "a proposal")
            limits = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
            wait_until(lambda: daemon.get("/readyz")[0] == 503, "not ready")
            yield daemon, lambda: resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, limits)
        finally:
            job.kill()
            job.wait()


def test_what_a_full_disk_refuses_is_not_done_later(full):
    daemon, give_room = full
    for words, what in ((("approve", "r/1"), "r/1 is not approved"),
                        (("mode", "r", "act"), "run r: mode act is not set"),
                        (("reject", "r/1", "--reason", "no"), "r/1 is not rejected")):
        refused = ctl(daemon, *words)
        assert refused.returncode == 1, refused.stderr
        assert refused.stderr == f"gyrostatctl: {what}: the journal could not keep it; see the daemon's log\n"
    give_room()
    wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready again")
    steps = metric(daemon, 'gyrostat_step{run="r"}')
    wait_until(lambda: metric(daemon, 'gyrostat_step{run="r"}') > steps + 50, "a second of training")
    assert modes(daemon) == {"r": "advise"}
    (intent,) = map(json.loads, ctl(daemon, "interventions", "r", "--json").stdout.splitlines())
    assert intent["state"] == "proposed" and intent["orders"] == 0
    approved = ctl(daemon, "approve", "r/1")
    assert approved.returncode == 0, approved.stderr


def test_stopping_works_on_a_full_disk_and_is_written_when_it_can(full):
    daemon, give_room = full
    stopped = ctl(daemon, "mode", "--all", "observe")
    assert stopped.returncode == 1 and "mode observe holds now, but is not on disk yet" in stopped.stderr
    assert modes(daemon) == {"r": "observe"}
    give_room()
    wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready again")
    wait_until(lambda: b"mode --all" in b"".join(p.read_bytes() for p in daemon.data_dir.glob("gyrostat.db*")),
               "the word is on disk")
    daemon.kill()
    daemon.start()
    assert modes(daemon) == {"r": "observe"}
    load(daemon, "--run", "later", "--steps", 2)
    assert modes(daemon)["later"] == "observe"


def test_a_run_that_has_no_room_is_named_in_the_log_once(tmp_path):
    with Daemon(tmp_path, config="engine: {runs_max: 1}\n") as daemon:
        load(daemon, "--run", "over", "--steps", 2)  # One that has ended takes no room.
        load(daemon, "--run", "first", "--steps", 2, "--no-bye")
        for _ in range(2):
            refused = load(daemon, "--run", "second", "--steps", 2, check=False)
            assert "run second is not taken: this daemon holds 1 runs already" in refused.stderr
        assert daemon.log().count('run second is not taken') == 1


def test_closed_standard_streams_do_not_end_up_in_a_file(tmp_path):
    daemon = Daemon(tmp_path, ready=False)
    command = daemon.command()
    process = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command])
    try:
        wait_until(lambda: (daemon.data_dir / "endpoints.json").exists(), "serving")
        assert re.fullmatch(r"\d+\n", (daemon.data_dir / "lock").read_text())
    finally:
        process.terminate()
        assert process.wait(timeout=120) == 0


# deploy/gyrostatd.service.

def test_the_unit_calls_the_program_as_it_is():
    unit = (SOURCE / "deploy/gyrostatd.service").read_text()
    lines = re.findall(r"^Exec\w+=/usr/bin/gyrostatd (.*)$", unit, re.M)
    assert len(lines) == 3 and "ExecReload=/bin/kill -HUP $MAINPID" in unit
    flags = set(re.findall(r"--[\w-]+", " ".join(lines)))
    assert flags <= set(re.findall(r"--[\w-]+", run("--help").stdout))


def test_systemd_likes_the_unit(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed (package systemd)")
    unit = tmp_path / "gyrostatd.service"
    unit.write_text((SOURCE / "deploy/gyrostatd.service").read_text().replace("/usr/bin/gyrostatd", str(GYROSTATD)))
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    if "Failed to initialize manager" in verified.stderr:
        pytest.skip("systemd-analyze cannot work here: " + verified.stderr.strip())
    assert (verified.returncode, verified.stderr) == (0, "")
    security = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", unit],
                              capture_output=True, text=True)
    assert security.returncode == 0, security.stdout  # Exposure of at most 2.0.
