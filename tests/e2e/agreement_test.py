"""TP x DP jobs under live orders while ranks, leader and daemon are killed: replicas stay bit for bit the same.

The long form, by hand:  tests/bench/rescue/run --soak 1 --interventions 1000 --kills 30
"""
import json
import os
import socket
import sys
from pathlib import Path

import pytest

import gyrostatd

SOURCE = Path(os.environ.get("GYROSTAT_SOURCE_DIR", "."))
sys.path.insert(0, str(SOURCE / "tests" / "bench" / "rescue"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))

import cost  # noqa: E402
import killing  # noqa: E402
from layout import Shape  # noqa: E402

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")

TAU = 30.0
CONFIG = f"policy:\n  mode: act\n  qk_clip:\n    tau: {TAU:g}\n"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_replicas_stay_equal_while_ranks_leader_and_daemon_are_killed(tmp_path):
    with gyrostatd.Daemon(tmp_path, config=CONFIG, grpc_port=free_port()) as daemon:
        outcome = killing.run(tmp_path, daemon, seed=1, kills=["rank", "leader", "daemon"], interventions=40)
        assert daemon.stop() == 0
    print(outcome)
    assert outcome.faults == []
    assert outcome.killed == {"rank": 1, "leader": 1, "daemon": 1} and outcome.attempts == 3
    assert outcome.interventions >= 40
    assert outcome.boundaries > outcome.interventions and outcome.checkpoints > 0


def test_a_replica_that_differs_once_is_found(tmp_path):
    rows = [{"attempt": 1, "step": step, "digest": f"d{step}", "changed": step == 3, "peak": 1.0}
            for step in range(1, 6)]
    for rank in range(4):
        mine = [{**row, "digest": "other"} if (rank, row["step"]) == (3, 4) else row for row in rows]
        (tmp_path / f"seen{rank}.jsonl").write_text("\n".join(map(json.dumps, mine)) + '\n{"attempt": 1, "st')
    outcome = killing.compare(tmp_path, killing.Outcome(), Shape.parse("dp2tp2"))
    assert [key for key, _ in outcome.faults] == [(1, 4)]
    assert (outcome.interventions, outcome.boundaries) == (1, 10)


@pytest.mark.parametrize("layout, own", [("dp4", 1), ("dp2pp2", 3)])
def test_a_step_has_one_maximum_and_one_sum_more_than_the_bare_job(tmp_path, layout, own):
    _, collectives = cost.measure(layout, tmp_path / "cost", deadline_s=300, steps=40)
    assert collectives == [own, 1, 1]
