"""The daemon dies by -9 in the middle of a guarded run and comes back.

The job does not notice; no finding, intervention or step is lost or doubled.
"""
import socket
import statistics

import gyrostatd
import job

TAU = 30.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_killed_daemon_resumes_the_run_and_training_does_not_notice(tmp_path):
    # The job dials one address for its whole life, so the restarted daemon has to have it again.
    daemon = gyrostatd.Daemon(tmp_path, config=f"policy:\n  mode: act\n  qk_clip:\n    tau: {TAU:g}\n",
                              grpc_port=free_port())
    with daemon:
        guarded = job.Job(daemon, "survivor", seed=0, allow=("qk_clip",))
        guarded.advance(120)
        before = job.ctl(daemon, "findings", "survivor"), job.ctl(daemon, "interventions", "survivor")
        assert before[0] and before[1]
        daemon.kill()
        guarded.advance(30, answered=False)
        daemon.start()
        guarded.advance(5, answered=False)  # The client dials again within seconds.
        guarded.advance(120)
        steps = len(guarded.losses)
        gyrostatd.wait_until(lambda: job.ctl(daemon, "runs")[0]["step"] == steps - 1, "the newest step arrived")
        guarded.monitor.close()

        runs = job.ctl(daemon, "runs")
        assert [r["run"] for r in runs] == ["survivor"]
        assert [p["step"] for p in job.ctl(daemon, "series", "survivor", "loss")] == list(range(steps))
        findings, interventions = job.ctl(daemon, "findings", "survivor"), job.ctl(daemon, "interventions", "survivor")
        for known, now in ((before[0], findings), (before[1], interventions)):
            ids = [row["id"] for row in now]
            assert len(set(ids)) == len(ids)
            assert {row["id"] for row in known} <= set(ids)
        first = {f["id"]: f for f in before[0]}
        for finding in findings:  # What was said before the crash is still said of the same steps.
            if finding["id"] in first:
                assert finding["step_begin"] == first[finding["id"]]["step_begin"]
        applied = sum(i["orders_applied"] for i in interventions)
        assert applied > sum(i["orders_applied"] for i in before[1])
        assert daemon.stop() == 0

    # The clip stood still while the daemon was away, and then caught up: no trap, no rollback.
    assert max(map(max, guarded.maxima[-100:])) <= 2.5 * TAU
    # No step waited for a daemon that was not there. Counted, not timed: how fast steps are, the machine decides.
    with_daemon, without = guarded.waits[60:120], guarded.waits[121:150]
    assert statistics.median(without) <= statistics.median(with_daemon), (with_daemon, without)


def test_a_run_that_outlived_its_daemon_exports_to_what_was_found(tmp_path):
    daemon = gyrostatd.Daemon(tmp_path, grpc_port=free_port())
    with daemon:
        watched = job.Job(daemon, "survivor", seed=0)
        watched.advance(90)
        daemon.kill()
        watched.advance(20, answered=False)
        daemon.start()
        watched.advance(5, answered=False)
        watched.advance(120)
        steps = len(watched.losses)
        gyrostatd.wait_until(lambda: job.ctl(daemon, "runs")[0]["step"] == steps - 1, "the newest step arrived")
        watched.monitor.close()
        # `silence` is of the clock; all else is of the reports.
        live = [each for each in job.ctl(daemon, "findings", "survivor") if each["detector"] != "silence"]
        assert live
        path = tmp_path / "survivor.jsonl.gz"
        (told,) = job.ctl(daemon, "export", "survivor", "--out", path)
        assert (told["reports"], told["attempts"]) == (steps, 1)
        (run,) = job.ctl(daemon, "replay", path)
        assert run["steps"] == steps and run["warnings"] == []
        here = {"id", "run", "attempt", "episode"}
        assert run["findings"] == [{key: each[key] for key in each.keys() - here} for each in live]
