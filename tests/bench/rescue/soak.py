"""One rank of a job that is killed and comes back, as a process: soak.py SPEC.json RANK.

SPEC: as rank.py's, with "attempt" (a number) and "every" (steps between checkpoints). Goes on from the last complete
checkpoint in OUT, and until OUT/stop is there at a checkpoint. Each boundary is a line in OUT/seen<RANK>.jsonl:
attempt, step, the digest of the weights after it, and whether gyrostat changed them in it.
"""

import hashlib
import json
import logging
import pathlib
import shutil
import sys

import torch
import torch.distributed as dist

from job import Config, Job, read_text
from layout import Layout, Shape
from rank import digest, watch

_KEPT = 2  # Checkpoints.


def checkpoints(folder):
    """Steps with a complete checkpoint, oldest first."""
    return sorted(int(p.parent.name) for p in folder.glob("checkpoint/*/complete"))


class Soak:
    """A rank's loop."""

    def __init__(self, spec, rank):
        self.folder, self.rank, self.spec = pathlib.Path(spec["out"]), rank, spec
        shape = Shape.parse(spec["shape"])
        dist.init_process_group("gloo", init_method=f"file://{spec['rendezvous']}", rank=rank, world_size=shape.world)
        self.layout = Layout(shape, rank)
        self.job = Job(Config(**spec["config"]), self.layout, read_text())
        self.monitor = watch(spec, self.layout, self.job)
        saved = checkpoints(self.folder)
        if saved:
            state = torch.load(self.folder / "checkpoint" / str(saved[-1]) / f"rank{rank}.pt")
            self.job.load_state_dict(state["job"])
            self.monitor.load_state_dict(state["monitor"])

    def run(self):
        with open(self.folder / f"seen{self.rank}.jsonl", "a", encoding="utf-8") as seen:
            stop = False
            while not stop and self.job.steps_done < self.job.config.steps:
                loss = self.job.step()
                before = digest(self.job.model)
                self.monitor.step(loss)
                after = digest(self.job.model)
                row = {"attempt": self.spec["attempt"], "step": self.job.steps_done, "digest": after,
                       "changed": before != after, "peak": self.job.model.logit_max(), "loss": loss}
                if self.job.steps_done % self.spec["every"] == 0:
                    row["state"], stop = self.save()
                seen.write(json.dumps(row) + "\n")
                seen.flush()
        self.monitor.close()
        dist.barrier()

    def save(self):
        """(digest of gyrostat's state, whether to stop). A checkpoint counts once all ranks have written theirs."""
        state = self.monitor.state_dict()
        here = self.folder / "checkpoint" / str(self.job.steps_done)
        here.mkdir(parents=True, exist_ok=True)
        torch.save({"job": self.job.state_dict(), "monitor": state}, here / f"rank{self.rank}.pt")
        dist.barrier()
        stop = torch.tensor([float((self.folder / "stop").exists())])
        dist.broadcast(stop, 0)
        if self.rank == 0:
            (here / "complete").touch()
            for old in checkpoints(self.folder)[:-_KEPT]:
                shutil.rmtree(self.folder / "checkpoint" / str(old))
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:16], bool(stop)


def main():
    logging.basicConfig(format="%(message)s")
    logging.getLogger("gyrostat").setLevel(logging.INFO)
    torch.set_num_threads(1)
    Soak(json.loads(pathlib.Path(sys.argv[1]).read_text()), int(sys.argv[2])).run()


if __name__ == "__main__":
    main()
