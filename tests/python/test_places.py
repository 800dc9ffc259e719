"""Which part of a model a rank holds, and who owns which rows: without processes."""

import pytest

import gyrostat
import models
from gyrostat import ranks
from gyrostat.discover import discover
from gyrostat.layout import Layout
from gyrostat.ranks import Holding, Place, Share, unite


def found(layers=2, **attention):
    return discover(models.Model(layers=layers, **attention))


@pytest.mark.parametrize("place,words", [
    (Place(dp=-1), "place.dp is -1"), (Place(tp=1.0), "place.tp is 1.0"), (Place(layers=3), "place.layers is 3"),
    (Place(heads=(0, 0)), "wanted (first, count)"), (Place(heads=(0, 1, 2)), "wanted (first, count)"),
    (Place(replica=-2), "place.replica is -2"), ((0, 1), "wanted a gyrostat.Place"), (Place(), ""), (None, ""),
    (Place(dp=1, tp=1, layers=(4, 2), heads=[2, 2], replica=0), ""),
])
def test_places_that_cannot_be_are_named(place, words):
    assert (words in ranks.trouble_of(place)) if words else ranks.trouble_of(place) == ""
    assert gyrostat.Place is Place


def test_parts_follow_from_the_place():
    assert Holding.of(None, found()) == Holding((0, 2), (0, 4), (0, 4))
    assert Holding.of(Place(tp=1, pp=2), found(kv_heads=2)) == Holding((4, 2), (4, 4), (2, 2))
    assert Holding.of(Place(heads=(12, 4), layers=(5, 2)), found(kv_heads=2)) == Holding((5, 2), (12, 4), (6, 2))
    assert Holding.of(Place(tp=3, kv_heads=(1, 1)), found(kv_heads=1)) == Holding((0, 2), (12, 4), (1, 1))
    assert "(0, 3), but 2 were found" in Holding.of(Place(layers=(0, 3)), found()).trouble(found())


def share(holding, **more):
    spec = {"layers": 0, "heads": 0, "kv_heads": 0, "head_dim": 4, "attention": "mha", "qk_norm": "none",
            "master_fp32": 1}
    return Share(holding=holding, spec=spec, terms=(("allow", "qk_clip"),), run="r", **more)


def rows(shares, rank, own=lambda position, key: None):
    return unite(shares, rank, own)


def test_replicas_own_everything():
    shares = [share(Holding((0, 2), (0, 4), (0, 4)))] * 3
    assert [rows(shares, rank).replica for rank in range(3)] == [0, 1, 2]
    assert rows(shares, 1).shards == [] and rows(shares, 1).trouble == ""


def test_heads_and_layers_of_all_ranks_make_the_model():
    shares = [share(Holding((0, 2), (0, 2), (0, 1)), replica=0), share(Holding((0, 2), (2, 2), (1, 1)), replica=0),
              share(Holding((2, 3), (0, 2), (0, 1)), replica=0), share(Holding((2, 3), (2, 2), (1, 1)), replica=0)]
    whole = rows(shares, 3)
    assert (whole.layers, whole.heads, whole.kv_heads, whole.spec["attention"]) == (5, 4, 2, "gqa")
    assert whole.shards == [(layer, key, *span) for layer in (2, 3, 4) for key, span in ((0, (8, 16)), (1, (4, 8)))]


def test_a_key_head_that_ranks_share_is_owned_by_the_first():
    shares = [share(Holding((0, 1), (0, 2), (0, 1)), replica=0), share(Holding((0, 1), (2, 2), (0, 1)), replica=0)]
    assert rows(shares, 0).shards == [(0, 0, 0, 8), (0, 1, 0, 4)] and rows(shares, 1).shards == [(0, 0, 8, 16)]
    assert rows(shares, 0).spec["attention"] == "mqa"


def test_slices_are_of_one_replica():
    shares = [share(Holding((0, 1), (0, 4), (0, 4)), sliced=True)] * 2
    whole = rows(shares, 1, lambda position, key: [(3, 5), (7, 9)])
    assert whole.replica == 0
    assert whole.shards == [(0, 0, 3, 5), (0, 0, 7, 9), (0, 1, 3, 5), (0, 1, 7, 9)]


@pytest.mark.parametrize("change,words", [
    ({"trouble": "no library"}, "rank 1: no library"),
    ({"terms": (("allow", "halt"),)}, "allow is 'halt' on rank 1 and 'qk_clip' on rank 0"),
])
def test_ranks_that_cannot_act_together_say_why(change, words):
    mine = share(Holding((0, 1), (0, 4), (0, 4)))
    other = share(Holding((0, 1), (0, 4), (0, 4)))
    for name, value in change.items():
        setattr(other, name, value)
    assert [words in unite([mine, other], rank, None).trouble for rank in range(2)] == [True, True]


def test_models_that_differ_are_no_whole():
    mine, other = (share(Holding((0, 1), (0, 4), (0, 4))) for _ in range(2))
    other.spec["qk_norm"] = "per_head"
    assert "differ in qk_norm" in unite([mine, other], 0, lambda position, key: None).trouble
    odd = [share(Holding((0, 1), (0, 3), (0, 2)))] * 2
    assert "3 heads in all and 2 key heads" in unite(odd, 0, lambda position, key: None).trouble


def test_what_is_here_is_spread_over_the_whole_model():
    middle = Layout(6, 8, first_layer=2, held=3, first_head=4)
    assert middle.spread([1, 2, 3]) == [None, None, 1, 2, 3, None]
    assert middle.spread([1, 2, 3, 4]) == [None, None, 1, 2, 3, 4, None]  # Boundaries 2 to 5 of 0 to 6.
    assert [layer for layer in range(7) if middle.holds(layer)] == [2, 3, 4, 6]  # 6 is nobody's: refused, not skipped.
    assert Layout(2, 4).spread([1, 2]) == [1, 2]
