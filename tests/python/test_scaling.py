"""Slices of weights, wherever they are cut, end with the bits that the whole weight would have got."""

import random
import types

import pytest
import torch

import models
from gyrostat import actuator, attention, masters, projection, tap
from gyrostat._abi import APPLIED, REFUSED
from gyrostat.discover import discover
from gyrostat.scaling import Part, Rows, scale
from gyrostat.trouble import Fuse


def rows_of(heads, width, dim=0, unit_offset=False):
    """{head: factor} of heads `width` rows wide."""
    numbers = [head * width + i for head in heads for i in range(width)]
    factors = [factor for factor in heads.values() for _ in range(width)]
    return Rows(torch.tensor(numbers), torch.tensor(factors, dtype=torch.float32), dim, unit_offset)


def cuts(count, size, seed):
    """`count` + 1 places from 0 to `size`: some slices are empty, most cut rows."""
    inside = sorted(random.Random(seed).choices(range(size + 1), k=count - 1))
    return [0] + inside + [size]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("shape,dim", [((12, 7), 0), ((7, 12), 1), ((12,), 0), ((12, 1), 0), ((1, 12), 1)])
@pytest.mark.parametrize("unit_offset", [False, True])
def test_slices_put_together_are_the_whole(shape, dim, dtype, unit_offset):
    torch.manual_seed(0)
    start = torch.randn(shape).to(dtype)
    rows = rows_of({1: 0.7071, 3: 0.93}, 3, dim, unit_offset)
    whole = start.clone()
    scale(Part(whole), rows)
    for seed in range(30):
        flat = start.flatten().clone()
        places = cuts(1 + seed % 9, flat.numel(), seed)
        for begin, end in zip(places, places[1:]):
            scale(Part(flat[begin:end], begin, shape), rows)
        assert torch.equal(flat.view(shape), whole), places
    assert not torch.equal(whole, start)
    keep = [i for i in range(12) if not (3 <= i < 6 or 9 <= i < 12)]
    assert torch.equal(whole.index_select(dim, torch.tensor(keep)), start.index_select(dim, torch.tensor(keep)))


def test_values_are_multiplied_in_float32_and_rounded_once():
    torch.manual_seed(1)
    for dtype in (torch.bfloat16, torch.float16):
        start = torch.randn(8, 16).to(dtype)
        factor = torch.tensor(0.8912, dtype=torch.float32)
        values = start.clone()
        scale(Part(values), rows_of({0: float(factor)}, 8))
        assert torch.equal(values, (start.float() * factor).to(dtype))
    start = torch.randn(8, 16, dtype=torch.float64)
    values = start.clone()
    scale(Part(values), rows_of({0: float(factor)}, 8))
    assert torch.equal(values, start * float(factor))


def test_a_transposed_weight_is_scaled_in_place():
    start = torch.randn(6, 8)
    weight = start.clone().t()  # Not contiguous.
    scale(Part(weight), rows_of({1: 0.5}, 4))
    assert torch.equal(weight[:4], start.t()[:4]) and torch.equal(weight[4:], start.t()[4:] * 0.5)


class Ranks:
    """A bf16 model whose float32 masters are cut into one flat slice per rank, as a distributed optimizer does; each
    rank has its own copy of the model. `hang(param, master, begin)` tells the rank's client where its slice is.
    """

    def __init__(self, count, hang, **options):
        self.ranks = []
        base = models.Model(layers=1, bias=True, **options)
        with torch.no_grad():
            for name, p in base.layers[0].attn.named_parameters():
                p.mul_(4.0)
        for rank in range(count):
            model = models.Model(layers=1, bias=True, **options)
            model.load_state_dict(base.state_dict())
            model.bfloat16()
            optimizer = types.SimpleNamespace(param_groups=[{"params": []}], state={})
            slices = {}
            for i, (name, p) in enumerate(model.named_parameters()):
                exact = dict(base.named_parameters())[name].detach().flatten()
                places = cuts(count, exact.numel(), i)
                master = exact[places[rank] : places[rank + 1]].clone()
                slices[name] = (master, places[rank])
                optimizer.param_groups[0]["params"].append(master)
                hang(p, master, places[rank], optimizer)
            layer = discover(model).layers[0]
            fuse = Fuse()
            probe = attention.LayerProbe(layer, fuse)
            for module, around in probe.taps():
                tap.Tap(module, around)
            models.loss_of(model, models.batch()).backward()
            act = actuator.Actuator({0: probe}, [optimizer], fuse)
            self.ranks.append(types.SimpleNamespace(model=model, slices=slices, actuator=act, optimizer=optimizer))
        self.exact = {name: p.detach().clone() for name, p in base.named_parameters()}

    def masters(self, name):
        return torch.cat([rank.slices[name][0] for rank in self.ranks]).view(self.exact[name].shape)


def by_hand(p, master, begin, optimizer):
    p.gyrostat_master = (master, begin)


def as_megatron(p, master, begin, optimizer):
    p.main_param_sharded, p.main_param = True, master if master.numel() else None
    places = getattr(optimizer, "places", {})
    if master.numel():
        places[id(p)] = {"param": types.SimpleNamespace(start=begin)}
    optimizer.places = places
    optimizer._get_model_param_range_map = lambda param: places[id(param)]


def as_deepspeed(p, master, begin, optimizer):
    address = types.SimpleNamespace(start=begin, numel=master.numel())
    p._hp_mapping = types.SimpleNamespace(hp_fragment=master, lp_fragment_address=address) if master.numel() else None


@pytest.mark.parametrize("hang", [by_hand, as_megatron, as_deepspeed])
@pytest.mark.parametrize("layout", ["split", "fused", "interleaved"])
def test_a_sharded_master_ends_as_an_unsharded_one(hang, layout):
    options = {"fused": layout == "fused", "interleaved": layout == "interleaved", "kv_heads": 2}
    job = Ranks(5, hang, **options)
    q, k = [(0, 2, 0.83), (0, 3, 0.83)], [(0, 1, 0.83)]
    attn = job.ranks[0].model.layers[0].attn
    for _ in range(3):  # Also after a clip, when slice and working copy were rounded apart.
        for rank in job.ranks:
            assert rank.actuator.apply(q, k) == (APPLIED, "")
        for projected, factors in ((attn_projection(attn, 0), q), (attn_projection(attn, 1), k)):
            for part, rows, title in projected.targets({head: factor for _, head, factor in factors}):
                scale(Part(job.exact["layers.0.attn." + title.partition(".attn.")[2]]), rows)
        for name, exact in job.exact.items():
            assert torch.equal(job.masters(name), exact), name
            copies = [dict(rank.model.named_parameters())[name] for rank in job.ranks]
            assert all(torch.equal(copy, copies[0]) for copy in copies)  # Replicas are equal bit for bit.


def attn_projection(attn, side):
    model = models.Model(layers=1)
    model.layers[0].attn = attn
    layer = discover(model).layers[0]
    return (layer.q, layer.k)[side]


def test_a_slice_is_declared_as_a_master():
    p = torch.nn.Parameter(torch.randn(4, 4).bfloat16())
    found = masters.Masters([torch.optim.SGD([p], lr=0.1)])
    assert found.declare([p]) == -1  # Not known before the first step.
    p.gyrostat_master = (p.detach().flatten()[3:9].float(), 3)
    assert found.declare([p]) == 1
    p.gyrostat_master = (torch.zeros(9), 3)
    assert found.declare([p]) == -1


@pytest.mark.parametrize("said,words", [
    (lambda p: (torch.zeros(5), 0), "does not round to its elements from 0"),
    (lambda p: (p.detach().flatten()[3:9].float(), p.numel() - 2), "wanted a float32 vector inside"),
    (lambda p: (p.detach().flatten()[3:9], 3), "wanted a float32 vector inside"),
    (lambda p: (p.detach().flatten()[3:9].float(), None), "where its slice begins is not known"),
    (lambda p: (None, 3), "where its slice begins is not known"),
])
def test_a_slice_that_cannot_be_is_refused(said, words):
    p = torch.nn.Parameter(torch.randn(4, 4).bfloat16())
    p.gyrostat_master = said(p)
    with pytest.raises(masters.UnknownMaster, match=words):
        masters.Masters([]).of(p, "w")


def test_an_optimizer_over_one_flat_parameter_holds_its_views():
    flat = torch.nn.Parameter(torch.randn(40))
    view = flat.detach()[8:24].view(4, 4)
    other = torch.randn(4, 4)
    found = masters.Masters([torch.optim.SGD([flat], lr=0.1)])
    assert found.of(view, "view").tensor is view
    with pytest.raises(masters.UnknownMaster):
        found.of(other, "other")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("ranks", [2, 4])
def test_tensor_parallel_ranks_scale_their_own_heads(ranks, bias):
    """Each rank holds some query heads and the key heads they use; a key head of two ranks is scaled on both."""
    torch.manual_seed(0)
    heads, kv_heads, width = 8, 2, 4
    whole = [torch.nn.Linear(12, n * width, bias=bias) for n in (heads, kv_heads)]
    q, k = {1: 0.5, 6: 0.7}, {0: 0.5, 1: 0.7}
    pieces = []
    for rank in range(ranks):
        for side, (linear, count) in enumerate(zip(whole, (heads, kv_heads))):
            here = max(1, count // ranks)
            first = rank * heads // ranks * count // heads if side else rank * here
            part = torch.nn.Linear(12, here * width, bias=bias)
            for name, p in part.named_parameters():
                p.data = dict(linear.named_parameters())[name].detach()[first * width : (first + here) * width].clone()
            mine = projection.Projection(part, "weight", "bias" if bias else "", 0, projection.contiguous(here, width),
                                         width, "w", first_head=first)
            for target, rows, _ in mine.targets(k if side else q):
                scale(target, rows)
            pieces.append((side, first * width, part))
    for side, factors in ((0, q), (1, k)):
        linear = whole[side]
        mine = projection.Projection(linear, "weight", "bias" if bias else "", 0,
                                     projection.contiguous((heads, kv_heads)[side], width), width, "w")
        for target, rows, _ in mine.targets(factors):
            scale(target, rows)
    for side, first, part in pieces:
        for name, p in part.named_parameters():
            assert torch.equal(p, dict(whole[side].named_parameters())[name][first : first + p.shape[0]])


def test_a_flat_slice_of_the_working_weights_is_scaled_without_a_check():
    """FSDP between forwards: of each weight only a flat slice is here, and nothing can be computed with it."""
    model = models.Model(layers=1, bias=True)
    layer = discover(model).layers[0]
    fuse = Fuse()
    probe = attention.LayerProbe(layer, fuse)
    probe.lineage.state = True
    exact = {name: p.detach().clone() for name, p in model.named_parameters()}
    held = []
    for side in (layer.q, layer.k):
        for name in ("weight", "bias"):
            value = getattr(side.module, name).detach()
            piece = value.flatten()[3:-5].clone() if value.numel() > 16 else value.flatten()[3:].clone()
            side.parts[name] = Part(piece, 3, tuple(value.shape))
            held.append(piece)
    optimizer = types.SimpleNamespace(param_groups=[{"params": held}])
    act = actuator.Actuator({0: probe}, [optimizer], fuse)
    assert act.apply([(0, 1, 0.6)], [(0, 1, 0.6)]) == (APPLIED, "")
    for side, name in ((layer.q, "q_proj"), (layer.k, "k_proj")):
        for kind in ("weight", "bias"):
            expected = exact[f"layers.0.attn.{name}.{kind}"].clone()
            expected[4:8] *= torch.tensor(0.6)
            part = side.parts[kind]
            assert torch.equal(part.tensor, expected.flatten()[3 : 3 + part.tensor.numel()])
    assert torch.equal(layer.q.module.weight, exact["layers.0.attn.q_proj.weight"])
    assert act.apply([(0, 1, 2.0)], [])[0] == REFUSED
