"""The client in a process of its own against a real gyrostatd that dies, stops, is not there, or is somebody else.

Deadlines here are against hanging: each is far beyond what the header promises.
"""
import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gyrostatd

OK, NONE, INACTIVE, DROPPED = "0", "1", 2, "3"  # As JSON has the keys of an object.
PROGRAM = Path(__file__).with_name("process_job.py")
CALLS_A_STEP = 5
ROOM = "ring_reports=4096"  # For all steps of a test, should the sender get no core meanwhile.


class Job:
    """process_job.py, in a process group of its own with all its children."""

    def __init__(self, address, *options):
        self.process = subprocess.Popen([sys.executable, PROGRAM, address, *options], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True)
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self._answer("open") == {"opened": 0}

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _answer(self, command):
        try:
            line = self._lines.get(timeout=gyrostatd.DEADLINE_S)
        except queue.Empty:
            raise AssertionError(f"the job hangs in: {command}") from None
        assert line is not None, f"the job ended in: {command}\n{self.process.stderr.read()}"
        return json.loads(line)

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def ask(self, command):
        self.tell(command)
        return self._answer(command)

    def steps(self, count):
        """Every call of `count` steps was taken."""
        answer = self.ask(f"steps {count}")
        assert answer["recorded"] == {OK: CALLS_A_STEP * count}
        assert answer["polled"] == {NONE: count}

    def wait_stats(self, condition, what):
        seen = {}

        def holds():
            seen.update(self.ask("stats"))
            return condition(seen)
        try:
            gyrostatd.wait_until(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the client counts {seen}") from None
        return seen

    def wait_acked(self, count):
        stats = self.wait_stats(lambda s: s["reports_acked"] == count, f"{count} reports acknowledged")
        assert (stats["dropped_hot"], stats["dropped_unacked"], stats["invalid_total"]) == (0, 0, 0)

    def exit_code(self):
        """Of the process, which is to end by itself, and to have nothing to complain of but its own exception."""
        code = self.process.wait(timeout=gyrostatd.DEADLINE_S)
        complaints = self.process.stderr.read()
        if code == 0:
            assert complaints == ""
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def arrived(daemon):
    """The steps of the run's losses, in the daemon's order; the value of each is its step."""
    done = subprocess.run([gyrostatd.BIN / "gyrostatctl", "series", "process", "loss", "--json", "--address",
                           daemon.grpc], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    points = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(point["value"] == point["step"] for point in points)
    return [point["step"] for point in points]


@contextlib.contextmanager
def stopped(daemon):
    daemon.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        daemon.signal(signal.SIGCONT)


@contextlib.contextmanager
def address_of(state, directory):
    """Where there is a daemon, or none, or one that was stopped before anybody dialled it."""
    if state == "absent":
        yield f"127.0.0.1:{free_port()}"
        return
    with gyrostatd.Daemon(directory) as daemon:
        with stopped(daemon) if state == "stopped" else contextlib.nullcontext():
            yield daemon.grpc


STATES = pytest.mark.parametrize("state", ["up", "absent", "stopped"])


def test_a_daemon_killed_again_and_again_has_every_step_once(tmp_path):
    daemon = gyrostatd.Daemon(tmp_path, grpc_port=free_port())
    with daemon, Job(daemon.grpc, ROOM) as job:
        job.steps(50)
        job.wait_acked(50)
        steps = 50
        for _ in range(3):
            job.steps(100)  # Some of them on their way when the daemon dies, some safe, some not yet sent.
            daemon.kill()
            job.steps(100)
            daemon.start()
            job.steps(50)
            steps += 250
            job.wait_acked(steps)
        stats = job.ask("stats")
        assert (stats["reports_total"], stats["boundary"], stats["connected"]) == (steps, steps, 1)
        assert stats["reconnects_total"] >= 3
        job.ask("close 250")
        job.tell("end return")
        assert job.exit_code() == 0
        assert arrived(daemon) == list(range(steps))


def test_a_stopped_daemon_holds_up_no_call_and_no_close(tmp_path):
    with gyrostatd.Daemon(tmp_path) as daemon, Job(daemon.grpc, ROOM, "unacked_reports=200") as job:
        job.steps(50)
        job.wait_acked(50)
        with stopped(daemon):
            job.steps(1000)
            job.wait_stats(lambda s: s["reports_acked"] + s["dropped_unacked"] == 850, "all but 200 let go of")
            assert job.ask("close 250") == 0
            job.tell("end return")
            assert job.exit_code() == 0
        # What the sockets held when it was stopped may arrive; nothing twice, and nothing of what was safe is gone.
        steps = arrived(daemon)
        assert steps[:50] == list(range(50))
        assert sorted(set(steps)) == steps


def test_without_a_daemon_each_report_is_kept_or_dropped_and_counted_once():
    with Job(f"127.0.0.1:{free_port()}", ROOM, "unacked_reports=100") as job:
        job.steps(300)
        stats = job.wait_stats(lambda s: s["dropped_unacked"] >= 200, "the ring of 100 overflowed by 200")
        expected = {"reports_total": 300, "boundary": 300, "reports_acked": 0, "dropped_hot": 0, "dropped_unacked": 200,
                    "invalid_total": 0, "connected": 0}
        assert {name: stats[name] for name in expected} == expected
        stats = job.wait_stats(lambda s: s["last_error"], "the trouble is told")
        assert {name: stats[name] for name in expected} == expected
        assert job.ask("close 250") == 0
        job.tell("end return")
        assert job.exit_code() == 0


def test_without_room_each_report_that_was_refused_is_counted_once():
    with Job(f"127.0.0.1:{free_port()}", "ring_reports=2") as job:
        answer = job.ask("steps 2000")  # Far faster than a sender that looks once a millisecond.
        dropped = answer["recorded"][DROPPED]
        assert dropped % CALLS_A_STEP == 0 and answer["recorded"][OK] + dropped == 2000 * CALLS_A_STEP
        stats = job.ask("stats")
        assert (stats["dropped_hot"], stats["boundary"]) == (dropped // CALLS_A_STEP, 2000)
        assert stats["reports_total"] + stats["dropped_hot"] == 2000
        job.tell("end return")
        assert job.exit_code() == 0


@pytest.mark.parametrize("way", ["sys.exit", "os._exit"])
def test_a_forked_child_is_inert_and_its_parent_goes_on(tmp_path, way):
    with gyrostatd.Daemon(tmp_path) as daemon, Job(daemon.grpc, ROOM) as job:
        for round_number in range(1, 11):  # At whatever the sender is doing.
            job.steps(20)
            statuses, code = job.ask(f"fork {way}")
            assert (set(statuses), code) == ({INACTIVE}, 0)
            if round_number == 1:
                job.wait_acked(20)
        job.steps(20)
        job.wait_acked(220)
        job.ask("close 250")
        job.tell("end return")
        assert job.exit_code() == 0
        assert arrived(daemon) == list(range(220))


@STATES
@pytest.mark.parametrize("way", ["sys.exit", "os._exit"])
def test_a_forked_child_ends_whatever_the_daemon_does(tmp_path, state, way):
    with address_of(state, tmp_path) as address, Job(address, ROOM) as job:
        job.steps(20)
        statuses, code = job.ask(f"fork {way}")
        assert (set(statuses), code) == ({INACTIVE}, 0)
        job.steps(20)


@STATES
@pytest.mark.parametrize("way, code", [("return", 0), ("sys.exit", 0), ("os._exit", 0), ("raise", 1)])
def test_a_process_that_never_closes_ends_in_its_own_way(tmp_path, state, way, code):
    with address_of(state, tmp_path) as address, Job(address, ROOM) as job:
        job.steps(100)
        job.tell(f"end {way}")
        assert job.exit_code() == code


@STATES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_as_it_would_without_a_client(tmp_path, state, number):
    with address_of(state, tmp_path) as address, Job(address, ROOM) as job:
        job.steps(100)
        job.process.send_signal(number)
        assert job.exit_code() == -number


SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # An empty SETTINGS frame: what HTTP/2 begins with (RFC 9113 §3.4).
HOSTILE = {
    "hangs up": lambda peer: None,
    "says nothing": lambda peer: peer.recv(1 << 16),
    "another protocol": lambda peer: peer.sendall(b"220 mail.example ESMTP\r\n" * 100),
    "noise": lambda peer: peer.sendall(bytes(i * i * 31 % 251 for i in range(100_000))),
    "settings, then noise": lambda peer: peer.sendall(SETTINGS + bytes(i * i * 31 % 251 for i in range(100_000))),
    "a frame that never ends": lambda peer: peer.sendall(SETTINGS + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"),
    "a go-away": lambda peer: peer.sendall(SETTINGS + bytes([0, 0, 8, 7] + [0] * 9 + [0, 0, 0, 11])),
}


@contextlib.contextmanager
def listener(answer):
    """(address, event of the first connection) of somebody who is no gyrostatd and answers each caller his way."""
    met, held = threading.Event(), []

    def serve():
        with contextlib.suppress(OSError):  # The socket was closed: the test is over.
            while True:
                peer, _ = server.accept()
                met.set()
                held.append(peer)
                threading.Thread(target=talk, args=(peer,), daemon=True).start()

    def talk(peer):
        with contextlib.suppress(OSError):  # The client hung up.
            answer(peer)
            if answer is HOSTILE["hangs up"]:
                peer.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", met
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for peer in held:
            peer.close()


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
def test_garbage_on_the_port_does_not_disturb_the_job(answer):
    with listener(answer) as (address, met), Job(address, ROOM) as job:
        job.steps(100)
        assert met.wait(gyrostatd.DEADLINE_S)
        job.steps(100)
        stats = job.ask("stats")
        assert (stats["reports_total"], stats["reports_acked"], stats["connected"]) == (200, 0, 0)
        assert job.ask("close 250") == 0
        job.tell("end return")
        assert job.exit_code() == 0


def test_the_daemons_other_port_does_not_disturb_the_job(tmp_path):
    with gyrostatd.Daemon(tmp_path) as daemon, Job(daemon.http, ROOM) as job:
        job.steps(100)
        job.wait_stats(lambda s: s["last_error"], "the trouble is told")
        job.tell("end return")
        assert job.exit_code() == 0
