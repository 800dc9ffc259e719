"""The example of several ranks in C++, each a process, over a real Gloo and against a real gyrostatd."""
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import gyrostatd
import pacing

EXAMPLE = Path(os.environ["GYROSTAT_BIN"]) / "gyrostat-example-ranks"
RANKS = 3
pytestmark = pytest.mark.skipif(not EXAMPLE.exists(), reason="libgyrostat_gloo.so was left out of this build")


def start(directory, prefix, steps, step_ms, address="", **more):
    meeting = directory / "meeting"
    meeting.mkdir(exist_ok=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GYROSTAT_")}
    environment |= {"GYROSTAT_ADDRESS": address, "GYROSTAT_RUN": "ranks", "WORLD_SIZE": str(RANKS)} | more
    return [subprocess.Popen([EXAMPLE, meeting, prefix, str(steps), str(step_ms)],
                             env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True) for rank in range(RANKS)]


def finish(ranks):
    """[(exit code, {"rank", "peak", "applied", "weights"}, stderr)], by rank."""
    done = []
    for process in ranks:
        out, err = process.communicate(timeout=gyrostatd.DEADLINE_S * 3)
        done.append((process.returncode, dict(re.findall(r"(\w+)=(\S+)", out)), err))
    return done


def test_ranks_clip_together_and_end_with_the_same_weights(tmp_path):
    with gyrostatd.Daemon(tmp_path, config="policy:\n  mode: act\n  qk_clip:\n    tau: 40\n") as daemon:
        done = finish(start(tmp_path, "clips", 150, 1, daemon.grpc, **pacing.ENVIRONMENT))
    assert [code for code, _, _ in done] == [0] * RANKS, done
    words = [each for _, each, _ in done]
    assert len({each["weights"] for each in words}) == 1, words
    assert len({each["applied"] for each in words}) == 1, words
    assert int(words[0]["applied"]) > 10, words
    # Without clips the fastest head ends at 16 exp(0.032 * 150) = 1900.
    assert max(float(each["peak"]) for each in words) < 400, words


def test_without_a_daemon_they_train_all_the_same(tmp_path):
    done = finish(start(tmp_path, "alone", 20, 1))
    assert [(code, each["applied"]) for code, each, _ in done] == [(0, "0")] * RANKS, done


def test_when_one_is_killed_the_others_say_that_they_are_unsure(tmp_path):
    with gyrostatd.Daemon(tmp_path, config="policy:\n  mode: act\n  qk_clip:\n    tau: 40\n") as daemon:
        ranks = start(tmp_path, "killed", 100000, 1000, daemon.grpc)
        seen = []

        def between_rounds():
            """Gloo waits for ever for a rank that dies within a round, before it takes what was sent to it."""
            seen.extend(re.findall(r'gyrostat_step{run="ranks"} (\S+)', daemon.get("/metrics")[1]))
            return len(seen) > 4 and len(set(seen[-5:])) == 1

        gyrostatd.wait_until(between_rounds, "a step that all ranks have reduced", pause_s=0.05)
        ranks[1].send_signal(signal.SIGKILL)
        done = finish(ranks)
    assert [code for code, _, _ in done] == [3, -signal.SIGKILL, 3], done
    for rank in (0, 2):
        assert "unsure: an all-reduce failed" in done[rank][2]
