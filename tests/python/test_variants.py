"""Clips where there is more than rows of W_q and W_k: behind query-key norms, in MLA, of tied and sliced weights."""

import copy
import math

import pytest
import torch

import fakes
import gyrostat
import models
import variants
from gyrostat import _abi


class Run:
    """A watched model of variants.model that has taken a step with its learning rate at zero."""

    def __init__(self, fake_library, make_attention, optimizer=None, layers=1, dtype=torch.float32):
        self.model = variants.model(make_attention, layers).to(dtype)
        make = optimizer or (lambda params: torch.optim.AdamW(params, lr=0.0))
        self.optimizer = make(self.model.parameters())
        self.mon = gyrostat.watch(self.model, self.optimizer, address="fake:1", allow=("qk_clip",))
        self.train()
        self.client = fake_library.last

    def train(self, q=(), k=()):
        """One step; returns what became of the order (q, k)."""
        if q or k:
            self.client.orders.append(fakes.clip_order(list(q), list(k)))
        loss = models.loss_of(self.model, models.batch())
        loss.backward()
        self.optimizer.step()
        self.mon.step(loss)
        return self.client.acks[-1] if q or k else None

    def maxima(self):
        wide = copy.deepcopy(self.model).float()
        wide(models.batch())
        return wide.maxima()

    def weights(self):
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def changed(self, before):
        """Names of the parameters that are not as they were."""
        return {name for name, p in self.model.named_parameters() if not torch.equal(p, before[name])}


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 2e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("norm", variants.NORMS)
def test_behind_a_per_head_norm_the_gains_take_one_factor(fake_library, norm, kv_heads, dtype, tolerance):
    run = Run(fake_library, lambda: variants.NormedAttention(norm, kv_heads=kv_heads, rope=dtype == torch.float32),
              dtype=dtype)
    assert run.client.model["qk_norm"] == "per_head"
    before, weights = run.maxima(), run.weights()
    assert run.train([(0, head, 0.75) for head in range(4)], [(0, 0, 0.5)]) == (_abi.APPLIED, "")
    run.train()  # At learning rate zero: a missed master would come back.
    torch.testing.assert_close(run.maxima(), before * 0.375, rtol=tolerance, atol=tolerance)
    names = {"weight"} | ({"bias"} if "bias" in norm or norm == "layer" else set())
    assert run.changed(weights) == {f"layers.0.attn.{side}_norm.{name}" for side in "qk" for name in names}


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("norm", variants.NORMS)
def test_behind_a_flattened_norm_only_the_heads_slices_shrink(fake_library, norm, kv_heads):
    run = Run(fake_library, lambda: variants.NormedAttention(norm, flattened=True, kv_heads=kv_heads))
    assert run.client.model["qk_norm"] == "flattened"
    before, weights = run.maxima(), run.weights()
    group = 4 // kv_heads
    heads = [head for head in range(4) if head // group == 1]
    assert run.train([(0, head, 0.5) for head in heads], [(0, 1, 0.75)]) == (_abi.APPLIED, "")
    after = run.maxima()
    for head in range(4):
        factor = 0.375 if head in heads else 1.0
        torch.testing.assert_close(after[0, head], before[0, head] * factor, rtol=2e-5, atol=1e-6)
        if head not in heads:
            assert after[0, head] == before[0, head]  # Bit for bit.
    gain, old = run.model.layers[0].attn.q_norm.weight, weights["layers.0.attn.q_norm.weight"]
    touched = [i for head in heads for i in range(4 * head, 4 * head + 4)]
    keep = [i for i in range(16) if i not in touched]
    assert torch.equal(gain[keep], old[keep]) and not torch.equal(gain[touched], old[touched])


def test_q_only_behind_a_flattened_norm_leaves_the_keys(fake_library):
    run = Run(fake_library, lambda: variants.NormedAttention("rms", flattened=True, kv_heads=2))
    weights = run.weights()
    assert run.train([(0, 3, 0.5)]) == (_abi.APPLIED, "")
    assert run.changed(weights) == {"layers.0.attn.q_norm.weight"}


@pytest.mark.parametrize("q,k", [
    ([(0, 0, 0.5), (0, 1, 0.7)], [(0, 0, 0.5)]),
    ([(0, 0, 0.5)], [(0, 1, 0.5)]),
    ([(0, 0, 0.5)], []),
])
def test_a_shared_gain_takes_no_factors_of_single_heads(fake_library, q, k):
    run = Run(fake_library, lambda: variants.NormedAttention("rms"))
    weights = run.weights()
    outcome, reason = run.train(q, k)
    assert outcome == _abi.REFUSED and "share the gain of layers.0.attn.q_norm" in reason
    assert run.changed(weights) == set()


def test_a_norm_that_is_not_what_its_name_says_is_refused(fake_library):
    class Odd(variants.RMSNorm):
        def forward(self, x):
            return super().forward(x) * x.abs().sqrt()

    def attention():
        made = variants.NormedAttention("rms")
        made.q_norm = Odd(4)
        return made

    run = Run(fake_library, attention)
    for _ in range(70):
        run.train()
    outcome, reason = run.train([(0, head, 0.5) for head in range(4)], [(0, 0, 0.5)])
    assert outcome == _abi.REFUSED and "is no norm that is known" in reason


def test_small_unit_offset_gains_are_not_lost(fake_library):
    """f (1 + w) - 1 of a w near 0, to the last bits: adding 1 first would round it away."""
    run = Run(fake_library, lambda: variants.NormedAttention("rms, unit offset"))
    with torch.no_grad():
        run.model.layers[0].attn.q_norm.weight.copy_(torch.tensor([1e-5, -3e-6, 0.0, 2.0]))
    old = run.model.layers[0].attn.q_norm.weight.detach().double().clone()
    assert run.train([(0, head, 0.9990234375) for head in range(4)], [(0, 0, 0.5)])[0] == _abi.APPLIED
    expected = old * 0.9990234375 + (0.9990234375 - 1)
    torch.testing.assert_close(run.model.layers[0].attn.q_norm.weight.double(), expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("latent", [True, False], ids=["q_b_proj", "q_proj"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_mla_scales_by_both_factors_and_leaves_the_shared_key(fake_library, latent, bias):
    run = Run(fake_library, lambda: variants.LatentAttention(latent=latent, bias=bias))
    assert run.client.model["attention"] == "mla" and run.client.model["qk_norm"] == "none"
    assert run.client.model["head_dim"] == 10 and run.client.model["kv_heads"] == 4
    before, weights = run.maxima(), run.weights()
    factor = math.sqrt(0.4)
    assert run.train([(0, 1, factor), (0, 3, 0.5)], [(0, 1, factor), (0, 3, 0.5)]) == (_abi.APPLIED, "")
    run.train()
    after = run.maxima()
    for head, whole in ((0, 1.0), (1, 0.4), (2, 1.0), (3, 0.25)):
        torch.testing.assert_close(after[0, head], before[0, head] * whole, rtol=2e-6, atol=0)
    assert after[0, 0] == before[0, 0] and after[0, 2] == before[0, 2]
    name = "q_b_proj" if latent else "q_proj"
    touched = {f"layers.0.attn.{each}.weight" for each in (name, "kv_b_proj")}
    touched |= {f"layers.0.attn.{each}.bias" for each in (name, "kv_b_proj")} if bias else set()
    assert run.changed(weights) == touched
    rows, old = getattr(run.model.layers[0].attn, name).weight, weights[f"layers.0.attn.{name}.weight"]
    assert torch.equal(rows[30:36], old[30:36] * 0.5) and torch.equal(rows[36:40], old[36:40] * 0.25)
    rows, old = run.model.layers[0].attn.kv_b_proj.weight, weights["layers.0.attn.kv_b_proj.weight"]
    assert torch.equal(rows[33:39], old[33:39] * 0.5) and torch.equal(rows[39:44], old[39:44])  # Values stay.


def test_mla_of_another_row_order_is_refused(fake_library):
    run = Run(fake_library, lambda: variants.LatentAttention(rope_first=True))
    weights = run.weights()
    for _ in range(70):
        run.train()
    outcome, reason = run.train([(0, 1, 0.5)], [(0, 1, 0.5)])
    assert outcome == _abi.REFUSED and "is not what layers.0.attn.q_b_proj makes" in reason
    assert run.changed(weights) == set()


class SharedQueryKey(models.Attention):
    def __init__(self):
        super().__init__()
        self.k_proj.weight = self.q_proj.weight


def test_rows_that_make_queries_and_keys_are_scaled_once(fake_library):
    run = Run(fake_library, SharedQueryKey)
    before, weights = run.maxima(), run.weights()
    assert run.train([(0, 2, 0.5)], [(0, 2, 0.5)]) == (_abi.APPLIED, "")
    torch.testing.assert_close(run.maxima()[0, 2], before[0, 2] * 0.25, rtol=1e-6, atol=0)
    rows = run.model.layers[0].attn.q_proj.weight
    assert torch.equal(rows[8:12], weights["layers.0.attn.q_proj.weight"][8:12] * 0.5)


def test_weights_that_other_modules_use_are_never_scaled(fake_library):
    model = models.Model(layers=2)
    model.layers[0].mlp[0].weight = torch.nn.Parameter(model.layers[0].attn.q_proj.weight.detach().repeat(2, 1))
    model.layers[0].attn.q_proj.weight = torch.nn.Parameter(model.layers[0].mlp[0].weight.detach()[:16])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    mon = gyrostat.watch(model, optimizer, address="fake:1", allow=("qk_clip",))
    models.loss_of(model, models.batch()).backward()
    optimizer.step()
    fake_library.last.orders.append(fakes.clip_order([(0, 0, 0.5)], []))
    mon.step(1.0)
    assert fake_library.last.acks[-1] == (_abi.REFUSED, "the Q and K projections of layer 0 are not known")


def test_optimizer_state_is_not_touched(fake_library):
    for make in (lambda: variants.NormedAttention("layer"), variants.LatentAttention):
        run = Run(fake_library, make, lambda params: torch.optim.AdamW(params, lr=1e-3))
        run.train()
        before = {id(p): {name: value.clone() for name, value in state.items() if torch.is_tensor(value)}
                  for p, state in run.optimizer.state.items()}
        run.client.orders.append(fakes.clip_order([(0, head, 0.5) for head in range(4)], [(0, 0, 0.5)]))
        run.mon.step(1.0)
        assert run.client.acks[-1][0] == _abi.APPLIED
        for p, state in run.optimizer.state.items():
            assert all(torch.equal(state[name], value) for name, value in before[id(p)].items())


def test_what_q_only_costs_is_reported(fake_library):
    run = Run(fake_library, lambda: models.Attention(kv_heads=2), layers=2)
    run.train([(0, 0, 0.5)], [(0, 0, 0.5)])
    run.train()
    assert "qk_ratio" not in run.client.reports[-1]  # Keys shrank with the queries: nothing drifts.
    run.train([(1, head, 0.5) for head in range(4)])
    run.train()
    attn = run.model.layers[1].attn
    expected = attn.k_proj.weight.square().mean().sqrt() / attn.q_proj.weight.square().mean().sqrt()
    assert run.client.reports[-1]["qk_ratio"] == pytest.approx(float(expected), rel=1e-6)
