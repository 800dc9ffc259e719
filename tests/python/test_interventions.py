"""Orders of every kind but clips, through the real library, from a fake daemon, on a loop that really trains."""

import math

import pytest
import torch

import fake_daemon
import loops
from gyrostat import _abi
from gyrostat.arguments import KINDS
from gyrostat.interventions import Interventions, Request

pytestmark = pytest.mark.skipif(not fake_daemon.ORDERS.exists(), reason=f"{fake_daemon.ORDERS} is not built")
EVERYTHING = tuple(kind for kind in KINDS if kind != "qk_clip")
RAY_RATE, RAY_SLOPE, RAY_BOUNDARY, RAY_UNTIL, FALL_LENGTH, FALL_FLOOR = range(16, 22)


@pytest.fixture
def daemon(monkeypatch):
    monkeypatch.setattr(_abi, "Client", _abi.Client)  # Put back after the test.
    fake_daemon.use_fake_transport()
    return fake_daemon.FakeDaemon()


def start(**options):
    return loops.Loop(address="fake:1", **{"allow": EVERYTHING, **options})


def ordered(loop, daemon, kind, registers, **options):
    """Sends an order when the loop has begun, and trains until it is answered."""
    if loop.steps == 0:
        loop.step()
    number = daemon.order(kind, registers, **options)
    loop.run_until(lambda: daemon.answer(number))
    return daemon.answer(number)


def test_a_scaled_rate_is_for_the_step_alone(daemon):
    with start() as loop:
        assert ordered(loop, daemon, "lr_scale", {0: 0.25, 1: 0})[0] == "applied"
        for _ in range(30):
            loop.step()
        for base, rate in list(zip(loop.bases, loop.optimizer.rates))[-20:]:
            assert rate == pytest.approx(base / 4, rel=1e-12)
        assert loop.optimizer.param_groups[0]["lr"] == loop.scheduler.get_last_lr()[0]


def test_a_longer_warm_up_caps_the_rate_and_ends(daemon):
    with start() as loop:
        loop.step()
        ray = {RAY_RATE: 0.005, RAY_SLOPE: 0.001, RAY_BOUNDARY: 2, RAY_UNTIL: 120, FALL_LENGTH: 0, FALL_FLOOR: 1}
        assert ordered(loop, daemon, "warmup_extension", ray)[0] == "applied"
        first = loop.steps + 1
        while loop.steps < 150:
            loop.step()
        for boundary in range(first, 150):
            base, rate = loop.bases[boundary - 1], loop.optimizer.rates[boundary - 1]
            cap = 0.005 + 0.001 * (boundary - 2)
            assert rate == pytest.approx(min(base, cap) if boundary < 120 else base, rel=1e-6), boundary
        assert any(rate < base for rate, base in zip(loop.optimizer.rates, loop.bases))


def test_a_resumed_loop_goes_on_inside_the_envelope_from_its_first_step(daemon):
    with start() as loop:
        assert ordered(loop, daemon, "lr_scale", {0: 0.25, 1: 0})[0] == "applied"
        loop.step()
        state = loop.mon.state_dict()
    again = start()
    again.mon.load_state_dict(state)
    again.step()
    assert again.optimizer.rates[0] == pytest.approx(again.bases[0] / 4, rel=1e-12)
    again.mon.close()


def test_alpha_moves_on_its_ramp_and_the_state_holds_it(daemon):
    ramp = {_abi.REGISTER_ALPHA: 4.0, _abi.REGISTER_ALPHA + 1: 2.0}
    with start() as loop:
        loop.step()
        number = daemon.order("deepnorm_alpha", ramp, ramp=10)
        loop.run_until(lambda: loop.alphas()[0] > 1)
        seen = [loop.alphas()]
        for _ in range(4):
            loop.step()
            seen.append(loop.alphas())
        state, middle = loop.mon.state_dict(), loop.alphas()
        for _ in range(8):
            loop.step()
            seen.append(loop.alphas())
        assert daemon.answered(number)[0] == "applied" and loop.mon.status == "acting"
    for at, (first, second) in enumerate(seen, 1):
        assert first == pytest.approx(4 ** (min(at, 10) / 10), rel=1e-5)
        assert second == pytest.approx(2 ** (min(at, 10) / 10), rel=1e-5)
    assert seen[-1] == [4.0, 2.0]
    again = start()  # Its alphas are 1.
    again.mon.load_state_dict(state)
    assert again.alphas() == middle  # Before the first forward.
    for expected in seen[5:]:
        again.step()
        assert again.alphas() == expected
    again.mon.close()


def test_a_checkpoint_that_holds_moved_alphas_goes_on_too(daemon):
    """Alpha is a buffer that the model's own checkpoint keeps; one layer of two was moved."""
    with start() as loop:
        loop.step()
        daemon.order("deepnorm_alpha", {_abi.REGISTER_ALPHA: 4.0}, ramp=10)
        loop.run_until(lambda: loop.alphas()[0] > 2)
        saved, state = loop.model.state_dict(), loop.mon.state_dict()
        saved = {name: value.clone() for name, value in saved.items()}
        expected = []
        for _ in range(8):
            loop.step()
            expected.append(loop.alphas())
    assert state["loop"]["declared_alpha"] == 1.0
    again = loops.Loop(weights=saved, address="fake:1", allow=EVERYTHING)
    assert again.alphas() == [saved["layers.0.alpha"], 1.0]
    again.mon.load_state_dict(state)
    for alphas in expected:
        again.step()
        assert again.alphas() == alphas
    assert again.mon.status == "acting" and "deepnorm_alpha" in daemon.allowed(2)
    again.mon.close()
    fresh = loops.Loop(weights=saved, address="fake:1", allow=EVERYTHING)  # Nobody knows what was declared.
    fresh.step()
    assert "deepnorm_alpha" not in daemon.allowed(3)
    fresh.mon.close()


def test_beta_scales_the_branches_once(daemon):
    with start() as loop:
        loop.step()
        loop.optimizer.param_groups[0]["lr"] = 0.0
        loop.scheduler.step = lambda: None
        before = [layer.o_proj.weight.detach().clone() for layer in loop.model.layers]
        assert ordered(loop, daemon, "deepnorm_alpha", {_abi.REGISTER_BETA + 1: 0.5})[0] == "applied"
        assert torch.equal(loop.model.layers[0].o_proj.weight, before[0])
        assert torch.equal(loop.model.layers[1].o_proj.weight, before[1] * 0.5)


def test_a_model_that_shows_another_alpha_holds_everything(daemon, caplog):
    with start() as loop:
        assert ordered(loop, daemon, "deepnorm_alpha", {_abi.REGISTER_ALPHA: 2.0}, ramp=1)[0] == "applied"
        loop.step()
        with torch.no_grad():
            loop.model.layers[0].alpha.fill_(1.5)
        loop.step()
        assert loop.mon.status == "held" and "was given 2 and the model shows 1.5" in caplog.text
        assert ordered(loop, daemon, "lr_scale", {0: 0.5, 1: 0})[0] == "refused"


def test_clipping_leaves_no_more_than_the_order_says(daemon):
    with start(clip=50.0) as loop:
        assert ordered(loop, daemon, "grad_clip", {_abi.REGISTER_GRAD_CLIP: 1e-3})[0] == "applied"
        loop.step()
        assert loop.norms[-1] == pytest.approx(1e-3, rel=1e-3)
        other = torch.nn.Parameter(torch.ones(4))
        other.grad = torch.full((4,), 10.0)
        torch.nn.utils.clip_grad_norm_([other], 5.0)  # No matter of this monitor's.
        assert float(other.grad.norm()) == pytest.approx(5.0, rel=1e-4)
        state = loop.mon.state_dict()
    again = start(clip=50.0)
    again.mon.load_state_dict(state)
    again.step()
    assert again.norms[-1] == pytest.approx(1e-3, rel=1e-3)
    again.mon.close()


def test_a_loop_that_never_clips_does_not_allow_a_lower_norm(daemon, caplog):
    with start(clip=None) as loop:
        loop.step()
        assert "grad_clip" not in daemon.allowed() and "lr_scale" in daemon.allowed()
        assert "grad_clip is not allowed after all: the loop does not clip" in caplog.text


def test_one_step_is_left_out(daemon):
    with start() as loop:
        loop.step()
        due = 40
        assert ordered(loop, daemon, "skip_step", {_abi.REGISTER_SKIP_BOUNDARY: due})[0] == "applied"
        while loop.steps < due - 1:
            loop.step()
        before = [p.detach().clone() for p in loop.model.parameters()]
        updates = len(loop.optimizer.rates)
        loop.step()  # Boundary 40.
        assert all(torch.equal(p, old) for p, old in zip(loop.model.parameters(), before))
        assert len(loop.optimizer.rates) == updates
        loop.step()
        assert len(loop.optimizer.rates) == updates + 1


def test_a_skipped_step_still_calls_its_closure():
    from gyrostat.interventions import SkippedStep

    class Always:
        skips = True

    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    SkippedStep(optimizer, Always())

    def closure():
        loss = weight.sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure)) == 2.0 and torch.equal(weight.detach(), torch.ones(2))
    assert optimizer.step() is None


@pytest.mark.parametrize("kind,register", [("checkpoint", 4), ("rollback", 5), ("halt", 6)])
def test_requests_come_once(daemon, kind, register):
    with start() as loop:
        assert loop.mon.requests() == []
        assert ordered(loop, daemon, kind, {register: 1})[0] == "applied"
        (request,) = loop.mon.requests()
        assert request == Request(kind, f"intent/{kind}", request.step) and 0 < request.step < loop.steps
        loop.step()
        assert loop.mon.requests() == []


def test_maxima_are_measured_as_rarely_as_was_ordered(daemon):
    with start() as loop:
        assert ordered(loop, daemon, "collect", {_abi.REGISTER_COLLECT_EVERY: 5})[0] == "applied"
        measured = []
        for probe in loop.mon._session._probes.values():
            take = probe.take
            probe.take = lambda take=take: measured.append((loop.steps + 1, take())) or measured[-1][1]
        for _ in range(20):
            loop.step()
        boundaries = {boundary for boundary, (maxima, _) in measured if maxima is not None}
        assert boundaries == {boundary for boundary, _ in measured if boundary % 5 == 0} and len(boundaries) == 4


def test_what_is_not_allowed_never_comes(daemon):
    with start(allow=("lr_scale",)) as loop:
        outcome, reason = ordered(loop, daemon, "halt", {6: 1})
        assert outcome == "refused" and "halt" in reason and loop.mon.requests() == []


def test_the_kill_switch(daemon):
    with start() as loop:
        loop.step()
        loop.mon.hold("the pager went off")
        assert loop.mon.status == "held"
        outcome, reason = ordered(loop, daemon, "lr_scale", {0: 0.5, 1: 0})
        assert outcome == "refused" and "the pager went off" in reason
        loop.mon.release()
        assert loop.mon.status == "acting"
        daemon._versions.clear()  # It was never set.
        assert ordered(loop, daemon, "lr_scale", {0: 0.5, 1: 0})[0] == "applied"


def test_weights_that_were_swapped_hold_until_a_reset(daemon, caplog):
    with start(allow=("qk_clip", "lr_scale")) as loop:
        loop.step()
        attention = loop.model.layers[1]
        attention.q_proj.weight.data = attention.q_proj.weight.data.clone()
        loop.step()
        assert loop.mon.status == "held"
        assert "layers.1.q_proj.weight has changed its memory since it was bound" in caplog.text
        outcome, _ = ordered(loop, daemon, "lr_scale", {0: 0.5, 1: 0})
        assert outcome == "refused"
        loop.mon.reset()
        loop.step()
        assert loop.mon.status == "acting"


def test_weights_that_are_made_at_every_look_hold_nothing(daemon):
    """A weight norm: no clip may touch it, and other kinds go on."""
    with start(allow=("qk_clip", "lr_scale")) as loop:
        torch.nn.utils.weight_norm(loop.model.layers[0].q_proj)
        for _ in range(3):
            loop.step()
        assert loop.mon.status == "acting"


def test_a_cap_stays_when_watching_ends_after_an_error(daemon):
    with start() as loop:
        assert ordered(loop, daemon, "lr_scale", {0: 0.25, 1: 0})[0] == "applied"
        loop.step()
        loop.mon._session._hidden.report = lambda report: 1 / 0
        for _ in range(4):
            loop.step()
        assert not loop.mon.active
        for base, rate in list(zip(loop.bases, loop.optimizer.rates))[-3:]:
            assert rate == pytest.approx(base / 4, rel=1e-12)


@pytest.mark.parametrize("state", [{}, {"clip_limit": -1.0, "collect_every": 1, "alphas": [], "clips": False},
                                   {"clip_limit": None, "collect_every": 0, "alphas": [], "clips": False},
                                   {"clip_limit": math.nan, "collect_every": 1, "alphas": [], "clips": False},
                                   {"clip_limit": None, "collect_every": 1, "alphas": [], "clips": False,
                                    "declared_alpha": -1}])
def test_a_state_that_cannot_be_is_refused(state):
    with pytest.raises((KeyError, ValueError, TypeError)):
        Interventions(None, None, lambda: "", lambda: False, {}).load_state_dict(state)
