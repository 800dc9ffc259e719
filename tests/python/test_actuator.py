"""A clip does to the weights exactly what the order says, on every kind of weight, or nothing at all."""

import copy
import logging
import math

import pytest
import torch

import fakes
import gyrostat
import models
from byte_gpt.muon import MuonWithAdamW
from gyrostat import _abi, actuator


class ExternalMasters:
    """Float32 copies in the optimizer's groups, copied back after each step: what mixed-precision loops do by hand."""

    def __init__(self, params):
        self.params = list(params)
        self.masters = [p.detach().float().clone() for p in self.params]
        self.inner = torch.optim.SGD(self.masters, lr=0.0)
        self.param_groups = self.inner.param_groups

    def step(self):
        for p, master in zip(self.params, self.masters):
            master.grad = p.grad.float() if p.grad is not None else None
        self.inner.step()
        with torch.no_grad():
            for p, master in zip(self.params, self.masters):
                p.copy_(master)


class HiddenMasters(torch.optim.SGD):
    """Updates copies that nobody can find and writes them over the parameters."""

    def __init__(self, params, lr):
        super().__init__(params, lr)
        secret = [(p, p.detach().clone()) for group in self.param_groups for p in group["params"]]

        def restore():
            for p, copy in secret:
                if p.grad is not None:
                    copy -= self.param_groups[0]["lr"] * p.grad
                    p.copy_(copy)

        self._restore = restore

    @torch.no_grad()
    def step(self, closure=None):
        self._restore()


def adam(params):
    return torch.optim.AdamW(params, lr=0.0)


def with_state_masters(params):
    return MuonWithAdamW([{"params": list(params), "lr": 0.0}])


class Run:
    """A watched model that has taken `warm` steps with its learning rate at zero, unless told otherwise."""

    def __init__(self, fake_library, make_optimizer=adam, dtype=torch.float32, warm=1, tokens=None, **model):
        self.model = models.Model(**model).to(dtype)
        self.tokens = models.batch() if tokens is None else tokens
        with torch.no_grad():
            for layer in self.model.layers:  # So that logits are large enough for bfloat16 not to matter.
                for name, p in layer.attn.named_parameters():
                    p.mul_(4.0) if "proj" in name or "query" in name else None
                    if name.endswith("bias"):
                        p.normal_()
        self.optimizer = make_optimizer(self.model.parameters())
        self.mon = gyrostat.watch(self.model, self.optimizer, address="fake:1", allow=("qk_clip",))
        for _ in range(warm):
            self.train()
        self.client = fake_library.last

    def train(self, order=None):
        """One step on the same batch; the order is applied at its boundary. Returns the maxima of its forward."""
        if order is not None:
            self.client.orders.append(order)
        loss = models.loss_of(self.model, self.tokens)
        maxima = self.model.maxima()
        loss.backward()
        self.optimizer.step()
        self.mon.step(loss)
        return maxima

    def measure(self):
        """Maxima of the weights as they are, computed in float32: bfloat16 activations are off by up to a percent."""
        wide = copy.deepcopy(self.model).float()
        wide(self.tokens)
        return wide.maxima()

    def weights(self):
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}


def group_min(maxima, tau, kv_heads):
    """QK-Clip's factors by the formulas: (q, k) lists, and the factor on every head's logits."""
    layers, heads = maxima.shape
    gamma = (tau / maxima.clamp(min=tau)).view(layers, kv_heads, -1)
    group = gamma.amin(dim=-1)
    whole = group.repeat_interleave(heads // kv_heads, dim=1)
    q = [(i, h, float(whole[i, h]) ** 0.5) for i in range(layers) for h in range(heads) if whole[i, h] < 1]
    k = [(i, g, float(group[i, g]) ** 0.5) for i in range(layers) for g in range(kv_heads) if group[i, g] < 1]
    return q, k, whole


def q_only(maxima, tau, kv_heads):
    gamma = tau / maxima.clamp(min=tau)
    return [(i, h, float(gamma[i, h])) for i, h in (gamma < 1).nonzero().tolist()], [], gamma


KINDS = {
    "float32": (torch.float32, adam, 1e-3),
    "bfloat16 without master": (torch.bfloat16, adam, 1e-2),
    "bfloat16, master in the state": (torch.bfloat16, with_state_masters, 1e-2),
    "bfloat16, masters in the groups": (torch.bfloat16, ExternalMasters, 1e-2),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("layout", ["split", "fused", "interleaved"])
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["mha", "gqa"])
def test_same_batch_after_a_clip_is_at_tau(fake_library, kv_heads, layout, bias, kind):
    """Invariant A: weights otherwise unchanged, flagged heads end at tau and the others where they were. One layer:
    what lies above a clipped one sees other inputs.
    """
    dtype, make_optimizer, tolerance = KINDS[kind]
    run = Run(fake_library, make_optimizer, dtype, layers=1, kv_heads=kv_heads, bias=bias, fused=layout == "fused",
              interleaved=layout == "interleaved")
    before = run.measure()
    for variant in (group_min, q_only):
        tau = float(before.sort().values[0, 1])  # Three of the four heads are above.
        q, k, factor = variant(before, tau, kv_heads)
        run.train(fakes.clip_order(q, k))
        assert run.client.acks[-1] == (_abi.APPLIED, "")
        run.train()
        after = run.measure()
        torch.testing.assert_close(after, before * factor, rtol=tolerance, atol=0)
        if variant is q_only or kv_heads == 4:
            torch.testing.assert_close(after, before.clamp(max=tau), rtol=tolerance, atol=0)
        before = after
    assert run.mon.active


@pytest.mark.parametrize("kind", KINDS)
def test_untouched_rows_keep_their_bits_and_clips_survive_the_optimizer(fake_library, kind):
    dtype, make_optimizer, _ = KINDS[kind]
    run = Run(fake_library, make_optimizer, dtype, bias=True)
    before = run.weights()
    run.train(fakes.clip_order([(1, 2, 0.5)], [(1, 2, 0.5)]))
    run.train()  # A step at learning rate zero: a missed master would bring the old values back.
    after = run.weights()
    rows = slice(8, 12)
    for name, old in before.items():
        new = after[name]
        if name.startswith("layers.1.attn.q_proj") or name.startswith("layers.1.attn.k_proj"):
            torch.testing.assert_close(new[rows], old[rows] * 0.5)  # A power of two is exact in any type.
            keep = [i for i in range(16) if not 8 <= i < 12]
            assert torch.equal(new[keep], old[keep])
        else:
            assert torch.equal(new, old)


def test_master_rounds_once(fake_library):
    run = Run(fake_library, with_state_masters, torch.bfloat16)
    weight = run.model.layers[0].attn.q_proj.weight
    master = run.optimizer.state[weight]["master"]
    with torch.no_grad():
        master.add_(1e-4 * torch.randn_like(master))
        weight.copy_(master)
    expected = master.clone()
    for _ in range(50):
        run.train(fakes.clip_order([(0, 0, 0.999)], []))
        expected[:4] = expected[:4] * 0.999
    torch.testing.assert_close(master, expected, rtol=1e-6, atol=0)
    assert torch.equal(weight, master.bfloat16())


def test_masters_are_declared_when_they_are_known(fake_library):
    assert Run(fake_library).client.model["master_fp32"] == 1
    assert Run(fake_library, adam, torch.bfloat16).client.model["master_fp32"] == 0
    assert Run(fake_library, with_state_masters, torch.bfloat16).client.model["master_fp32"] == 1
    fake_library.last = None
    Run(fake_library, adam, torch.bfloat16, warm=0)
    assert fake_library.last is None  # Not opened yet: the optimizer makes its masters in its first step.


def refused(run, order):
    before = run.weights()
    run.train(order)
    outcome, reason = run.client.acks[-1]
    assert outcome == _abi.REFUSED
    assert all(torch.equal(p, before[name]) for name, p in run.model.named_parameters())
    return reason


@pytest.mark.parametrize("q,k,words", [
    ([(0, 0, 0.5), (9, 0, 0.5)], [], "layer 9 has no attention that was found"),
    ([(0, 0, 0.5), (0, 4, 0.5)], [], "layer 0 has 4 q heads, the order names head 4"),
    ([(0, 0, 0.5)], [(1, 7, 0.5)], "layer 1 has 4 k heads, the order names head 7"),
    ([(0, 0, 1.5)], [], "the factor 1.5 of layer 0 head 0 is outside (0, 1]"),
    ([(0, 0, 0.0)], [], "the factor 0 of layer 0 head 0 is outside (0, 1]"),
    ([(0, 0, math.nan)], [], "the factor nan of layer 0 head 0 is outside (0, 1]"),
])
def test_a_wrong_entry_refuses_the_whole_order(fake_library, q, k, words):
    assert refused(Run(fake_library), fakes.clip_order(q, k)) == words


def test_unverified_projections_are_refused(fake_library):
    reason = refused(Run(fake_library, kernel="hidden"), fakes.clip_order([(0, 0, 0.5)], []))
    assert reason == "layer 0: it has not been seen that the softmax input comes from layers.0.attn.q_proj"


def test_other_kinds_are_refused(fake_library):
    order = fakes.clip_order([(0, 0, 0.5)], [])
    order.kind = b"prune"
    assert refused(Run(fake_library), order) == "this client cannot apply prune"


def test_without_an_optimizer_nothing_is_clipped(fake_library):
    model = models.Model()
    mon = gyrostat.watch(model, address="fake:1", allow=("qk_clip",))
    models.loss_of(model, models.batch()).backward()
    fake_library.last.orders.append(fakes.clip_order([(0, 0, 0.5)], []))
    mon.step(1.0)
    assert "no optimizer was given to watch()" in fake_library.last.acks[0][1]


def test_stale_masters_are_refused(fake_library):
    run = Run(fake_library, ExternalMasters, torch.bfloat16)
    with torch.no_grad():
        run.optimizer.masters[5] += 1.0
        for p, master in zip(run.optimizer.params, run.optimizer.masters):
            master.mul_(1.01)
    run.optimizer.step = lambda: None
    assert "no float32 master of it was found" in refused(run, fakes.clip_order([(0, 0, 0.5)], []))


def test_frozen_projections_are_refused(fake_library):
    run = Run(fake_library, lambda params: torch.optim.SGD(list(params)[-3:], lr=0.0))
    assert "is not among the optimizer's parameters" in refused(run, fakes.clip_order([(0, 0, 0.5)], []))


def test_a_factor_of_one_changes_no_bit(fake_library):
    run = Run(fake_library)
    before = run.weights()
    run.train(fakes.clip_order([(0, 0, 1.0)], [(0, 0, 1.0)]))
    assert run.client.acks == [(_abi.APPLIED, "")]
    assert all(torch.equal(p, before[name]) for name, p in run.model.named_parameters())


def test_a_hidden_master_is_found_out_and_ends_clipping(fake_library, caplog):
    run = Run(fake_library, lambda params: HiddenMasters(params, lr=1e-6))
    run.train(fakes.clip_order([(0, 1, 0.7)], [(0, 1, 0.7)]))
    assert run.client.acks[-1] == (_abi.APPLIED, "")
    for _ in range(4):
        run.train()
    for layer in (0, 1):
        run.train(fakes.clip_order([(layer, 1, 0.7)], []))
        outcome, reason = run.client.acks[-1]
        assert outcome == _abi.REFUSED
        assert "optimizer steps bring the old weights back; a master copy was missed" in reason
    assert [r.levelno for r in caplog.records] == [logging.CRITICAL]
    assert run.mon.active  # Reports go on.


def test_a_hidden_master_is_found_out_while_every_step_clips(fake_library):
    run = Run(fake_library, lambda params: HiddenMasters(params, lr=1e-2))
    for seed in range(16):
        run.tokens = models.batch(seed)
        run.train(fakes.clip_order([(0, 1, 0.8 + 0.1 * (seed % 2))], []))
    assert run.client.acks[-1][0] == _abi.REFUSED


@pytest.mark.parametrize("make_optimizer", [torch.optim.AdamW, torch.optim.SGD, "muon"])
@pytest.mark.parametrize("lr", [1e-6, 1e-3, 1e-1, 3.0])
def test_ordinary_updates_do_not_look_like_a_missed_master(fake_library, make_optimizer, lr):
    """Learning rates from tiny to absurd: the check may abstain, but never accuses."""
    if make_optimizer == "muon":
        def make_optimizer(params, lr):
            return MuonWithAdamW([{"params": [p for p in params if p.ndim == 2], "lr": lr, "muon": True}])

    run = Run(fake_library, lambda params: make_optimizer(params, lr=lr))
    for seed in range(40):
        run.tokens = models.batch(seed)
        factor = 0.97 - 0.05 * (seed % 3)
        run.train(fakes.clip_order([(0, 1, factor), (1, 0, 0.8)], [(0, 1, factor)]))
    assert {outcome for outcome, _ in run.client.acks} == {_abi.APPLIED}


def test_an_actuator_that_does_nothing_fails_its_own_check(fake_library, monkeypatch, caplog):
    run = Run(fake_library)
    monkeypatch.setattr(actuator.Write, "apply", lambda self: None)
    run.train(fakes.clip_order([(0, 0, 0.7)], [(0, 0, 0.7)]))
    outcome, reason = run.client.acks[-1]
    assert outcome == _abi.FAILED and "should have scaled the logits by 0.4900, a sample shows 1.0000" in reason
    assert caplog.records[-1].levelno == logging.CRITICAL


def test_an_error_while_scaling_is_failed_not_refused(fake_library, monkeypatch):
    run = Run(fake_library)
    monkeypatch.setattr(actuator.Write, "apply", lambda self: 1 / 0)
    run.train(fakes.clip_order([(0, 0, 0.7)], []))
    assert run.client.acks[-1][0] == _abi.FAILED and run.mon.active


def test_weights_rebound_to_something_else_are_refused(fake_library):
    run = Run(fake_library)
    projection = run.model.layers[0].attn.q_proj
    values = projection.weight.detach().clone()
    del projection._parameters["weight"]
    projection.weight = values
    assert refused(run, fakes.clip_order([(0, 0, 0.5)], [])) == "layers.0.attn.q_proj.weight is not a plain parameter"
