"""A training process without the training: does what stdin says, a command with its argument a line, and answers each
with one line of JSON.

    python3 process_job.py ADDRESS [OPTION=NUMBER …]      options of gyro_options, e.g. ring_reports=2

It says {"opened": STATUS} first. Commands: steps N, stats, fork WAY, close FLUSH_MS, end WAY. Statuses are numbers.
"""
import collections
import json
import os
import sys

import gyrostat._abi as abi

HEADS = 4  # As many layers.


class Job:
    def __init__(self, address, options):
        self.library = abi.Library()
        self.client = abi.Client(self.library, {"address": address, "run": "process", **options},
                                 {"layers": HEADS, "heads": HEADS})
        self.maxima = (abi.ctypes.c_float * (HEADS * HEADS))(*range(HEADS * HEADS))
        self.step = 0

    def record(self):
        """One step with all that a step has; the statuses of its calls."""
        client, address = self.client, abi.ctypes.addressof(self.maxima)
        statuses = [client.begin(self.step), client.scalar("loss", self.step),
                    client.array("hidden_ms", address, HEADS),
                    client.attention(address, HEADS * HEADS, "exact"), client.end()]
        statuses.append(abi.NONE if client.poll() is None else abi.OK)
        self.step += 1
        return statuses

    def steps(self, count):
        """How often the calls of `count` steps answered what; the poll's own last."""
        seen, polls = collections.Counter(), collections.Counter()
        for _ in range(int(count)):
            *recorded, polled = self.record()
            seen.update(recorded)
            polls[polled] += 1
        return {"recorded": seen, "polled": polls, "next": self.step}

    def stats(self):
        stats = self.client.stats()
        numbers = {name: getattr(stats, name) for name, _ in abi.Stats._fields_ if name != "last_error"}
        return {**numbers, "last_error": stats.last_error.decode()}

    def fork(self, way):
        """What became of a child that calls everything and ends by `way`: [statuses, exit code]."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            client = self.client
            statuses = self.record()[:-1] + [client.reset(), client.load(b"x"), self.library.stats(
                client._handle, abi.ctypes.byref(client._stats)), self.library.close(client._handle, 250)]
            os.write(write, json.dumps(statuses).encode())
            os.close(write)
            end(way)
        os.close(write)
        with os.fdopen(read) as pipe:
            statuses = json.load(pipe)
        return [statuses, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]

    def close(self, flush_ms):
        status = self.library.close(self.client._handle, int(flush_ms))
        self.client._handle = abi._HANDLE()
        return status


def end(way):
    """Ends the process. Nothing closes the client."""
    if way == "sys.exit":
        sys.exit(0)
    if way == "os._exit":
        os._exit(0)
    if way == "raise":
        raise RuntimeError("as asked")
    assert way == "return", way


def main():
    options = {name: int(value) for name, value in (each.split("=") for each in sys.argv[2:])}
    job = Job(sys.argv[1], options)
    print(json.dumps({"opened": job.client.opened}), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "end":
            return end(*arguments)
        print(json.dumps(getattr(job, command)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
