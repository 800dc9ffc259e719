"""Which parameters ranks hold alike, without processes: each rank's model is cut here from one whole model."""

import pytest
import torch
from torch import nn

import models
from gyrostat import joining, ranks
from gyrostat.copies import Copies, Seat
from gyrostat.discover import discover
from gyrostat.trouble import Fuse

WIDTH = 16


class Mlp(nn.Module):
    def __init__(self, inside=3 * WIDTH):
        super().__init__()
        self.up, self.down, self.router = nn.Linear(WIDTH, inside), nn.Linear(inside, WIDTH), nn.Linear(WIDTH, 2)
        self.gamma, self.scale = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(()))


def model_of(seed=0, inside=3 * WIDTH, **attention):
    model = models.Model(layers=1, seed=seed, **attention)
    model.layers[0].mlp = Mlp(inside)
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(p)
    return model


def cut(module, rank, ranks, rows=(), columns=()):
    """Keeps a rank's part of the first, or the second dimension of the named parameters."""
    for names, dim in ((rows, 0), (columns, 1)):
        for name in names:
            path, _, last = name.rpartition(".")
            owner = module.get_submodule(path)
            setattr(owner, last, nn.Parameter(getattr(owner, last).detach().chunk(ranks, dim)[rank].clone()))


def tensor_parallel(rank, ranks=2, seed=0, **options):
    model = model_of(seed, **options)
    block = model.layers[0]
    cut(block, rank, ranks, ["attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight", "mlp.up.weight",
                             "mlp.up.bias"], ["attn.o_proj.weight", "mlp.down.weight"])
    block.attn.num_heads //= ranks
    block.attn.num_kv_heads //= ranks
    return model


def seated(models_of_ranks, stages=None, same_part=False):
    """[{name: weight}] of ranks of one replica."""
    looked = []
    for model in models_of_ranks:
        copies = Copies(model, discover(model).layers)
        copies.look()
        looked.append(copies)
    stages = stages or [0] * len(looked)
    seats = [Seat(rank, stage, (stage, 0 if same_part else rank), 0 if same_part else rank, copies.numbers)
             for rank, (copies, stage) in enumerate(zip(looked, stages))]
    found = []
    for copies, model, seat in zip(looked, models_of_ranks, seats):
        weights = copies.weights(seat, [other for other in seats if other is not seat], WIDTH)
        found.append({name: weights.get(id(p), 1.0) for name, p in model.named_parameters()})
    return found


def halves(weights):
    return {name for name, weight in weights.items() if weight == 0.5}


ALIKE = {"embed.weight", "norm.weight", "norm.bias", "head.weight", "layers.0.norm1.weight", "layers.0.norm1.bias",
         "layers.0.norm2.weight", "layers.0.norm2.bias", "layers.0.mlp.router.weight", "layers.0.mlp.router.bias",
         "layers.0.mlp.down.bias", "layers.0.mlp.gamma", "layers.0.mlp.scale"}


def test_what_a_fresh_model_holds_alike_is_seen_or_probable():
    first, second = seated([tensor_parallel(0), tensor_parallel(1)])
    assert halves(first) == halves(second) == ALIKE
    assert {weight for name, weight in first.items() if name not in ALIKE} == {1.0}


def test_three_ranks_share_a_weight_of_one():
    for weights in seated([tensor_parallel(rank % 2) for rank in range(3)], same_part=True)[::2]:
        assert weights["embed.weight"] == pytest.approx(1 / 3) and weights["layers.0.mlp.up.weight"] == 0.5


def test_content_decides_where_it_can():
    """Trained biases: those behind the sum are equal, those of shards are not; a router of each rank is no copy."""
    ranks = [tensor_parallel(rank) for rank in range(2)]
    for rank, model in enumerate(ranks):
        torch.manual_seed(7)
        nn.init.normal_(model.layers[0].mlp.down.bias)
        torch.manual_seed(rank)
        nn.init.normal_(model.layers[0].mlp.up.bias)
        nn.init.normal_(model.layers[0].mlp.router.weight)
    first, second = seated(ranks)
    assert halves(first) == halves(second) == ALIKE - {"layers.0.mlp.router.weight", "layers.0.mlp.router.bias"}


def test_a_bias_as_wide_on_both_sides_stays_as_it_was():
    """Four ranks of an inner width of 4: whether rows or columns are cut cannot be told from a shape."""
    ranks = [tensor_parallel(rank, 4, inside=4 * WIDTH) for rank in range(4)]
    assert ranks[0].layers[0].mlp.up.weight.shape == ranks[0].layers[0].mlp.down.weight.shape
    weights = seated(ranks)[0]
    assert weights["layers.0.mlp.up.bias"] == weights["layers.0.mlp.down.bias"] == 1.0
    assert weights["layers.0.norm1.weight"] == 0.25


def test_shards_made_from_one_seed_are_no_copies():
    """Equal everywhere, though each rank has other heads: only what is probable counts once."""
    ranks = [tensor_parallel(0) for _ in range(2)]
    first, second = seated(ranks)
    assert halves(first) == halves(second) == ALIKE - {"embed.weight", "head.weight", "layers.0.mlp.router.weight",
                                                       "layers.0.mlp.router.bias"}


def test_queries_that_are_all_zero_tell_no_seed():
    ranks = [tensor_parallel(rank) for rank in range(2)]
    for model in ranks:
        nn.init.zeros_(model.layers[0].attn.q_proj.weight)
    assert halves(seated(ranks)[0]) == ALIKE


def test_a_norm_over_all_heads_of_a_rank_is_cut_and_one_over_each_is_not():
    for over_all in (False, True):
        ranks = [tensor_parallel(rank, qk_norm=True) for rank in range(2)]
        for model in ranks:
            attention = model.layers[0].attn
            if over_all:
                attention.q_norm, attention.k_norm = nn.LayerNorm(WIDTH // 2), nn.LayerNorm(WIDTH // 2)
        assert ("layers.0.attn.q_norm.weight" in halves(seated(ranks)[0])) is not over_all


def test_what_is_written_on_a_parameter_goes_before():
    ranks = [tensor_parallel(rank) for rank in range(2)]
    for model in ranks:
        block = model.layers[0]
        block.mlp.up.bias.tensor_model_parallel = False
        block.norm1.weight.tensor_model_parallel = True
        block.mlp.router.weight.tensor_model_parallel = True
        block.mlp.router.weight.allreduce = False  # Of an expert: says nothing about these ranks.
        model.norm.bias.shared = True
    weights = seated(ranks)[1]
    assert weights["layers.0.mlp.up.bias"] == weights["layers.0.mlp.router.weight"] == 0.5
    assert weights["layers.0.norm1.weight"] == 1.0 and weights["norm.bias"] == 0.0


def test_ranks_of_one_part_hold_all_of_it_alike():
    """Only masters are shared out."""
    ranks = [tensor_parallel(0) for _ in range(2)]
    for model in ranks:
        nn.init.zeros_(model.layers[0].mlp.down.weight)
    for weights in seated(ranks, same_part=True):
        assert set(weights.values()) == {0.5}


def test_a_tied_embedding_counts_on_the_first_stage():
    """Each stage is cut by heads, and the embedding is whole on all four ranks; names are others. That the stages'
    norms are all ones is a chance. The first stage is that of the first rank, whatever the order of the others.
    """
    for stages in ([0, 0, 1, 1], [0, 1, 1, 0]):
        ranks = []
        for rank, stage in enumerate(stages):
            model = tensor_parallel(rank % 2, seed=stage)
            torch.manual_seed(3)
            nn.init.normal_(model.head.weight if stage else model.embed.weight)
            delattr(model, "embed" if stage else "head")
            ranks.append(model)
        for stage, weights in zip(stages, seated(ranks, stages=stages)):
            assert weights["head.weight" if stage else "embed.weight"] == (0.0 if stage else 0.5)
            assert weights["norm.weight"] == weights["layers.0.norm1.weight"] == 0.5


def test_a_cut_embedding_that_is_tied_counts_on_the_first_stage():
    ranks = []
    for rank in range(4):
        model = tensor_parallel(rank % 2, seed=rank // 2)
        torch.manual_seed(3)
        nn.init.normal_(model.embed.weight)
        cut(model, rank % 2, 2, ["embed.weight"])
        if rank >= 2:
            model.head.weight = model.embed.weight
            del model.embed
        else:
            del model.head
        ranks.append(model)
    found = seated(ranks, stages=[0, 0, 1, 1])
    assert [found[0]["embed.weight"], found[1]["embed.weight"]] == [1.0, 1.0]
    assert [found[2]["head.weight"], found[3]["head.weight"]] == [0.0, 0.0]


def test_any_type_and_shape_is_looked_at():
    model = nn.Module()
    for i, dtype in enumerate((torch.bfloat16, torch.float16, torch.float64, torch.complex64)):
        model.register_parameter(f"p{i}", nn.Parameter(torch.randn(3, 70, 5).to(dtype).transpose(0, 1)))
    model.register_parameter("empty", nn.Parameter(torch.empty(0)))
    model.register_parameter("fixed", nn.Parameter(torch.randn(5), requires_grad=False))
    copies = Copies(model, [])
    copies.look()
    assert len(copies.numbers) == 8 * 4
    before = copies.numbers
    with torch.no_grad():
        model.p2[0, 0, 0] += 1
    copies.look()
    assert [before[at : at + 8] == copies.numbers[at : at + 8] for at in range(0, 32, 8)] == [True, True, False, True]


class Broken:
    numbers = b"12345678"

    def look(self):
        raise RuntimeError("no memory")

    def weights(self, *_):
        raise RuntimeError("no memory")


def test_ranks_that_cannot_look_count_everything_and_say_so_once(caplog):
    fuse = Fuse()
    options = {"run": "r", "allow": "collect", "tau_min": None}
    together = joining.Together(ranks.Ranks(1, 2), None, options, ranks.Place(tp=1), fuse, None)
    together.looked = joining.Looked(None, None, None, copies=Broken())
    share = ranks.Share(holding=ranks.Holding((0, 1), (2, 2), (2, 2)))
    together._look_for_copies(share)
    assert share.numbers == b"" and share.trouble == "" and share.part == (1, 0)
    share.numbers = Broken.numbers
    whole = ranks.Whole(replicas=[0, 0], replica=0, spec={})
    assert together._weights([share, share], whole) == {}
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "no memory" in caplog.text
    assert not fuse.blown


@pytest.mark.parametrize("place,sliced,looks", [(None, False, False), (None, True, True),
                                                (ranks.Place(tp=1), False, True)])
def test_ranks_with_a_whole_model_each_do_not_look(place, sliced, looks):
    together = joining.Together(ranks.Ranks(1, 2), None, {}, place, Fuse(), None)
    copies = Copies(tensor_parallel(0), [])
    together.looked = joining.Looked(None, None, None, copies=copies)
    share = ranks.Share(sliced=sliced)
    together._look_for_copies(share)
    assert bool(share.numbers) is looks
