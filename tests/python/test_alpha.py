"""DeepNorm's alpha and beta on a model that really computes with them."""

import copy
import logging
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gyrostat import _abi
from gyrostat.alpha import Alphas, Betas, Branch, bound, fold_factor
from gyrostat.interventions import Interventions
from gyrostat.trouble import Fuse


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
    return Alphas(*bound([layer.alpha for layer in model]), range(len(model)), fuse or Fuse())


def move(mine, values):
    """The library says these alphas, {layer: value}, of layers that orders have named."""
    mine.moves(values)
    return mine.advance(lambda layer: values.get(layer, 1.0))


def test_alpha_changes_the_function_as_the_theory_says():
    """LN(a' x + G) = LN(a x + (a / a') G): a branch gain, exactly (methods.md section 4.3)."""
    model, x = net(1), torch.randn(2, 5, 8)
    gained = copy.deepcopy(model)
    mine = alphas(model)
    assert move(mine, {0: 2.5}) == {0: 2.5}
    assert float(model[0].alpha) == 2.5
    with torch.no_grad():
        for module in (gained[0].out, gained[0].down):
            module.weight /= 2.5
            module.bias /= 2.5
    torch.testing.assert_close(run(model, x), run(gained, x), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(run(model, x), run(net(1), x), atol=1e-2)


def test_only_layers_that_an_order_named_are_written():
    model = net()
    mine = alphas(model)
    with torch.no_grad():
        model[2].alpha.fill_(7.0)  # The loop's own business.
    assert move(mine, {1: 2.0}) == {0: 1.0, 1: 2.0, 2: 1.0}
    assert [float(layer.alpha) for layer in model] == [1.0, 2.0, 7.0]


def test_fold_restores_the_declared_alpha_with_the_same_function():
    model, x = net(), torch.randn(2, 5, 8)
    mine = alphas(model)
    move(mine, dict.fromkeys(range(3), 2.2133638394006434))
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


def test_a_model_that_does_not_take_alpha_is_found_out(caplog):
    shown = {0: 1.0, 1: 1.0}
    mine = Alphas(lambda layer, value: None, shown.get, range(2), Fuse())
    mine.check(mine.shown())
    assert move(mine, {0: 2.0}) == {0: 2.0, 1: 1.0} and mine.trouble() == ""
    mine.check(mine.shown())
    assert "layer 0 was given 2 and the model shows 1" in mine.disabled == mine.trouble()
    assert caplog.records[-1].levelno == logging.CRITICAL
    assert move(mine, {0: 2.0})[0] == 1.0  # The library hears what the model shows.


def test_a_narrow_alpha_may_be_rounded():
    value = torch.tensor(1.0, dtype=torch.bfloat16)
    mine = Alphas(*bound(value), range(1), Fuse())
    for step in range(60):
        said = 1.0 + 0.0202277 * step
        assert move(mine, {0: said}) == {0: said}
        mine.check([float(value)])
    assert mine.disabled == "" and value == torch.tensor(said).bfloat16()


def test_one_alpha_is_declared():
    model = net()
    assert alphas(model).declared() == (1.0, "")
    with torch.no_grad():
        model[1].alpha.fill_(3.0)
    assert "alphas from 1 to 3, wanted one" in alphas(model).declared()[1]
    with torch.no_grad():
        for layer in model:
            layer.alpha.fill_(math.nan)
    assert alphas(model).declared()[0] is None


@pytest.mark.parametrize("odd", [1.0, [1.0, 2.0], torch.ones(2), torch.tensor(1), None])
def test_only_tensors_can_be_bound(odd):
    with pytest.raises(TypeError):
        bound(odd)


def test_unbound_alpha_is_refused():
    unbound = Alphas(None, None, range(2), Fuse())
    assert "alpha is not bound" in unbound.trouble() and unbound.shown() == [] and unbound.declared()[0] is None


def plan(model, changes, optimizer=None):
    betas = Betas({layer: each.branches() for layer, each in enumerate(model)},
                  [optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)])
    return betas.plan(changes)


def test_beta_scales_the_branches_and_nothing_else():
    model = net()
    before = copy.deepcopy(model)
    writes, trouble = plan(model, {0: (1.0, 0.5), 2: (1.0, 0.5)})
    assert trouble == ""
    with torch.no_grad():
        for write in writes:
            write.apply()
    for layer, old, factor in zip(model, before, (0.5, 1.0, 0.5)):
        assert torch.equal(layer.qkv.weight[:16], old.qkv.weight[:16]) and torch.equal(layer.qkv.bias, old.qkv.bias)
        assert torch.equal(layer.qkv.weight[16:], old.qkv.weight[16:] * factor)
        for name in ("out", "down"):
            for kind in ("weight", "bias"):
                assert torch.equal(getattr(getattr(layer, name), kind), getattr(getattr(old, name), kind) * factor)
        for name in ("gate", "up"):
            assert torch.equal(getattr(layer, name).weight, getattr(old, name).weight * factor)
            assert torch.equal(getattr(layer, name).bias, getattr(old, name).bias)


@pytest.mark.parametrize("changes,words", [
    ({0: (0.5, 0.6)}, "wanted above 0 and no rise"), ({0: (0.5, 0.0)}, "wanted above 0 and no rise"),
    ({0: (0.5, math.nan)}, "wanted above 0 and no rise"), ({9: (1.0, 0.5)}, "layer 9 are not bound"),
])
def test_a_beta_that_cannot_be_is_refused(changes, words):
    assert plan(net(), changes) == (None, plan(net(), changes)[1]) and words in plan(net(), changes)[1]
    assert "beta is not bound" in Betas(None, []).plan({0: (1.0, 0.5)})[1]


def test_alpha_and_beta_of_one_order_are_both_or_neither():
    """Beta without a known master changes nothing, and no alpha moves."""
    model = net(1)
    before = copy.deepcopy(model.state_dict())
    mine = alphas(model)
    betas = Betas({0: model[0].branches()}, [torch.optim.SGD(list(model.parameters())[:2], lr=0.1)])
    both = [(_abi.REGISTER_ALPHA, 1.0, 2.0), (_abi.REGISTER_BETA, 1.0, 0.5)]
    loop = Interventions(mine, betas, lambda: "", lambda: True, {})
    outcome, reason = loop.apply("deepnorm_alpha", both, "i", 1)
    assert outcome == _abi.REFUSED and "is not among the optimizer's parameters" in reason
    assert mine.moving == set()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
