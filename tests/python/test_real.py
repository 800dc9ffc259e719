"""Against the real library and the real daemon."""

import ctypes
import logging
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import torch

import gyrostat
import models
from byte_gpt import Config, Trainer, train
from gyrostat import _abi, arrivals

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.setdefault("GYROSTAT_BIN", str(REPOSITORY / "build" / "dev" / "bin"))).parent
sys.path.insert(0, str(REPOSITORY / "tests" / "support"))

import gyrostatd  # noqa: E402  (after the path)
import pacing  # noqa: E402

TAU = 30.0
NOBODY = "127.0.0.1:1"  # A port where nothing listens.

needs_library = pytest.mark.skipif(not (BUILD / "lib" / "libgyrostat.so").exists(),
                                   reason=f"{BUILD}/lib/libgyrostat.so is not built")
needs_daemon = pytest.mark.skipif(not (BUILD / "bin" / "gyrostatd").exists(),
                                  reason=f"gyrostatd is not built in {BUILD}/bin")


def test_structs_mirror_the_header(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to ask for the layout of gyrostat.h")
    structs = {"gyro_model": _abi.Model, "gyro_options": _abi.Options, "gyro_head_factor": _abi.HeadFactor,
               "gyro_order": _abi.Order, "gyro_client_stats": _abi.Stats, "gyro_shard": _abi.Shard,
               "gyro_collective": _abi.Collective, "gyro_register": _abi.Register}
    lines = [f'  P("{name}", sizeof({name}));' for name in structs]
    lines += [f'  P("{name}.{field[0]}", offsetof({name}, {field[0].rstrip("_")}));'
              for name, struct in structs.items() for field in struct._fields_]
    source = tmp_path / "layout.c"
    source.write_text('#include <stdio.h>\n#include "gyrostat/gyrostat.h"\n'
                      '#define P(name, value) printf("%s %zu\\n", name, (size_t)(value))\n'
                      "int main(void) {\n" + "\n".join(lines) + "\n  return 0;\n}\n")
    subprocess.run([compiler, f"-I{REPOSITORY}/client/include", source, "-o", tmp_path / "layout"], check=True)
    said = dict(line.split() for line in subprocess.check_output([tmp_path / "layout"], text=True).splitlines())
    ours = {name: ctypes.sizeof(struct) for name, struct in structs.items()}
    ours.update({f"{name}.{field[0]}": getattr(struct, field[0]).offset
                 for name, struct in structs.items() for field in struct._fields_})
    assert {name: int(value) for name, value in said.items()} == ours
    header = (REPOSITORY / "client" / "include" / "gyrostat" / "gyrostat.h").read_text()
    assert f'#define GYRO_VERSION "{gyrostat.__version__}"' in header
    kinds = {name.lower(): int(value) for name, value in re.findall(r"GYRO_LOGIT_(\w+) = (\d)", header)}
    assert kinds == _abi.KINDS


@needs_library
def test_library_is_found_beside_a_linked_package():
    assert _abi.candidates()[0] == str(BUILD / "lib" / "libgyrostat.so")


@needs_library
def test_without_a_daemon_training_goes_on_and_reports_are_counted():
    model = models.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gyrostat.watch(model, optimizer, run="alone", address=NOBODY) as mon:
        for seed in range(5):
            loss = models.loss_of(model, models.batch(seed))
            loss.backward()
            optimizer.step()
            mon.step(loss, tokens=12, note=1.0)
        stats = mon._session._client.stats()
        assert (stats.boundary, stats.reports_total, stats.invalid_total, stats.connected) == (5, 5, 0, 0)
        state = mon.state_dict()
    again = gyrostat.watch(model, optimizer, run="alone", address=NOBODY)
    again.load_state_dict(state)
    assert again.active and again._session._client.stats().epoch == 1
    again.close()


@needs_library
def test_a_bad_name_is_said_and_nothing_is_watched(monkeypatch, caplog):
    monkeypatch.setenv("GYROSTAT_RUN", "a b")
    model = models.Model()
    mon = gyrostat.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), address=NOBODY)
    assert not mon.active and 'run is "a b"' in caplog.text and type(model.layers[0]) is models.Block


@needs_library
@pytest.mark.parametrize("ending", ["pass", "mon.close()", "import os; os._exit(0)", "raise SystemExit(0)",
                                    "import os; pid = os.fork(); pid and os.waitpid(pid, 0)"])
def test_processes_end(ending):
    code = ("import torch, gyrostat\nmodel = torch.nn.Linear(2, 2)\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            f"mon = gyrostat.watch(model, optimizer, address='{NOBODY}')\nmon.step(1.0)\n{ending}\n")
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@needs_library
def test_forked_workers_are_inert():
    from torch.utils.data import DataLoader

    model = models.Model()
    with gyrostat.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), address=NOBODY) as mon:
        for tokens in DataLoader([models.batch(s)[0] for s in range(8)], batch_size=2, num_workers=2):
            models.loss_of(model, tokens).backward()
            mon.step(1.0)
        assert mon._session._client.stats().reports_total == 4


def step_until(words, caplog, *monitors):
    """Steps the monitors until the log has the words."""
    def look():
        for mon in monitors:
            mon.step(1.0)
        return words in caplog.text

    gyrostatd.wait_until(look, f"{words!r} in the log")


@needs_daemon
def test_a_daemon_that_comes_and_goes_is_said(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="gyrostat")
    monkeypatch.setattr(arrivals, "_PATIENCE_S", 2.0)
    model = torch.nn.Linear(2, 2)
    daemon = gyrostatd.Daemon(tmp_path)
    with daemon, gyrostat.watch(model, run="seen", address=daemon.grpc) as mon:
        step_until(f"reports of run 'seen' arrive at gyrostatd, {daemon.grpc}", caplog, mon)
        daemon.kill()
        step_until("no report of run 'seen' was acknowledged for", caplog, mon)
        step_until("unavailable", caplog, mon)  # At once, or when the client has noticed.
        daemon.grpc_port = int(daemon.grpc.rpartition(":")[2])
        daemon.start()
        step_until("again, after", caplog, mon)


@needs_daemon
def test_a_run_that_the_daemon_refuses_is_told_why(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="gyrostat")
    monkeypatch.setattr(arrivals, "_PATIENCE_S", 2.0)
    with gyrostatd.Daemon(tmp_path, config="engine: {runs_max: 1}\n") as daemon:
        with gyrostat.watch(torch.nn.Linear(2, 2), run="first", address=daemon.grpc) as first:
            step_until("reports of run 'first' arrive", caplog, first)
            with gyrostat.watch(torch.nn.Linear(2, 2), run="second", address=daemon.grpc) as second:
                # Not before the daemon's sentence has come, whatever was said till then.
                step_until(f"the gyrostatd at {daemon.grpc} refuses run 'second': resource exhausted: ", caplog,
                           first, second)


SMALL = {"batch": 8, "context": 32}


def daemon_with(directory, mode, where="remote"):
    return gyrostatd.Daemon(directory, config=f"policy: {{mode: {mode}, qk_clip: {{tau: {TAU}, where: {where}}}}}\n")


def watched(daemon, model, optimizer, scheduler):
    return gyrostat.watch(model, optimizer, scheduler, run="python", address=daemon.grpc, allow=("qk_clip",))


@needs_daemon
def test_observing_changes_no_bit(tmp_path):
    config = Config(steps=80, **SMALL)
    trainers = []
    with daemon_with(tmp_path, "observe") as daemon:
        history = train(config, monitor=lambda *parts: watched(daemon, *parts),
                        on_step=lambda _, trainer: trainers.append(trainer))
    plain = Trainer(config)
    for _ in range(config.steps):
        plain.step()
    assert history.peak_logit > TAU
    for ours, theirs in zip(trainers[0].model.parameters(), plain.model.parameters()):
        assert torch.equal(ours, theirs)


@needs_daemon
@pytest.mark.parametrize("where", ["remote", "local"])
@pytest.mark.parametrize("shape", [{}, {"kv_heads": 2, "fused_qkv": True, "bias": True}, {"dtype": "bfloat16"}],
                         ids=["mha", "gqa fused bias", "bfloat16"])
def test_guarded_training_stays_near_tau(tmp_path, monkeypatch, where, shape):
    """Past the step where the unguarded run is at 100; tests/e2e has the whole demonstration."""
    answers, monitors = [], []
    ack = _abi.Client.ack
    monkeypatch.setattr(_abi.Client, "ack", lambda *args: answers.append(args[2:]) or ack(*args))
    with daemon_with(tmp_path, "act", where) as daemon:
        history = train(Config(steps=110, **SMALL, **shape),
                        monitor=lambda *parts: monitors.append(watched(daemon, *parts)) or monitors[0],
                        on_step=lambda *_: pacing.wait_for_answer(monitors[0]))
    assert TAU < history.peak_logit <= 2.5 * TAU
    assert len(answers) > 10 and set(answers) == {(_abi.APPLIED, "")}
