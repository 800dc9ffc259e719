"""gyrostatctl watch in real terminals: tmux draws what it writes, a pseudo-terminal says what it wrote."""
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time

import pytest

import gyrostatd
from gyrostatd import BIN, wait_until

CTL = BIN / "gyrostatctl"
SIZES = [(80, 24), (200, 60)]
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is missing: apt-get install tmux")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with gyrostatd.Daemon(tmp_path_factory.mktemp("watch"), config="policy:\n  qk_clip:\n    tau: 30\n") as daemon:
        yield daemon


class Load:
    """A run that goes on until the test ends it."""

    def __init__(self, daemon, run, *words):
        command = [BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", run, "--steps", 1000000, *words]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
        wait_until(lambda: run in ctl(daemon, "runs").stdout, f"{run} is known")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def ctl(daemon, *words, **environment):
    return subprocess.run([CTL, *map(str, words), "--address", daemon.grpc], capture_output=True, text=True,
                          timeout=60, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **environment})


@pytest.fixture(scope="module")
def waiting(daemon):
    """A run of 128 x 128 heads in mode advise, whose heads ran over tau: an episode is open, a clip waits."""
    with Load(daemon, "waiting", "--layers", 128, "--heads", 128, "--scenario", "runaway", "--rate", 5,
              "--allow", "qk_clip"):
        assert ctl(daemon, "mode", "waiting", "advise").returncode == 0
        wait_until(lambda: '"proposed"' in ctl(daemon, "interventions", "waiting", "--json").stdout, "a proposal", 300)
        yield "waiting"


class Tmux:
    """A window of a tmux server of its own, with a shell in it."""

    def __init__(self, directory, columns, rows, **environment):
        self.socket = str(directory / "tmux.sock")
        variables = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "PS1": "ready> ", "HOME": str(directory),
                     "TERM": "screen-256color", **environment}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", rows, "env", "-i",
                  *(f"{name}={value}" for name, value in variables.items()), "bash", "--norc", "--noprofile")
        self.tmux("set", "-g", "status", "off")
        self.tmux("resize-window", "-x", columns, "-y", rows)

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", self.socket, *map(str, words)], check=True, capture_output=True,
                              text=True, timeout=30, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}).stdout

    def type(self, line):
        self.tmux("send-keys", line, "Enter")

    def key(self, name):
        self.tmux("send-keys", name)

    def lines(self, colours=False):
        return self.tmux("capture-pane", "-p", *(["-e"] if colours else [])).split("\n")[:-1]

    def value(self, what):
        return self.tmux("display-message", "-p", f"#{{{what}}}").strip()

    def shows(self, pattern, deadline_s=gyrostatd.DEADLINE_S):
        def seen():
            text = "\n".join(self.lines())
            return text if re.search(pattern, text) else None
        try:
            return wait_until(seen, pattern, deadline_s).split("\n")
        except AssertionError:
            raise AssertionError(f"{pattern} is not on the screen:\n" + "\n".join(self.lines())) from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], check=False, capture_output=True, timeout=30)


@pytest.mark.parametrize("columns,rows", SIZES)
def test_one_window_says_it_all_and_nothing_wraps(daemon, waiting, tmp_path, columns, rows):
    with Tmux(tmp_path, columns, rows, GYROSTAT_ADDRESS=daemon.grpc) as window:
        window.shows("ready>")
        window.type("echo before")
        window.shows("(?m)^before")
        window.type(f"{CTL} watch {waiting} --interval 0.2")
        # The first view may come before the diagnosis.
        page = window.shows(r"(?s)  likely attention_logits.*q or Ctrl-C ends")
        assert window.value("alternate_on") == "1" and window.value("cursor_flag") == "0"
        starts = ["waiting  live  mode advise  step ", "loss ", "grad norm ", "learning rate ", "spikes, loss ",
                  "spikes, norm ", "max logit "]
        assert [line[:len(start)] for line, start in zip(page, starts)] == starts
        assert len(page) <= rows and all(len(line) < columns for line in page)
        text = "\n".join(page)
        assert re.search(r"^  likely attention_logits \(\d+ %\), since step \d+", text, re.M), text
        assert re.search(rf"^  {CTL.name} --address {daemon.grpc} approve waiting/\S+", text, re.M), text
        scale = re.search(r"128 layers down, 128 heads across; a cell: the largest of (\d+) x (\d+)", text)
        assert scale and int(scale[1]) >= 2, text
        cells = [line for line in page if re.match(r"L\d+( |$)", line)]
        assert len(cells) == -(-128 // int(scale[1])), "a row for each block of layers"
        assert any("!" in line for line in cells) and "= tau" in text
        coloured = "\n".join(window.lines(colours=True))
        assert len(set(re.findall(r"48;5;(\d+)", coloured))) >= 2
        window.key("q")
        window.shows(r"(?m)^before")
        assert window.value("alternate_on") == "0" and window.value("cursor_flag") == "1"
        window.type("echo status=$?")
        window.shows("status=0")
        assert not any("max logit" in line for line in window.lines())


def test_a_window_that_changes_is_drawn_anew_at_once(daemon, waiting, tmp_path):
    with Tmux(tmp_path, 80, 24, GYROSTAT_ADDRESS=daemon.grpc) as window:
        window.type(f"{CTL} watch {waiting} --interval 60")  # No update comes in time.
        assert len(window.shows("q or Ctrl-C ends")) == 24
        window.tmux("resize-window", "-x", 130, "-y", 40)
        page = wait_until(lambda: (lines := window.lines()) and len(lines) == 40 and
                          any(line.startswith("q or") for line in lines[30:]) and lines, "more than 30 of 40 rows")
        assert sum("q or Ctrl-C" in line for line in page) == 1
        window.tmux("resize-window", "-x", 60, "-y", 12)
        # tmux itself keeps the last rows of the old page until it is drawn anew.
        page = wait_until(lambda: (lines := window.lines()) and len(lines) == 12 and lines[11].startswith("q or") and
                          lines[0].startswith("waiting  live") and lines, "12 rows, drawn anew")
        assert all(len(line) < 60 for line in page)


def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it(daemon, waiting, tmp_path):
    with Tmux(tmp_path, 80, 24, GYROSTAT_ADDRESS=daemon.grpc) as window:
        window.shows("ready>")
        window.type(f"{CTL} watch {waiting} --interval 0.2")
        window.shows("q or Ctrl-C ends")
        window.key("C-z")
        window.shows("Stopped")
        assert window.value("alternate_on") == "0"
        window.type("stty -a")
        window.shows(r" icanon\b.*")
        window.shows(r" echo\b")
        window.type("fg")
        window.shows("q or Ctrl-C ends")
        assert window.value("alternate_on") == "1"
        window.key("C-c")
        window.shows("Stopped")
        window.type("echo status=$?")
        window.shows("status=130")


class Pty:
    """The command on a pseudo-terminal, without anything between."""

    def __init__(self, words, columns, rows, environment):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(CTL, [str(CTL), *map(str, words)], environment)
        self.seen = ""

    def read(self, until=None, deadline_s=gyrostatd.DEADLINE_S):
        """Reads until the pattern has come; without one, until the end."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end and not (until and re.search(until, self.seen)):
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    data = os.read(self.terminal, 65536)
                except OSError:  # The other side has closed.
                    break
                if not data:
                    break
                self.seen += data.decode(errors="replace")
        assert until is None or re.search(until, self.seen), self.seen[-3000:]
        return self.seen

    def end(self):
        self.read()
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.terminal)
        return status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_every_end_gives_the_terminal_back(daemon, waiting, number):
    environment = {"LC_ALL": "C.UTF-8", "TERM": "xterm", "GYROSTAT_ADDRESS": daemon.grpc}
    screen = Pty(["watch", waiting, "--interval", 0.1], 80, 24, environment)
    screen.read(r"(?s)\x1b\[H.*\x1b\[J.*\x1b\[H.*\x1b\[J")
    cooked = termios.tcgetattr(screen.terminal)[3]
    assert not cooked & termios.ECHO and not cooked & termios.ICANON and cooked & termios.ISIG
    os.kill(screen.pid, number)
    status = screen.end()
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == number
    assert screen.seen.startswith(ENTER) and screen.seen.endswith(LEAVE)
    assert screen.seen.count(ENTER) == screen.seen.count(LEAVE) == 1
    assert "\x1b[2J" not in screen.seen[len(ENTER) + 30:], "a picture is drawn over the last one, never after a blank"
    for frame in re.findall(r"(?s)\x1b\[H(.*?)\x1b\[J", screen.seen):
        assert frame.count("\n") <= 23


def test_a_terminal_that_takes_nothing_does_not_keep_it_from_ending(daemon, waiting):
    environment = {"LC_ALL": "C.UTF-8", "TERM": "xterm", "GYROSTAT_ADDRESS": daemon.grpc}
    screen = Pty(["watch", waiting, "--interval", 0.1], 200, 60, environment)
    screen.read(r"\x1b\[J")
    held = []  # Bytes that nobody has read; they stop growing when the program waits for the terminal.

    def stuck():
        held.append(struct.unpack("i", fcntl.ioctl(screen.terminal, termios.FIONREAD, b"1234"))[0])
        time.sleep(0.1)
        return len(held) > 15 and held[-1] > 0 and len(set(held[-15:])) == 1

    wait_until(stuck, "it waits for the terminal")
    os.kill(screen.pid, signal.SIGTERM)
    wait_until(lambda: os.waitid(os.P_PID, screen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), "it ends")
    assert os.WTERMSIG(screen.end()) == signal.SIGTERM


def test_a_count_that_is_full_ends_it_too(daemon, waiting):
    environment = {"LC_ALL": "C.UTF-8", "TERM": "xterm", "GYROSTAT_ADDRESS": daemon.grpc}
    screen = Pty(["watch", waiting, "--interval", 0.1, "--count", 2], 80, 24, environment)
    assert os.waitstatus_to_exitcode(screen.end()) == 0
    assert screen.seen.count(ENTER) == screen.seen.count(LEAVE) == 1 and screen.seen.endswith(LEAVE)


def test_no_color_is_honoured_and_the_ramp_is_characters(daemon, waiting):
    environment = {"LC_ALL": "C", "TERM": "xterm", "NO_COLOR": "1", "GYROSTAT_ADDRESS": daemon.grpc}
    screen = Pty(["watch", waiting, "--interval", 0.1, "--count", 1], 80, 24, environment)
    screen.end()
    assert set(re.findall(r"\x1b\[[0-9;]*m", screen.seen)) <= {"\x1b[0m"}, "only the reset at the end"
    assert "[ `:-=+*#]" in screen.seen
    assert screen.seen.isascii()


def test_an_error_before_the_first_look_leaves_the_terminal_alone(daemon):
    environment = {"LC_ALL": "C.UTF-8", "TERM": "xterm", "GYROSTAT_ADDRESS": daemon.grpc}
    screen = Pty(["watch", "nobody"], 80, 24, environment)
    assert os.waitstatus_to_exitcode(screen.end()) == 1
    assert ENTER not in screen.seen and "nobody" in screen.seen


def test_a_daemon_that_restarts_is_waited_for(tmp_path):
    with gyrostatd.Daemon(tmp_path) as daemon, Tmux(tmp_path, 80, 24) as window:
        daemon.grpc_port = int(daemon.grpc.rpartition(":")[2])
        with Load(daemon, "back", "--rate", 20):
            window.type(f"{CTL} watch back --interval 0.2 --address {daemon.grpc}")
            window.shows("q or Ctrl-C ends; gyrostatctl")
            daemon.kill()
            page = window.shows("No daemon answers at .*; trying again")
            assert page[0].startswith("back  live"), "the last picture stays"
            daemon.start()
            window.shows("q or Ctrl-C ends; gyrostatctl")


def test_a_pipe_gets_plain_lines_and_once_a_page(daemon, waiting):
    lines = ctl(daemon, "watch", waiting, "--count", 2, "--interval", 0.3)
    assert lines.returncode == 0 and "\x1b" not in lines.stdout
    assert len(lines.stdout.splitlines()) == 2
    for line in lines.stdout.splitlines():
        assert re.match(r"\d{4}-\S+Z  waiting  live  mode advise  step \d+  loss \S+  grad norm ", line), line
        assert "max logit " in line and f"waits: gyrostatctl --address {daemon.grpc} approve waiting/" in line
    page = ctl(daemon, "watch", waiting, "--once")
    assert page.returncode == 0 and "\x1b" not in page.stdout
    assert len(page.stdout.splitlines()) <= 24 and "128 layers down" in page.stdout
    curve = next(line for line in page.stdout.splitlines() if line.startswith("loss "))
    assert len(curve.split()[-1]) > 5, "the past is there at the first look"
