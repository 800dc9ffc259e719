"""Starts the ranks of a job and collects what they saw; asks gyrostatctl what the daemon did."""

import json
import pathlib
import subprocess
import sys
import time

import gyrostatd
from layout import Shape

HERE = pathlib.Path(__file__).resolve().parent


def ctl(daemon, *arguments, check=True):
    """gyrostatctl's objects; [] where it refuses and `check` is off."""
    done = subprocess.run([gyrostatd.BIN / "gyrostatctl", *map(str, arguments), "--json", "--address", daemon.grpc],
                          capture_output=True, text=True, timeout=60)
    if done.returncode != 0 and check:
        raise RuntimeError(f"gyrostatctl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []


class Ranks:
    """The processes of one job. `program` SPEC RANK is what each of them runs."""

    def __init__(self, folder, spec, program="rank.py"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        spec = {**spec, "rendezvous": str(self.folder / "rendezvous"), "out": str(self.folder)}
        (self.folder / "rendezvous").unlink(missing_ok=True)
        path = self.folder / "spec.json"
        path.write_text(json.dumps(spec))
        self.world = Shape.parse(spec["shape"]).world
        self.log = self.folder / "ranks.log"
        with open(self.log, "ab") as log:
            self.processes = [subprocess.Popen([sys.executable, str(HERE / program), str(path), str(rank)], stdout=log,
                                               stderr=log) for rank in range(self.world)]

    def running(self):
        """Whether all still run; raises where one failed."""
        codes = [process.poll() for process in self.processes]
        if any(code not in (None, 0) for code in codes):
            self.kill()
            raise RuntimeError(f"ranks ended with {codes}:\n{self.log.read_text(errors='replace')[-4000:]}")
        return None in codes

    def results(self, deadline_s, meanwhile=None):
        """What each rank wrote, once all are done. `meanwhile` is called a few times a second until then."""
        end = time.monotonic() + deadline_s
        while self.running():
            if time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"the ranks took more than {deadline_s} s; their log is {self.log}")
            if meanwhile is not None:
                meanwhile()
            time.sleep(0.2)
        return [json.loads((self.folder / f"rank{rank}.json").read_text()) for rank in range(self.world)]

    def kill(self, rank=None):
        """SIGKILL to one rank, or to all that are left; waits for those."""
        for process in self.processes if rank is None else [self.processes[rank]]:
            if process.poll() is None:
                process.kill()
            if rank is None:
                process.wait()
