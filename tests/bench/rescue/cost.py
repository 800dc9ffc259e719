"""What gyrostat costs a job of ranks: step time beside a bare twin of the same processes, and collectives a step."""

import statistics

import gyrostatd
import launch

_IN_TURNS = 20  # Steps of the watched job, then as many of the bare one, so that a busy machine slows both.
_WARM_UP = 5  # Steps whose collectives are not counted: the ranks still meet.


def measure(layout, folder, deadline_s, steps=200):
    """(median step time with agreement over the bare twin's, [collectives a step: the job's own, gyrostat's maxima,
    gyrostat's others]). `folder` is made.
    """
    folder.mkdir(parents=True)
    config = {"norm": "pre", "layers": 4, "lr": 0.003, "steps": steps}
    with gyrostatd.Daemon(folder, config="policy: {mode: act}\n") as daemon:
        ranks = launch.Ranks(folder, {"shape": layout, "config": config, "run": "cost", "address": daemon.grpc,
                                      "allow": ("qk_clip",), "cost": _IN_TURNS})
        try:
            results = ranks.results(deadline_s)
        finally:
            ranks.kill()
        daemon.stop()
    ratio = statistics.median(statistics.median(r["seconds"]) / statistics.median(r["bare_seconds"]) for r in results)
    seen = [counts for r in results for counts in r["collectives"][_WARM_UP:]]
    return ratio, [statistics.median(counts[i] for counts in seen) for i in range(3)]
