"""Clients come and go inside one process, with the daemon there, gone or stopped: the process ends in its own way."""
import signal
import subprocess
import sys
import textwrap

import pytest

import gyrostatd

# Opens a client, reports a few steps, closes it, again and again; prints what it counted.
PROGRAM = textwrap.dedent("""
    import ctypes, sys, time
    sys.path.insert(0, sys.argv[3])
    import torch, gyrostat
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for round_number in range(int(sys.argv[2])):
        mon = gyrostat.watch(model, optimizer, run=f"round-{round_number}", address=sys.argv[1])
        for _ in range(3):
            loss = model(torch.ones(2, 4)).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            mon.step(loss)
            time.sleep(0.005)
        mon.close()
    print("done", flush=True)
""")


def run(address, rounds, build):
    return subprocess.run([sys.executable, "-c", PROGRAM, address, str(rounds), build], capture_output=True, text=True,
                          timeout=120)


@pytest.fixture(name="package")
def _package():
    return str(gyrostatd.BIN.parent / "python")


def test_many_clients_come_and_go_in_one_process(tmp_path, package):
    with gyrostatd.Daemon(tmp_path) as daemon:
        done = run(daemon.grpc, 25, package)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_clients_of_an_absent_daemon_end_quietly(package):
    done = run("127.0.0.1:9", 5, package)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_clients_of_a_stopped_daemon_end_quietly(tmp_path, package):
    with gyrostatd.Daemon(tmp_path) as daemon:
        daemon.signal(signal.SIGSTOP)
        try:
            done = run(daemon.grpc, 5, package)
        finally:
            daemon.signal(signal.SIGCONT)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
