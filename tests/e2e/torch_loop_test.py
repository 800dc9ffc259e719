"""The example on libtorch, end to end: a real transformer trained in C++, clipped live by a real gyrostatd."""
import os
import re
import subprocess

import pytest

import gyrostatd
import pacing

PROGRAM = gyrostatd.BIN / "gyrostat-example-torch"
TAU = 30.0
STEPS = 300
CONFIG = f"policy:\n  mode: act\n  qk_clip:\n    tau: {TAU:g}\n"
LAST_LINE = re.compile(r"steps=(\d+) peak=(\S+) final_loss=(\S+) reports=(\d+) orders_applied=(\d+)$")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: no libtorch")


def train(**environment):
    """(peak logit, final loss, reports, orders applied) of one run, from its last line."""
    done = subprocess.run([PROGRAM, str(STEPS)], capture_output=True, text=True, timeout=600,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    match = LAST_LINE.search(done.stdout.strip())
    assert match and int(match[1]) == STEPS, done.stdout
    return float(match[2]), float(match[3]), int(match[4]), int(match[5])


def test_logits_run_away_alone_and_are_held_by_the_daemon(tmp_path):
    peak_alone, loss_alone, reports, applied = train(GYROSTAT_DISABLE="1")
    assert (reports, applied) == (0, 0)
    with gyrostatd.Daemon(tmp_path, config=CONFIG) as daemon:
        peak, loss, reports, applied = train(GYROSTAT_ADDRESS=daemon.grpc, GYROSTAT_RUN="torch-loop",
                                             **pacing.ENVIRONMENT)
        assert daemon.stop() == 0
    print(f"peak {peak_alone:.0f} / {peak:.1f}, loss {loss_alone:.3f} / {loss:.3f}, orders {applied}")
    assert peak_alone > 20 * TAU
    assert reports == STEPS and applied > 20
    assert peak <= 4 * TAU
    assert loss < loss_alone
