"""DeepNorm's alpha and beta on a model that really computes with them."""

import copy
import decimal
import logging
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gyrostat import ticks
from gyrostat.alpha import Alphas, Beta, Branch, Ramp, bound, fold_factor
from gyrostat.trouble import Fuse


def exact_ln(x):
    with decimal.localcontext() as context:
        context.prec = 60
        return decimal.Decimal(x).ln() * 2**20


@pytest.mark.parametrize("x", [1.0, 2.0, 5.0, 10.0, 1.0000001, 0.3, 1e-300, 5e-324, 1.7e308, math.pi])
def test_logarithms_are_those_of_the_daemon(x):
    assert abs(ticks.ln(x) - exact_ln(x)) <= 1
    assert ticks.ln(10.0) == 2414435  # kClipTicksMax of daemon/remedy/ticks.h.


@pytest.mark.parametrize("x", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_what_has_no_logarithm_has_0(x):
    assert ticks.ln(x) == 0


@pytest.mark.parametrize("t", [1, 7, 1 << 19, 1 << 20, 2414435, 30 << 20, 700 << 20, 740 << 20])
def test_exponentials_are_right_to_the_last_bits(t):
    with decimal.localcontext() as context:
        context.prec = 60
        exact = (-decimal.Decimal(t) / 2**20).exp()
        error = abs(decimal.Decimal(ticks.exp_minus(t)) - exact)
        assert error <= exact * decimal.Decimal(2) ** -50 + decimal.Decimal(5e-324)
    assert ticks.exp_minus(0) == 1.0 and ticks.exp_minus(-5) == 1.0 and ticks.exp_minus(800 << 20) == 0.0


def test_alpha_on_its_way_has_the_bits_of_the_daemon():
    """The same numbers as in tests/unit/remedy/deepnorm_test.cc."""
    assert Ramp(1.0, 4.0, 0, 50).at(1) == float.fromhex("0x1.07327c9cea4e7p+0")
    assert Ramp(1.0, 2.2133638394006434, 10, 50).at(33) == float.fromhex("0x1.70f282128654p+0")
    assert ticks.exp_minus(764341718) == float.fromhex("0x0.000000052d18ap-1022")


@pytest.mark.parametrize("start,to", [(1.0, 4.0), (4.0, 1.0), (1.0, 1.0)])
def test_a_ramp_is_geometric_and_ends_exactly(start, to):
    ramp = Ramp(start, to, 100, 50)
    assert ramp.at(0) == ramp.at(100) == start and ramp.at(150) == ramp.at(10**6) == to
    for boundary in range(100, 151):
        assert ramp.at(boundary) == pytest.approx(start * (to / start) ** ((boundary - 100) / 50), rel=2e-6)


class PostNorm(nn.Module):
    """A post-norm layer with a fused QKV and a gated MLP, without a norm's gain."""

    def __init__(self, width=8):
        super().__init__()
        self.register_buffer("alpha", torch.tensor(1.0))
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.branch = None

    def attend(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out((q @ k.transpose(-1, -2)).softmax(dim=-1) @ v)

    def mlp(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def forward(self, x):
        for branch in (self.attend, self.mlp):
            x = F.layer_norm(self.alpha * x + branch(x), x.shape[-1:])
        return x

    def branches(self):
        whole = [(self.out, "weight"), (self.out, "bias"), (self.gate, "weight"), (self.up, "weight"),
                 (self.down, "weight"), (self.down, "bias")]
        return Branch(whole, [(self.qkv, "weight", 16, 8, 0)])


def net(layers=3):
    torch.manual_seed(0)
    return nn.ModuleList(PostNorm() for _ in range(layers))


def run(model, x):
    for layer in model:
        x = layer(x)
    return x


def alphas(model, fuse=None):
    return Alphas(*bound([layer.alpha for layer in model]), len(model), fuse or Fuse())


def test_alpha_changes_the_function_as_the_theory_says():
    """LN(a' x + G) = LN(a x + (a / a') G): a branch gain, exactly (methods.md section 4.3)."""
    model, x = net(1), torch.randn(2, 5, 8)
    gained = copy.deepcopy(model)
    mine = alphas(model)
    assert mine.write(0, 2.5, 1, 10, 0) == ""
    mine.advance(11)
    assert float(model[0].alpha) == 2.5
    with torch.no_grad():
        for module in (gained[0].out, gained[0].down):
            module.weight /= 2.5
            module.bias /= 2.5
    torch.testing.assert_close(run(model, x), run(gained, x), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(run(model, x), run(net(1), x), atol=1e-2)


def test_alpha_moves_layer_by_layer_along_its_ramp():
    model = net()
    mine = alphas(model)
    assert mine.write(1, 4.0, 50, 7, 0) == ""
    for boundary in range(5, 70):
        mine.advance(boundary)
        assert float(model[1].alpha) == pytest.approx(Ramp(1.0, 4.0, 7, 50).at(boundary), rel=1e-7)
        assert float(model[0].alpha) == float(model[2].alpha) == 1.0
    assert float(model[1].alpha) == 4.0


def test_fold_restores_the_declared_alpha_with_the_same_function():
    model, x = net(), torch.randn(2, 5, 8)
    mine = alphas(model)
    for layer in range(3):
        assert mine.write(layer, 2.2133638394006434, 1, 0, 0) == ""
    mine.advance(1)
    wanted = run(model, x)
    factor = fold_factor(1.0, 2.2133638394006434)
    with torch.no_grad():
        for layer in model:
            layer.alpha.fill_(1.0)
            for module in (layer.out, layer.down):
                module.weight *= factor
                module.bias *= factor
    torch.testing.assert_close(run(model, x), wanted, rtol=1e-4, atol=1e-5)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError):
            fold_factor(1.0, bad)


@pytest.mark.parametrize("write,words", [
    ((0, 5.01, 50, 10, 0), "wanted at most a factor of 5"),
    ((0, 0.19, 50, 10, 0), "wanted at most a factor of 5"),
    ((0, 2.0, 201, 10, 0), "wanted 1 to 200"),
    ((0, 2.0, 0, 10, 0), "wanted 1 to 200"),
    ((0, math.nan, 50, 10, 0), "wanted a finite number above 0"),
    ((0, math.inf, 50, 10, 0), "wanted a finite number above 0"),
    ((0, -2.0, 50, 10, 0), "wanted a finite number above 0"),
    ((3, 2.0, 50, 10, 0), "layer 3 is foreign"),
    ((0, 2.0, 50, 10, 1), "the register is at 0"),
])
def test_what_is_out_of_bounds_changes_nothing(write, words):
    model = net()
    mine = alphas(model)
    assert words in mine.write(*write)
    mine.advance(1000)
    assert all(float(layer.alpha) == 1.0 for layer in model)


def test_one_order_at_a_time():
    mine = alphas(net())
    assert mine.write(0, 2.0, 50, 10, 0) == ""
    assert "expects version 0" in mine.write(0, 2.0, 50, 10, 0)
    assert "until boundary 60" in mine.write(0, 3.0, 50, 59, 1)
    assert mine.write(0, 3.0, 50, 60, 1) == "" and mine.version(0) == 2


def test_a_model_that_does_not_take_alpha_is_found_out(caplog):
    mine = Alphas(lambda layer, value: None, lambda layer: 1.0, 2, Fuse())
    assert mine.write(0, 2.0, 1, 0, 0) == ""
    mine.advance(1)
    assert "was given 2 and the model shows 1" in mine.disabled
    assert caplog.records[-1].levelno == logging.CRITICAL
    assert mine.write(1, 2.0, 1, 5, 0) == mine.disabled


def test_a_narrow_alpha_may_be_rounded():
    value = torch.tensor(1.0, dtype=torch.bfloat16)
    mine = Alphas(*bound(value), 1, Fuse())
    assert mine.write(0, 2.2133638394006434, 50, 0, 0) == ""
    for boundary in range(60):
        mine.advance(boundary)
    assert mine.disabled == "" and value == torch.tensor(2.2133638394006434).bfloat16()


@pytest.mark.parametrize("odd", [1.0, [1.0, 2.0], torch.ones(2), torch.tensor(1), None])
def test_only_tensors_can_be_bound(odd):
    with pytest.raises(TypeError):
        bound(odd)


def test_unbound_alpha_is_refused():
    assert "alpha is not bound" in Alphas(None, None, 2, Fuse()).write(0, 2.0, 50, 0, 0)


def test_a_job_resumes_in_the_middle_of_a_ramp():
    model = net()
    mine = alphas(model)
    assert mine.write(1, 4.0, 50, 100, 0) == ""
    mine.advance(120)
    state = copy.deepcopy(mine.state_dict())
    again, fresh = net(), None
    fresh = alphas(again)
    fresh.load_state_dict(state, shift=-120)  # Boundaries begin anew.
    for boundary in range(0, 40):
        mine.advance(120 + boundary)
        fresh.advance(boundary)
        assert torch.equal(again[1].alpha, model[1].alpha)
    assert fresh.version(1) == 1
    for change in ({"ramps": {1: (1.0, 9.0, 0, 50)}}, {"ramps": {9: (1.0, 2.0, 0, 50)}},
                   {"ramps": {1: (math.nan, 2.0, 0, 50)}}, {"ramps": {1: (1.0, 2.0, 0, 201)}}):
        with pytest.raises(ValueError):
            fresh.load_state_dict({**state, **change})
    assert fresh.version(1) == 1


def test_beta_scales_the_branches_and_nothing_else():
    model = net()
    before = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    beta = Beta([layer.branches() for layer in model], [optimizer])
    assert beta.write(0.5, 0) == ""
    for layer, old in zip(model, before):
        assert torch.equal(layer.qkv.weight[:16], old.qkv.weight[:16]) and torch.equal(layer.qkv.bias, old.qkv.bias)
        assert torch.equal(layer.qkv.weight[16:], old.qkv.weight[16:] * 0.5)
        for name in ("out", "down"):
            for kind in ("weight", "bias"):
                assert torch.equal(getattr(getattr(layer, name), kind), getattr(getattr(old, name), kind) * 0.5)
        for name in ("gate", "up"):
            assert torch.equal(getattr(layer, name).weight, getattr(old, name).weight * 0.5)
            assert torch.equal(getattr(layer, name).bias, getattr(old, name).bias)
    assert "expects version 0" in beta.write(0.5, 0)
    assert "wanted above 0 and at most 0.5" in beta.write(0.6, 1)
    assert "wanted at most a factor of 10" in beta.write(0.04, 1)
    assert beta.write(0.25, 1) == "" and torch.equal(model[0].out.weight, before[0].out.weight * 0.25)
    for bad in (0.0, -0.1, math.nan, math.inf):
        assert beta.write(bad, 2) != ""


def test_beta_without_a_known_master_changes_nothing():
    model = net(1)
    before = copy.deepcopy(model.state_dict())
    beta = Beta([model[0].branches()], [torch.optim.SGD(list(model.parameters())[:2], lr=0.1)])
    assert "is not among the optimizer's parameters" in beta.write(0.5, 0)
    assert beta.version == 0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
