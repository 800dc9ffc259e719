"""Orders of every kind on several real processes, from a daemon that is a fake in the leader's process."""

import pytest
import torch
import torch.distributed as dist

import fake_daemon
import loops
import pacing
import ranks_job
from gyrostat import _abi

pytestmark = [
    pytest.mark.skipif(not fake_daemon.ORDERS.exists(), reason=f"{fake_daemon.ORDERS} is not built"),
    pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed"),
]
ALLOW = ("qk_clip", "warmup_extension", "lr_scale", "deepnorm_alpha", "grad_clip", "skip_step", "checkpoint", "halt")


def averaged(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


class Job:
    """One rank's loop; of each step, what it then looked like."""

    def __init__(self, rank):
        fake_daemon.use_fake_transport()
        self.rank = rank
        self.daemon = fake_daemon.FakeDaemon() if rank == 0 else None
        self.seen = []
        self.loop = self.fresh()

    def fresh(self):
        return loops.Loop(seed=self.rank, after=averaged, allow=ALLOW, address="fake:1" if self.rank == 0 else None)

    def order(self, *args, **options):
        return self.daemon.order(*args, **options) if self.daemon else 0

    def step(self, count=1):
        for _ in range(count):
            self.loop.step()
            mon = self.loop.mon
            self.seen.append((ranks_job.digest(self.loop.model), self.loop.alphas(), self.loop.optimizer.rates[-1],
                              len(self.loop.optimizer.rates), mon.requests(), mon.status))

    def run_until(self, condition, steps=300):
        """Steps until the leader says so; all ranks stop at the same step."""
        for _ in range(steps):
            said = torch.tensor(float(bool(self.daemon and condition())))
            dist.all_reduce(said)
            if said:
                return
            self.step()
            if self.daemon:  # All wait for the leader. It holds the newest report until all have reduced it.
                pacing.wait_for_answer(self.loop.mon, held=1)
        raise AssertionError(f"not within {steps} steps")

    def answered(self, number):
        self.run_until(lambda: self.daemon.answer(number))
        return self.daemon.answer(number) if self.daemon else None


def every_kind(rank, world):
    job = Job(rank)
    job.step(2)
    answers = [job.answered(job.order("deepnorm_alpha", {_abi.REGISTER_ALPHA: 3.0}, ramp=6)),
               job.answered(job.order("lr_scale", {0: 0.5, 1: 0})),
               job.answered(job.order("checkpoint", {4: 1}))]
    ray = {16: 1e-4, 17: 0.004, 18: job.loop.steps + 1, 19: job.loop.steps + 30, 20: 0, 21: 1}
    answers.append(job.answered(job.order("warmup_extension", ray)))
    due = job.loop.steps + 30
    answers.append(job.answered(job.order("skip_step", {_abi.REGISTER_SKIP_BOUNDARY: due})))
    while job.loop.steps < max(due + 3, ray[19] + 2):
        job.step()
    state = job.loop.mon.state_dict()
    allowed = job.daemon.allowed() if job.daemon else None
    job.loop.mon.close()
    # A new attempt in these processes: every rank takes the state that the last rank saved.
    box = [state]
    dist.broadcast_object_list(box, world - 1)
    job.loop = job.fresh()
    job.loop.mon.load_state_dict(box[0])
    before, job.seen = job.seen, []
    resumed = job.loop.alphas()
    job.step(3)
    # The ray has ended.
    rate = job.loop.optimizer.rates[0] / job.loop.bases[0]
    job.loop.mon.close()
    return {"answers": answers, "seen": before, "state": state, "resumed": (resumed, rate), "later": job.seen,
            "due": due, "allowed": allowed, "ray": ray[19]}


def test_what_is_ordered_happens_on_all_ranks_at_the_same_boundary(tmp_path):
    ranks = ranks_job.run(every_kind, 3, tmp_path)
    leader = ranks[0]
    assert [outcome for outcome, _ in leader["answers"]] == ["applied"] * 5, leader["answers"]
    assert leader["allowed"] == ",".join(ALLOW)
    for other in ranks[1:]:
        assert other["seen"] == leader["seen"] and other["later"] == leader["later"]  # Bit for bit.
        assert other["state"] == leader["state"]
    alphas = [alpha[0] for _, alpha, *_ in leader["seen"]]
    assert alphas[0] == 1.0 and alphas[-1] == 3.0 and any(1.0 < alpha < 3.0 for alpha in alphas)
    rates = [rate for _, _, rate, *_ in leader["seen"]]
    begin = leader["ray"] - 30  # Of the ray, as a boundary; rates are halved by then.
    for boundary in range(begin + 8, begin + 20):
        assert rates[boundary - 1] <= (1e-4 + 0.004 * (boundary - begin)) / 2 * (1 + 1e-6), boundary
    assert rates[-1] > 0.04
    requests = [request for *_, asked, _ in leader["seen"] for request in asked]
    assert [request.kind for request in requests] == ["checkpoint"]
    updates = [count for _, _, _, count, *_ in leader["seen"]]
    assert [b - a for a, b in zip(updates, updates[1:])].count(0) == 1 and updates[leader["due"] - 1] == updates[
        leader["due"] - 2]
    assert leader["resumed"] == ([3.0, 1.0], pytest.approx(0.5, rel=1e-12))
    assert {status for *_, status in leader["seen"] + leader["later"]} == {"acting"}


def one_says_stop(rank, world):
    job = Job(rank)
    job.step(2)
    if rank == 1:
        job.loop.mon.hold("somebody pulled the cord")
    job.step(2)
    number = job.order("lr_scale", {0: 0.5, 1: 0}, life=200)
    job.step(20)
    held = [rate for _, _, rate, *_ in job.seen]
    bases = list(job.loop.bases)
    status = job.loop.mon.status
    job.loop.mon.release()
    job.run_until(lambda: job.daemon.answer(number), steps=100)
    job.step(2)
    result = {"held": held == bases, "status": status, "answer": job.daemon.answer(number) if job.daemon else None,
              "seen": list(job.seen), "last": job.loop.optimizer.rates[-1] / job.loop.bases[-1]}
    # And a rank whose model shows another alpha is noticed, whatever its weights.
    if rank == 1:
        with torch.no_grad():
            job.loop.model.layers[0].alpha.fill_(1.25)
    job.step(4)
    number = job.order("lr_scale", {0: 0.25, 1: 0}, life=20)
    job.run_until(lambda: job.daemon.answer(number), steps=60)
    result["unequal"] = job.daemon.answer(number) if job.daemon else None
    result["rate"] = job.loop.optimizer.rates[-1] / job.loop.bases[-1]
    job.loop.mon.close()
    return result


def test_one_rank_stops_all(tmp_path):
    ranks = ranks_job.run(one_says_stop, 2, tmp_path)
    assert all(rank["held"] for rank in ranks)  # No rate was touched meanwhile.
    assert [rank["status"] for rank in ranks] == ["acting", "held"]
    assert ranks[0]["answer"][0] == "applied"
    for rank in ranks:
        assert rank["last"] == pytest.approx(0.5, rel=1e-12)
        assert rank["rate"] == pytest.approx(0.5, rel=1e-12) and ranks[0]["unequal"][0] != "applied"
    assert [entry[:4] for entry in ranks[0]["seen"]] == [entry[:4] for entry in ranks[1]["seen"]]
