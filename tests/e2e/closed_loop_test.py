"""The main job, end to end: logits of a real transformer run away, gyrostat clips them live.

The limits are those that experiments with a simulated controller showed to be reachable; each seed is judged alone.
"""
import pytest

import gyrostatd
import job

TAU = 30.0
STEPS = 400
CONFIG = f"policy:\n  qk_clip:\n    tau: {TAU:g}\n"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_guarded_run_is_held_and_learns_more_than_its_unguarded_twin(tmp_path, seed):
    with gyrostatd.Daemon(tmp_path, config=CONFIG) as daemon:
        unguarded = job.Job(daemon, "unguarded", seed, allow=("qk_clip",))  # Allowed, but the mode is observe.
        unguarded.advance(STEPS)
        unguarded.monitor.close()
        guarded = job.Job(daemon, "guarded", seed, allow=("qk_clip",))
        guarded.set_mode(daemon, "act")
        guarded.advance(STEPS)
        guarded.monitor.close()

        interventions = job.ctl(daemon, "interventions", "guarded")
        applied = [i for i in interventions if i["step_applied"] is not None]
        assert applied, interventions
        assert all(i["kind"] == "qk_clip" and i["author"] == "policy" for i in applied)
        assert sum(i["orders_applied"] for i in applied) > 20
        assert all(i["median_delay_steps"] <= 2 for i in applied), applied
        assert all(i["outcome"] in ("effective", None) for i in applied), applied
        assert not [i for i in job.ctl(daemon, "interventions", "unguarded") if i["orders"]]
        found = [f for f in job.ctl(daemon, "findings", "unguarded") if f["detector"] == "attn_logit"]
        assert any(f["recommend"] == "qk_clip" for f in found), found
        assert daemon.stop() == 0

    assert unguarded.peak() > 800
    assert guarded.peak() <= 2.5 * TAU
    held = guarded.maxima[applied[0]["step_applied"] + 1:]
    share = sum(value > 1.5 * TAU for heads in held for value in heads) / (len(held) * len(held[0]))
    assert share <= 0.01
    assert job.longest_excursion(held, 1.5 * TAU) <= 3
    assert guarded.final_loss() < unguarded.final_loss()
    print(f"seed {seed}: peak {unguarded.peak():.0f} / {guarded.peak():.1f}, "
          f"loss {unguarded.final_loss():.3f} / {guarded.final_loss():.3f}, over 1.5 tau {share:.4f}")

    job.replay_journal(daemon, "guarded")


def test_grouped_keys_are_clipped_as_a_group(tmp_path):
    with gyrostatd.Daemon(tmp_path, config=CONFIG + "  mode: act\n") as daemon:
        guarded = job.Job(daemon, "gqa", seed=0, kv_heads=2, allow=("qk_clip",))
        guarded.advance(250)
        guarded.monitor.close()
        applied = [i for i in job.ctl(daemon, "interventions", "gqa") if i["orders_applied"]]
        assert applied, job.ctl(daemon, "interventions", "gqa")
        daemon.stop()
    assert guarded.peak() <= 5 * TAU  # Grouped heads grow faster; delay 2 reached 147 at this tau in experiments.
    job.replay_journal(daemon, "gqa", group=2)


def test_local_mode_clips_at_the_boundary_that_measured(tmp_path):
    with gyrostatd.Daemon(tmp_path, config=CONFIG + "    where: local\n  mode: act\n") as daemon:
        guarded = job.Job(daemon, "local", seed=0, allow=("qk_clip",))
        guarded.advance(250)
        guarded.monitor.close()
        applied = [i for i in job.ctl(daemon, "interventions", "local") if i["orders_applied"]]
        assert applied, job.ctl(daemon, "interventions", "local")
        assert applied[0]["median_delay_steps"] == 0
        daemon.stop()
    assert guarded.peak() <= 2.5 * TAU
    job.replay_journal(daemon, "local")
