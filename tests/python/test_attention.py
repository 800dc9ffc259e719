"""Maxima are those of the real softmax input, whatever spelling, and only of forwards that train."""

import copy
import logging
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import gyrostat
import models
from gyrostat import attention, tap
from gyrostat.discover import discover
from gyrostat.trouble import Fuse

KERNELS = ["softmax", "f_softmax", "module", "sdpa", "einsum", "baddbmm"]


class Watched:
    """A model whose attentions are tapped; no library."""

    def __init__(self, model):
        self.model, self.fuse = model, Fuse()
        self.probes = [attention.LayerProbe(layer, self.fuse) for layer in discover(model).layers]
        self.taps = [tap.Tap(module, around) for probe in self.probes for module, around in probe.taps()]

    def maxima(self):
        taken = [probe.take() for probe in self.probes]
        assert not self.fuse.blown
        return torch.stack([maxima for maxima, _ in taken]), {kind for _, kind in taken}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kv_heads,fused,bias,rope",
                         [(4, False, True, False), (2, True, False, True), (1, False, True, True)])
def test_exact_in_every_spelling(kernel, kv_heads, fused, bias, rope):
    watched = Watched(models.Model(kernel=kernel, kv_heads=kv_heads, fused=fused, bias=bias, rope=rope))
    models.loss_of(watched.model, models.batch()).backward()
    maxima, kinds = watched.maxima()
    torch.testing.assert_close(maxima, watched.model.maxima())
    assert kinds == {"exact"} and [probe.lineage.state for probe in watched.probes] == [True, True]


@pytest.mark.parametrize("norm_first", [False, True])
def test_torch_transformer_layers(norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first)
    watched = Watched(nn.TransformerEncoder(layer, 2))
    x = torch.randn(2, 5, 16, requires_grad=True)
    mask = torch.full((5, 5), -float("inf")).triu(1)
    watched.model(x, mask=mask).sum().backward()
    maxima, kinds = watched.maxima()
    assert kinds == {"exact"} and watched.probes[0].lineage.state is True
    inside = watched.model.layers[0]
    source = inside.norm1(x) if norm_first else x
    q, k, _ = F.linear(source, inside.self_attn.in_proj_weight, inside.self_attn.in_proj_bias).chunk(3, dim=-1)
    heads = [t.unflatten(-1, (4, 4)).transpose(1, 2) for t in (q, k)]
    torch.testing.assert_close(maxima[0], gyrostat.max_logits(*heads, causal=True))


def test_key_padding_is_in():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    watched = Watched(module)
    x = torch.randn(1, 4, 8)
    padding = torch.tensor([[False, False, True, True]])
    module(x, x, x, key_padding_mask=padding)
    q, k, _ = F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, dim=-1)
    heads = [t.unflatten(-1, (2, 4)).transpose(1, 2) for t in (q, k)]
    expected = gyrostat.max_logits(*heads, mask=~padding.view(1, 1, 1, 4))
    torch.testing.assert_close(watched.maxima()[0][0], expected)


def test_only_training_forwards_count():
    watched = Watched(models.Model())
    watched.model.eval()
    watched.model(models.batch())
    watched.model.train()
    with torch.no_grad():
        watched.model(models.batch())
    assert all(probe.take() == (None, None) for probe in watched.probes)


def test_micro_batches_join_by_maximum():
    watched = Watched(models.Model())
    expected = []
    for seed in range(3):
        watched.model(models.batch(seed))
        expected.append(watched.model.maxima())
    torch.testing.assert_close(watched.maxima()[0], torch.stack(expected).amax(dim=0))


def test_a_loop_that_never_steps_keeps_no_more_than_a_bound():
    watched = Watched(models.Model(layers=1))
    for seed in range(100):
        watched.model(models.batch(seed))
    assert len(watched.probes[0]._maxima) <= attention._FORWARDS_MAX


def test_activation_checkpointing_is_seen_in_the_recomputation():
    from torch.utils.checkpoint import checkpoint

    watched = Watched(models.Model(layers=1))
    block, x = watched.model.layers[0], torch.randn(2, 5, 16, requires_grad=True)
    checkpoint(block, x).sum().backward()
    torch.testing.assert_close(watched.maxima()[0], watched.model.maxima())


def test_soft_cap_makes_a_lower_bound(caplog):
    watched = Watched(models.Model(softcap=2.0))
    watched.model(models.batch())
    assert watched.maxima()[1] == {"sampled_lower"} and "soft-capped" in caplog.text


def test_blind_layers_report_norm_products_and_say_so_once(caplog):
    watched = Watched(models.Model(layers=1, kernel="hidden", kv_heads=2))
    for _ in range(3):
        watched.model(models.batch())
    bound, kinds = watched.maxima()
    assert kinds == {"norm_product"} and (bound >= watched.model.maxima()).all()
    assert len(caplog.records) == 1 and "no softmax" in caplog.text


def test_lineage_refuses_what_lies_between():
    model = models.Model(layers=1, qk_norm=True)
    attn = model.layers[0].attn
    attn.rescale_q, attn.rescale_k = attn.q_norm, attn.k_norm  # A name that nobody takes for a norm.
    del attn.q_norm, attn.k_norm
    attn.q_norm, attn.k_norm = attn.rescale_q.forward, attn.rescale_k.forward
    watched = Watched(model)
    for seed in range(70):
        watched.model(models.batch(seed))
    assert "is not what layers.0.attn" in watched.probes[0].lineage.state


def test_lineage_is_unknown_where_no_product_is_seen():
    watched = Watched(models.Model(layers=1, kernel="hidden"))
    for seed in range(70):
        watched.model(models.batch(seed))
    assert watched.probes[0].lineage.state is not True


def test_lineage_refuses_a_wrong_layout():
    model = models.Model(layers=1, kv_heads=2, interleaved=True)
    attn = model.layers[0].attn
    attn.qkv_proj = attn.query_key_value  # By this name the rows would be [q | k | v].
    watched = Watched(model)
    for seed in range(70):
        model(models.batch(seed))
    assert watched.probes[0].layer.q.starts == (0, 4, 8, 12)
    assert "is not what" in watched.probes[0].lineage.state


def test_lineage_refuses_a_wrong_number_of_heads():
    model = models.Model(layers=1, kernel="sdpa")
    probe = attention.LayerProbe(discover(model, heads=2, kv_heads=2).layers[0], Fuse())
    with tap_of(model.layers[0].attn, probe):
        model(models.batch())
    assert probe.take() == (None, None) and probe.lineage.state is not True


def test_zero_projections_are_tried_again():
    watched = Watched(models.Model(layers=1))
    weight = watched.model.layers[0].attn.q_proj.weight
    start = weight.detach().clone()
    with torch.no_grad():
        weight.zero_()
    watched.model(models.batch())
    assert watched.probes[0].lineage.state is None
    with torch.no_grad():
        weight.copy_(start)
    watched.model(models.batch())
    assert watched.probes[0].lineage.state is True


def tap_of(module, probe):
    class Context:
        def __enter__(self):
            self.tap = tap.Tap(module, probe.around)

        def __exit__(self, *exc_info):
            self.tap.remove()

    return Context()


class Recording(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def test_modes_of_the_user_inside_and_outside_still_work():
    inner = Recording()

    class Attention(models.Attention):
        def forward(self, x):
            with inner:
                torch.exp(x)
                x.split(1, dim=1)
            return super().forward(x)

    model = models.Model(layers=1)
    model.layers[0].attn.__class__ = Attention
    watched = Watched(model)
    outer = [Recording(), Recording()]
    model(models.batch())
    first = watched.maxima()[0]
    with outer[0], outer[1]:
        model(models.batch())
        torch.exp(first)
    torch.testing.assert_close(watched.maxima()[0], first)
    assert inner.seen == ["exp", "split"] * 2
    assert all(mode.seen.count("softmax") == 1 and mode.seen[-1] == "exp" for mode in outer)
    assert not torch._C._len_torch_function_stack()


def test_exceptions_of_the_model_pass_and_leave_no_mode_behind():
    class Attention(models.Attention):
        def forward(self, x):
            raise RuntimeError("the user's own")

    model = models.Model(layers=1)
    model.layers[0].attn.__class__ = Attention
    watched = Watched(model)
    with pytest.raises(RuntimeError, match="the user's own"):
        model(models.batch())
    assert not watched.fuse.blown and not torch._C._len_torch_function_stack()


def test_our_own_errors_stay_inside(monkeypatch, caplog):
    watched = Watched(models.Model())
    expected = watched.model(models.batch())
    monkeypatch.setattr(attention, "head_maxima", lambda *args: 1 / 0)
    torch.testing.assert_close(watched.model(models.batch()), expected)
    watched.model(models.batch())
    assert watched.fuse.blown and [r.levelno for r in caplog.records] == [logging.ERROR]


def test_watching_does_not_change_outputs_or_gradients():
    plain, watched = models.Model(seed=1), Watched(models.Model(seed=1))
    for model in (plain, watched.model):
        models.loss_of(model, models.batch()).backward()
    for a, b in zip(plain.parameters(), watched.model.parameters()):
        assert torch.equal(a.grad, b.grad)


def test_taps_leave_copies_pickles_and_names_alone():
    watched = Watched(models.Model(layers=1))
    module = watched.model.layers[0].attn
    assert type(module) is not models.Attention and isinstance(module, models.Attention)
    assert (type(module).__name__, type(module).__qualname__) == ("Attention", "Attention")
    ema = copy.deepcopy(watched.model)
    again = pickle.loads(pickle.dumps(watched.model))
    assert type(ema.layers[0].attn) is type(again.layers[0].attn) is models.Attention
    ema(models.batch())
    assert watched.probes[0].take() == (None, None)
    assert watched.model.state_dict().keys() == ema.state_dict().keys()
    watched.taps[0].remove()
    assert type(module) is models.Attention


def test_nested_taps_come_off_in_any_order():
    module = models.Attention()
    calls = []
    first, second = (tap.Tap(module, lambda call, a, k, i=i: calls.append(i) or call(*a, **k)) for i in (1, 2))
    first.remove()
    module(torch.randn(1, 3, 16))
    second.remove()
    assert calls == [2] and isinstance(module, models.Attention)


def test_torchscript_cannot_be_tapped():
    with pytest.raises(TypeError, match="TorchScript"):
        tap.Tap(torch.jit.script(nn.Linear(2, 2)), None)


@pytest.mark.parametrize("shape,heads", [((2, 4, 5, 5), 4), ((8, 5, 5), 4), ((2, 2, 2, 5, 5), 4), ((2, 5, 4, 5), 4)])
def test_head_maxima_of_every_layout(shape, heads):
    scores = torch.randn(shape)
    maxima = attention.head_maxima(scores, heads)
    assert maxima.shape == (heads,) and maxima.max() == scores.max()
    assert attention.head_maxima(torch.randn(3, 5), heads) is None
    assert attention.head_maxima(torch.randn(0, 4, 5, 5), heads) is None
