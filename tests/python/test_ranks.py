"""Several real processes, the real library and daemon: a change of weights happens on all ranks or on none."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

import gyrostat
import models
import ranks_job
import gyrostat.actuator
from gyrostat import _abi

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.setdefault("GYROSTAT_BIN", str(REPOSITORY / "build" / "dev" / "bin"))).parent
sys.path.insert(0, str(REPOSITORY / "tests" / "support"))

import gyrostatd  # noqa: E402  (after the path)

TAU = 30.0
PEAK_MAX = 2.5 * TAU  # Four steps of growth (5 % each) lie between a measurement and its clip; batches differ by 2.
STEPS = 40
pytestmark = [
    pytest.mark.skipif(not (BUILD / "bin" / "gyrostatd").exists(), reason=f"gyrostatd is not built in {BUILD}/bin"),
    pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed"),
]


@pytest.fixture
def daemon(tmp_path):
    config = f"policy: {{mode: act, qk_clip: {{tau: {TAU}, where: remote}}}}\n"
    with gyrostatd.Daemon(tmp_path, config=config) as running:
        yield running


def hot(model):
    """Logits that are near tau from the first step."""
    with torch.no_grad():
        for layer in model.layers:
            layer.attn.q_proj.weight *= 5
            layer.attn.k_proj.weight *= 5
    return model


def watch(rank, model, optimizer, address, **more):
    """Only the leader knows the address."""
    return gyrostat.watch(model, optimizer, run="ranks", address=address if rank == 0 else None, allow=("qk_clip",),
                          **more)


def maxima_of(model):
    return [float(layer.attn.maxima.max()) for layer in model.layers]


def data_parallel(rank, world, address, steps=STEPS):
    model = hot(models.Model())
    optimizer = ranks_job.Growing(model, dist.group.WORLD)
    answers, digests, peaks = ranks_job.Answers(), [], []
    with watch(rank, model, optimizer, address) as mon:
        ranks_job.wait_for_welcome(mon, rank)
        for step in range(steps):
            optimizer.zero_grad()
            loss = models.loss_of(model, models.batch(1000 * rank + step))
            loss.backward()
            optimizer.step()
            mon.step(loss)
            ranks_job.wait_for_answer(mon, rank)
            digests.append(ranks_job.digest(model))
            peaks.append(max(maxima_of(model)))
        stats = mon._session._client.stats()
        return {"answers": answers.list, "digests": digests, "peaks": peaks, "status": mon.status,
                "boundary": stats.boundary, "version": stats.ledger_version, "state": mon.state_dict(),
                "error": mon._session._client.last_error}


def test_replicas_take_the_same_clips_at_the_same_boundaries(tmp_path, daemon):
    ranks = ranks_job.run(data_parallel, 3, tmp_path, address=daemon.grpc)
    first = ranks[0]
    print(first["peaks"], first["answers"], first["error"])
    assert len(first["answers"]) > 3 and {a[1:] for a in first["answers"]} == {(_abi.APPLIED, "")}
    for other in ranks[1:]:
        assert other["digests"] == first["digests"] and other["answers"] == first["answers"]
        assert other["state"]["client"] == first["state"]["client"]
    assert {r["status"] for r in ranks} == {"acting"}
    assert max(max(r["peaks"]) for r in ranks) < PEAK_MAX


def answered_within_the_step(rank, world, address):
    """The leader's forward comes after the ranks' round, and its backward after the daemon's answer to the report that
    the forward let go: as in a job whose steps are longer than both."""
    model = hot(models.Model())
    optimizer = ranks_job.Growing(model, dist.group.WORLD)
    peaks, digests = [], []
    with watch(rank, model, optimizer, address) as mon:
        ranks_job.wait_for_welcome(mon, rank)
        for step in range(STEPS):
            optimizer.zero_grad()
            if rank == 0 and step > 0:
                ranks_job.wait_until(mon._session._collective.done, "the ranks' round")
            loss = models.loss_of(model, models.batch(1000 * rank + step))
            if rank == 0:
                stats = mon._session._client.stats
                ranks_job.wait_until(lambda: stats().reports_acked == stats().reports_total,
                                     f"an answer to the report of step {step - 1} within step {step}")
            loss.backward()
            optimizer.step()
            mon.step(loss)
            peaks.append(max(maxima_of(model)))
            digests.append(ranks_job.digest(model))
        return {"digests": digests, "peaks": peaks, "status": mon.status}


def test_what_the_round_brings_is_answered_within_the_step(tmp_path, daemon):
    ranks = ranks_job.run(answered_within_the_step, 2, tmp_path, address=daemon.grpc)
    assert ranks[0]["digests"] == ranks[1]["digests"] and {r["status"] for r in ranks} == {"acting"}
    done = subprocess.run([BUILD / "bin" / "gyrostatctl", "interventions", "ranks", "--json", "--address", daemon.grpc],
                          capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    print(told, ranks[0]["peaks"])
    assert [(row["kind"], row["median_delay_steps"]) for row in told] == [("qk_clip", 2)]
    assert sum(row["orders_applied"] for row in told) > 10
    assert max(max(r["peaks"]) for r in ranks) < PEAK_MAX


def test_without_an_address_anywhere_nobody_is_active(tmp_path):
    assert ranks_job.run(inert, 2, tmp_path) == [("inactive", "Block")] * 2


def inert(rank, world):
    model = models.Model()
    mon = gyrostat.watch(model, ranks_job.Growing(model), allow=("qk_clip",))
    mon.step(1.0)
    return mon.status, type(model.layers[0]).__name__ if type(model.layers[0]) is models.Block else "touched"


def differing(rank, world, address):
    model = models.Model()
    optimizer = ranks_job.Growing(model, dist.group.WORLD)
    mon = gyrostat.watch(model, optimizer, run="ranks", address=address, allow=("qk_clip",), tau_min=20.0 + rank)
    for step in range(3):
        models.loss_of(model, models.batch(step)).backward()
        optimizer.step()
        mon.step(1.0)
    status = mon.status
    mon.close()
    return status


def test_ranks_that_allow_different_things_change_nothing(tmp_path, daemon):
    assert ranks_job.run(differing, 2, tmp_path, address=daemon.grpc) == ["watching", "inactive"]


def tensor_parallel(rank, world, address, kv_heads, dp=1):
    """TP = 2, times dp replicas: rank = 2 * replica + tp."""
    tp, replica = rank % 2, rank // 2
    rows = [dist.new_group([2 * r, 2 * r + 1]) for r in range(dp)]
    columns = [dist.new_group([2 * r + t for r in range(dp)]) for t in range(2)]
    model = hot(models.Model(kv_heads=kv_heads))
    heads, kv = ranks_job.HEADS // 2, max(1, kv_heads // 2)
    kv_first = kv * tp if kv_heads > 1 else 0
    for layer in model.layers:
        layer.attn = ranks_job.TensorParallelAttention(layer.attn, heads * tp, heads, kv_first, kv, rows[replica])
    optimizer = ranks_job.Growing(model, columns[tp], first_head=heads * tp)
    if kv_heads == 1:  # Both ranks hold the one key head: it must not grow in two ways.
        optimizer.grows = []
    place = gyrostat.Place(dp=replica, tp=tp, kv_heads=(kv_first, kv))
    answers, digests, peaks = ranks_job.Answers(), [], []
    orders = []
    apply = gyrostat.actuator.Actuator.apply
    gyrostat.actuator.Actuator.apply = lambda self, q, k: orders.append((q, k)) or apply(self, q, k)
    with watch(rank, model, optimizer, address, place=place) as mon:
        ranks_job.wait_for_welcome(mon, rank)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = models.loss_of(model, models.batch(1000 * replica + step))
            loss.backward()
            optimizer.step()
            if kv_heads == 1:
                with torch.no_grad():
                    for layer in model.layers:
                        layer.attn.q_proj.weight *= 1.04
            mon.step(loss)
            ranks_job.wait_for_answer(mon, rank)
            digests.append(ranks_job.digest(model))
            peaks.append([layer.attn.maxima.tolist() for layer in model.layers])
        return {"answers": answers.list, "digests": digests, "peaks": peaks, "status": mon.status, "orders": orders,
                "state": mon.state_dict()["client"], "error": mon._session._client.last_error}


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_heads_that_are_split_over_ranks_are_clipped_where_they_are(tmp_path, daemon, kv_heads):
    ranks = ranks_job.run(tensor_parallel, 2, tmp_path, address=daemon.grpc, kv_heads=kv_heads)
    first, other = ranks
    print(first["error"], first["answers"])
    assert len(first["answers"]) >= 2 and {a[1:] for a in first["answers"]} == {(_abi.APPLIED, "")}
    assert first["orders"] == other["orders"] and first["state"] == other["state"]  # The whole model's heads.
    assert {head for q, _ in first["orders"] for _, head, _ in q} > {0, 3} or kv_heads > 1
    for rank in ranks:
        assert max(max(layer) for step in rank["peaks"] for layer in step) < PEAK_MAX


def test_replicas_of_a_model_split_by_heads_stay_equal(tmp_path, daemon):
    ranks = ranks_job.run(tensor_parallel, 4, tmp_path, address=daemon.grpc, kv_heads=4, dp=2)
    assert len(ranks[0]["answers"]) > 3 and {a[1:] for r in ranks for a in r["answers"]} == {(_abi.APPLIED, "")}
    assert ranks[0]["digests"] == ranks[2]["digests"] and ranks[1]["digests"] == ranks[3]["digests"]
    assert {r["status"] for r in ranks} == {"acting"}


def pipeline(rank, world, address):
    whole = hot(models.Model(layers=3))
    stage = ranks_job.Stage(whole, 0, 2) if rank == 0 else ranks_job.Stage(whole, 2, 1)
    optimizer = ranks_job.Growing(stage)
    answers, peaks = ranks_job.Answers(), []
    place = gyrostat.Place(pp=rank, layers=(0, 2) if rank == 0 else (2, 1))
    with watch(rank, stage, optimizer, address, place=place) as mon:
        ranks_job.wait_for_welcome(mon, rank)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = ranks_job.train_stage(stage, models.batch(step), 0 if rank else None, None if rank else 1)
            optimizer.step()
            mon.step(loss)
            ranks_job.wait_for_answer(mon, rank)
            peaks.append(maxima_of(stage))
        return {"answers": answers.list, "peaks": peaks, "state": mon.state_dict()["client"], "status": mon.status,
                "partial": mon._session._layout.partial, "error": mon._session._client.last_error}


def test_layers_of_a_pipeline_are_clipped_by_the_stage_that_has_them(tmp_path, daemon):
    first, last = ranks_job.run(pipeline, 2, tmp_path, address=daemon.grpc)
    print(first["error"], first["answers"])
    assert len(first["answers"]) > 3 and first["answers"] == last["answers"] and first["state"] == last["state"]
    assert max(max(step) for rank in (first, last) for step in rank["peaks"]) < PEAK_MAX
    assert first["partial"] and last["partial"]


def interrupted(rank, world, address):
    """Rank 1's second clip goes wrong in the middle; later, all load one state and copy the weights of rank 0."""
    model = hot(models.Model())
    optimizer = ranks_job.Growing(model, dist.group.WORLD)
    answers, statuses = ranks_job.Answers(), []
    apply = gyrostat.actuator.Actuator.apply
    if rank == 1:
        gyrostat.actuator.Actuator.apply = lambda self, *order: (
            apply(self, *order) if len(answers.list) != 1 else (_abi.FAILED, "torn"))
    with watch(rank, model, optimizer, address) as mon:
        ranks_job.wait_for_welcome(mon, rank)
        for step in range(2 * STEPS):
            optimizer.zero_grad()
            models.loss_of(model, models.batch(1000 * rank + step)).backward()
            optimizer.step()
            mon.step(1.0)
            ranks_job.wait_for_answer(mon, rank)
            statuses.append((mon.status, len(answers.list)))
            if step == STEPS:
                for p in model.parameters():
                    dist.broadcast(p.data, 0)
                state = [mon.state_dict()]
                dist.broadcast_object_list(state, 0)
                mon.load_state_dict(state[0])
        return {"statuses": statuses, "answers": answers.list, "digest": ranks_job.digest(model)}


def test_a_clip_that_fails_on_one_rank_stops_all_until_they_are_made_equal(tmp_path, daemon):
    whole, torn = ranks_job.run(interrupted, 2, tmp_path, address=daemon.grpc)
    assert (_abi.FAILED, "torn") in [a[1:] for a in torn["answers"]]
    at = next(i for i, (status, _) in enumerate(torn["statuses"]) if status == "unsure")
    assert {status for status, _ in torn["statuses"][at : STEPS + 1]} == {"unsure"}
    assert torn["statuses"][at][1] == torn["statuses"][STEPS][1]  # Nothing was applied meanwhile,
    assert whole["statuses"][at + 1][1] == whole["statuses"][STEPS][1]  # nor by the other rank.
    assert torn["statuses"][-1][0] == whole["statuses"][-1][0] == "acting"
    assert whole["digest"] == torn["digest"]
    again = [rank["answers"][rank["statuses"][STEPS][1]:] for rank in (whole, torn)]  # Once they were made equal.
    assert again[0] == again[1] and {a[1:] for a in again[0]} == {(_abi.APPLIED, "")}, again


def failing_inside(rank, world, address):
    """An error of ours on rank 1 ends the watching there; rank 0 goes on training and neither waits for ever."""
    model = hot(models.Model())
    optimizer = ranks_job.Growing(model, dist.group.WORLD)
    with watch(rank, model, optimizer, address) as mon:
        ranks_job.wait_for_welcome(mon, rank)
        for step in range(STEPS):
            optimizer.zero_grad()
            models.loss_of(model, models.batch(1000 * rank + step)).backward()
            optimizer.step()
            if rank == 1 and step == 3:
                mon._session._hidden.report = lambda report: 1 / 0
            mon.step(1.0)
        return mon.active, ranks_job.digest(model)


def test_an_error_of_ours_on_one_rank_holds_up_nobody(tmp_path, daemon):
    (first, one), (second, other) = ranks_job.run(failing_inside, 2, tmp_path, address=daemon.grpc)
    assert first and not second and one != "" and other != ""


def test_the_example_is_a_job_of_ranks_that_act_together(tmp_path, daemon):
    """As a launcher starts it; torch 1.13's own does not run on Python 3.11."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(2):
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        address = {"GYROSTAT_ADDRESS": daemon.grpc} if rank == 0 else {}
        processes.append(subprocess.Popen([sys.executable, REPOSITORY / "client" / "examples" / "ranks.py", "60"],
                                          env={**os.environ, **place, **address}, cwd=tmp_path, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    said = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    losses = [float(re.search(rf"rank={rank} steps=60 loss=(\S+) gyrostat=acting", out).group(1))
              for rank, (out, _) in enumerate(said)]
    assert max(losses) < 3.9, losses  # ln 64 is 4.16.


def left_alone(rank, world, address):
    """Rank 1 is gone after ten steps. Rank 0's training needs it no more: it goes on, and must not be held up."""
    model = hot(models.Model())
    optimizer = ranks_job.Growing(model)
    mon = watch(rank, model, optimizer, address)
    ranks_job.wait_for_welcome(mon, rank)
    answers, statuses = ranks_job.Answers(), []
    for step in range(10 if rank == 1 else 30):
        optimizer.zero_grad()
        models.loss_of(model, models.batch(step)).backward()
        optimizer.step()
        mon.step(1.0)
        statuses.append((mon.status, len(answers.list)))
    return statuses


def test_a_rank_whose_peer_is_gone_is_unsure_and_trains_on(tmp_path, daemon):
    statuses, _ = ranks_job.run(left_alone, 2, tmp_path, address=daemon.grpc, leave=True)
    assert len(statuses) == 30
    assert statuses[8][0] == "acting" and {status for status, _ in statuses[12:]} == {"unsure"}
    assert statuses[12][1] == statuses[-1][1]  # Nothing was applied any more.


def drifting(rank, world, address):
    """From its seventh step on, one bit of one weight of rank 2 is another; checksums are taken at every other step."""
    model = models.Model()
    optimizer = ranks_job.Growing(model, dist.group.WORLD)
    sums = []
    with watch(rank, model, optimizer, address) as mon:
        ranks_job.wait_for_welcome(mon, rank)
        for step in range(16):
            optimizer.zero_grad()
            models.loss_of(model, models.batch(step)).backward()
            optimizer.step()
            if rank == 2 and step == 7:
                model.head.weight.data.view(torch.int32)[3, 5] ^= 1
            taken = gyrostat.weight_checksum(model) if step % 2 == 0 else None
            mon.step(1.0, weight_checksum=taken)
            sums += [] if taken is None else [int(taken)]
        ranks_job.wait_for_answer(mon, rank)
    return sums


def test_the_rank_whose_weights_are_others_is_named(tmp_path, daemon):
    ranks = ranks_job.run(drifting, 3, tmp_path, address=daemon.grpc)
    assert ranks[0] == ranks[1] and ranks[2][:4] == ranks[0][:4]
    assert all(a != b for a, b in zip(ranks[2][4:], ranks[0][4:]))
    done = subprocess.run([BUILD / "bin" / "gyrostatctl", "findings", "ranks", "--json", "--address", daemon.grpc],
                          capture_output=True, text=True, check=True)
    told = [row for row in map(json.loads, done.stdout.splitlines()) if row["detector"] == "rank_outlier"]
    assert [(row["rank"], row["severity"], row["step_begin"]) for row in told] == [(2, "critical", 8)], told
