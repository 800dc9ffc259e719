"""One rank of a job, as a process: rank.py SPEC.json RANK. Writes OUT/rank<RANK>.json when all steps are done.

SPEC: {"shape": "dp2tp2", "config": {fields of job.Config}, "rendezvous": file, "out": folder} and, where gyrostat shall
watch, {"address", "run", "allow": [kinds]}. With "cost": N, a bare twin takes turns with the job, N steps each.
"""

import contextlib
import hashlib
import json
import logging
import pathlib
import sys
import time

import torch
import torch.distributed as dist

import gyrostat
from job import Config, Job, read_text
from layout import Layout, Shape


class Collectives:
    """Counts what this process sends through torch.distributed: the job's own, and of groups that it did not make, so
    gyrostat's: maxima (the agreement, and statistics that are maxima) and all else (statistics that are sums).
    """

    def __init__(self, layout):
        self._seen = [0, 0, 0]
        self._groups = [g for g in (layout.tp_group, layout.dp_group) if g is not None]
        for name in ("all_reduce", "all_gather", "all_gather_object", "broadcast", "reduce", "barrier"):
            self._count(name)
        for name in ("send", "recv"):
            self._count(name, points=True)

    def _count(self, name, points=False):
        original = getattr(dist, name)

        def counted(*args, **named):
            own = points or any(named.get("group") is group for group in self._groups)
            largest = "op" in named and named["op"] == dist.ReduceOp.MAX  # A barrier has none, and == refuses None.
            self._seen[0 if own else 1 if largest else 2] += 1
            return original(*args, **named)

        setattr(dist, name, counted)

    def take(self):
        """[the job's, gyrostat's maxima, gyrostat's others] since the last call."""
        seen, self._seen = self._seen, [0, 0, 0]
        return seen


def watch(spec, layout, job):
    """gyrostat as a user would attach it."""
    shape, config, allow = layout.shape, job.config, tuple(spec["allow"])
    named = {}
    if shape.tp > 1 or shape.pp > 1:
        named["place"] = gyrostat.Place(dp=layout.dp, tp=layout.tp, pp=layout.pp)
    if {"warmup_extension", "lr_scale"} & set(allow):
        named["schedule"] = {"kind": "const", "peak": config.lr, "warmup_steps": config.warmup,
                             "total_steps": config.planned or config.steps}
    if "deepnorm_alpha" in allow:
        named["set_alpha"], named["get_alpha"] = alpha_of(job.model)
    return gyrostat.watch(job.model, job.optimizer, job.scheduler, run=spec["run"], address=spec["address"],
                          allow=allow, **named)


def alpha_of(stage):
    """(set_alpha, get_alpha) of the layers of this stage, which are numbered over the whole model."""
    def tensor(layer):
        return stage.layers[layer - stage.first].alpha

    def set_alpha(layer, value):
        tensor(layer).fill_(value)

    return set_alpha, lambda layer: float(tensor(layer))


def digest(model):
    """Of every bit of the weights on this rank, and of alpha."""
    seen = hashlib.sha256()
    for tensor in model.state_dict().values():
        seen.update(tensor.numpy().tobytes())
    return seen.hexdigest()[:16]


class Log:
    """What the job shows, step by step."""

    def __init__(self):
        self.rows = {"loss": [], "peak": [], "digest": [], "seconds": [], "bare_seconds": [], "collectives": []}

    def step(self, job, monitor, counts):
        begin = time.perf_counter()
        loss = job.step()
        if monitor is not None:
            monitor.step(loss)
        self.rows["seconds"].append(time.perf_counter() - begin)
        self.rows["loss"].append(loss)
        self.rows["peak"].append(job.model.logit_max())
        self.rows["digest"].append(digest(job.model))
        self.rows["collectives"].append(counts.take())


def train(spec, layout, text):
    config = Config(**spec["config"])
    job, log, counts = Job(config, layout, text), Log(), Collectives(layout)
    bare = Job(config, layout, text) if spec.get("cost") else None
    watched = watch(spec, layout, job) if spec.get("address") else contextlib.nullcontext()
    block = spec.get("cost") or config.steps
    with watched as monitor:
        counts.take()
        for first in range(0, config.steps, block):
            for _ in range(min(block, config.steps - first)):
                log.step(job, monitor, counts)
            for _ in range(block if bare else 0):
                begin = time.perf_counter()
                bare.step()
                log.rows["bare_seconds"].append(time.perf_counter() - begin)
            counts.take()
        status = monitor.status if monitor is not None else "bare"
        alpha = [float(layer.alpha) for layer in job.model.layers]
    return {**log.rows, "status": status, "alpha": alpha}


def main():
    logging.basicConfig(format="%(message)s")
    logging.getLogger("gyrostat").setLevel(logging.INFO)
    spec, rank = json.loads(pathlib.Path(sys.argv[1]).read_text()), int(sys.argv[2])
    shape = Shape.parse(spec["shape"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{spec['rendezvous']}", rank=rank, world_size=shape.world)
    result = train(spec, Layout(shape, rank), read_text())
    dist.barrier()  # Nobody leaves while another still sends.
    (pathlib.Path(spec["out"]) / f"rank{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
