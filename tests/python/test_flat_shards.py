"""Ranks whose optimizers hold flat slices that cut rows and heads, in real processes.

FSDP itself wants a GPU in torch 1.13, and Debian's cannot even import it with Python 3.11. So a distributed optimizer
of our own shards the masters here (`param.gyrostat_master`), and FSDP's flat parameter is a double that says of itself
what torch's says.
"""

import types

import pytest
import torch
import torch.distributed as dist

import models
import ranks_job
import test_ranks
from gyrostat import _abi
from gyrostat.actuator import Actuator
from gyrostat.attention import LayerProbe
from gyrostat.discover import discover
from gyrostat.slices import Slices
from gyrostat.trouble import Fuse

daemon = test_ranks.daemon


class ShardedSGD(torch.optim.SGD):
    """bfloat16 weights; of each parameter's float32 master this rank holds the flat elements [n r / world + 3, ...),
    so that slices begin and end inside rows. Gradients are averaged; after the step every rank gathers all."""

    def __init__(self, model, lr=1e-3):
        self.model_params = list(model.parameters())
        self.cuts = []
        rank, world = dist.get_rank(), dist.get_world_size()
        masters = []
        for p in self.model_params:
            n = p.numel()
            cuts = [0] + [n * r // world + 3 if n > 8 * world else n for r in range(1, world)] + [n]
            begin, end = cuts[rank], cuts[rank + 1]
            master = torch.nn.Parameter(p.detach().float().flatten()[begin:end].clone())
            p.gyrostat_master = (master.detach(), begin)
            self.cuts.append(cuts)
            masters.append(master)
        super().__init__(masters, lr=lr)
        self.masters = masters
        self.grows = [p for name, p in model.named_parameters() if "q_proj" in name or "k_proj" in name]

    @torch.no_grad()
    def step(self, closure=None):
        for p, master, cuts in zip(self.model_params, self.masters, self.cuts):
            if p.grad is not None:
                grad = p.grad.float()
                dist.all_reduce(grad)
                begin = cuts[dist.get_rank()]
                master.grad = (grad / dist.get_world_size()).flatten()[begin : begin + master.numel()]
        super().step()
        grows = {id(p) for p in self.grows}
        for p, master, cuts in zip(self.model_params, self.masters, self.cuts):
            if id(p) in grows:
                master *= 1.02
            whole = torch.zeros(p.numel())
            begin = cuts[dist.get_rank()]
            whole[begin : begin + master.numel()] = master
            dist.all_reduce(whole)
            p.copy_(whole.view_as(p))


def sharded(rank, world, address):
    model = test_ranks.hot(models.Model()).bfloat16()
    optimizer = ShardedSGD(model)
    answers, digests, said = ranks_job.Answers(), [], []
    with test_ranks.watch(rank, model, optimizer, address) as mon:
        ranks_job.wait_for_welcome(mon, rank)
        shards = [(s.layer, s.key, s.row_begin, s.row_end) for s in mon._session._collective._shards]
        for step in range(test_ranks.STEPS):
            for p in model.parameters():
                p.grad = None
            loss = models.loss_of(model, models.batch(1000 * rank + step))
            loss.backward()
            optimizer.step()
            mon.step(loss)
            digests.append(ranks_job.digest(model))
        # The slices together are what every rank computes with.
        for p, master, cuts in zip(model.parameters(), optimizer.masters, optimizer.cuts):
            begin = cuts[rank]
            here = p.detach().flatten()[begin : begin + master.numel()].float()
            said.append(bool(torch.allclose(here, master.detach(), rtol=2**-6)))
        return {"answers": answers.list, "digests": digests, "close": all(said), "shards": shards,
                "status": mon.status, "error": mon._session._client.last_error}


def test_masters_that_ranks_share_out_are_clipped_where_they_lie(tmp_path, daemon):
    ranks = ranks_job.run(sharded, 3, tmp_path, address=daemon.grpc)
    print(ranks[0]["error"], ranks[0]["shards"])
    assert len(ranks[0]["answers"]) >= 2 and {a[1:] for r in ranks for a in r["answers"]} == {(_abi.APPLIED, "")}
    for rank in ranks:
        assert rank["digests"] == ranks[0]["digests"] and rank["close"] and rank["status"] == "acting"
    rows = sorted(shard for rank in ranks for shard in rank["shards"])
    for layer in range(2):
        for key in range(2):
            spans = [(begin, end) for at, side, begin, end in rows if (at, side) == (layer, key)]
            assert spans[0][0] == 0 and spans[-1][1] == 16  # Each row once, wherever slices cut.
            assert all(a[1] == b[0] for a, b in zip(spans, spans[1:]))


def flat_parameter(model, names, begin, end, new):
    """A double of FSDP's FlatParameter of these modules' weights: the stretch [begin, end) of them all together."""
    modules = [model.get_submodule(name) for name in names]
    whole = torch.cat([m.weight.detach().flatten() for m in modules])
    flat = torch.nn.Parameter(whole[begin:end].clone())
    flat._param_infos = [("weight", module, name) for module, name in zip(modules, names)]
    flat._shapes = [m.weight.shape for m in modules]
    starts = [sum(m.weight.numel() for m in modules[:i]) for i in range(len(modules))]
    spans = [(max(begin - s, 0), min(end - s, m.weight.numel())) for s, m in zip(starts, modules)]
    if new:
        at, infos = 0, []
        for first, last in spans:
            infos.append(types.SimpleNamespace(in_shard=last > first, intra_param_start_idx=first,
                                               numel_in_shard=last - first, offset_in_shard=at))
            at += max(0, last - first)
        flat._shard_param_infos = infos
    else:
        inside = [i for i, (first, last) in enumerate(spans) if last > first]
        flat._shard_indices = (inside[0], inside[-1])
        flat._shard_param_offsets = [(spans[i][0], spans[i][1] - 1) for i in inside]
    for module, shape in zip(modules, flat._shapes):
        del module.weight
        module.weight = torch.empty(shape)  # A view of memory that was freed.
    model.flat_param = flat
    return flat


@pytest.mark.parametrize("new", [False, True], ids=["torch 1.13", "torch 2"])
def test_a_flat_parameter_is_scaled_as_the_whole_would_be(new):
    """Cut anywhere: the stretches of three ranks, clipped apart, are the whole, clipped."""
    names = [f"layers.{i}.attn.{side}" for i in range(2) for side in ("v_proj", "q_proj", "k_proj")]
    factors = {0: 0.5, 2: 0.25}
    wanted = models.Model()
    for i in range(2):
        for projection in (wanted.layers[i].attn.q_proj, wanted.layers[i].attn.k_proj):
            for head, factor in factors.items():
                projection.weight.data[4 * head : 4 * head + 4] *= factor
    expected = torch.cat([wanted.get_submodule(name).weight.detach().flatten() for name in names])
    total, cuts = expected.numel(), [0, 437, 1101, expected.numel()]
    assert total == 6 * 256
    pieces, owned = [], []
    for begin, end in zip(cuts, cuts[1:]):
        model = models.Model()
        found = discover(model)
        flat = flat_parameter(model, names, begin, end, new)
        slices = Slices(model, found, [torch.optim.SGD([flat], lr=0.1)])
        assert slices.any()
        probes = {layer.index: LayerProbe(layer, Fuse()) for layer in found.layers}
        for probe in probes.values():
            probe.lineage.state = True  # As a forward of the gathered weights would have shown.
        optimizer = torch.optim.SGD([flat], lr=0.1)
        clips = Actuator(probes, [optimizer], Fuse(), Slices(model, found, [optimizer]))
        for layer in found.layers:
            for side, projection in enumerate((layer.q, layer.k)):
                assert projection.trouble() == ""
                owned += [(layer.index, side, *span) for span in slices.rows(layer.index, side)]
        assert [clips.trouble(layer.index) for layer in found.layers] == ["", ""]
        heads = [(layer, head, factor) for layer in range(2) for head, factor in factors.items()]
        assert clips.apply(heads, heads) == (_abi.APPLIED, "")
        pieces.append(flat.detach())
    assert torch.equal(torch.cat(pieces), expected)
    for layer in range(2):
        for side in range(2):
            spans = sorted(span[2:] for span in owned if span[:2] == (layer, side))
            assert spans[0][0] == 0 and spans[-1][1] == 16 and all(a[1] == b[0] for a, b in zip(spans, spans[1:]))
