"""gyrostat.weight_checksum: of all bits, in their order, and of nothing else."""

import copy

import pytest
import torch
from torch import nn

import gyrostat
import models


def number(weights):
    value = gyrostat.weight_checksum(weights)
    assert value.shape == () and value.dtype == torch.float32 and not value.requires_grad
    assert 0 <= float(value) < 1 << 24 and float(value) == int(value)
    return int(value)


def test_copies_have_the_same_and_any_flipped_bit_another():
    model = models.Model()
    before = number(model)
    assert number(copy.deepcopy(model)) == before == number(list(model.parameters()))
    seen = {before}
    for name, p in model.named_parameters():
        for bit in (0, 12, 31):
            bits = p.data.view(torch.int32).view(-1)
            at = len(seen) % bits.numel()
            flip = torch.tensor(1 << bit if bit < 31 else -(1 << 31), dtype=torch.int32)
            bits[at] ^= flip
            assert number(model) not in seen, (name, bit)
            seen.add(number(model))
            bits[at] ^= flip
    assert number(model) == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8])
def test_every_type_of_element_counts_bit_by_bit(dtype):
    weights = torch.arange(24).reshape(4, 6).to(dtype)
    first = number([weights])
    assert number([weights.t().contiguous().t()]) == first  # Its values, not where they lie.
    assert number([weights.flip(0)]) != first
    other = weights.clone()
    other[3, 5] += 1
    assert number([other]) != first


def test_the_sign_of_zero_and_the_order_of_tensors_count():
    a, b = torch.tensor([0.0, 1.0]), torch.tensor([2.0, 3.0])
    assert number([a, b]) != number([b, a])
    assert number([a]) != number([torch.tensor([-0.0, 1.0])])
    assert number([torch.tensor([float("nan")])]) == number([torch.tensor([float("nan")])])
    assert number([a, torch.empty(0)]) != number([a])


def test_large_tensors_are_read_in_parts(monkeypatch):
    from gyrostat import checksum

    weights = [torch.randn(1000), torch.randn(7, 11)]
    whole = number(weights)
    monkeypatch.setattr(checksum, "_CHUNK", 64)
    assert number(weights) == whole


def test_values_spread_over_all_24_bits():
    seen = [number([torch.tensor([float(i)])]) for i in range(2000)]
    assert len(set(seen)) > 1990
    assert {bin(a ^ b).count("1") > 0 for a, b in zip(seen, seen[1:])} == {True}
    ones = [sum(value >> bit & 1 for value in seen) for bit in range(24)]
    assert min(ones) > 850 and max(ones) < 1150  # 1000 each, seven standard deviations.


def test_what_is_not_all_here_is_refused():
    with pytest.raises(ValueError, match="no weights"):
        gyrostat.weight_checksum(nn.ReLU())
    with pytest.raises(TypeError, match="weight 1 is a float, wanted a dense tensor"):
        gyrostat.weight_checksum([torch.ones(2), 1.0])
    with pytest.raises(TypeError, match="wanted a dense tensor that is all on this rank"):
        gyrostat.weight_checksum([torch.eye(3).to_sparse()])

    class Part(torch.Tensor):
        """As DTensor is: a subclass that nobody here knows."""

    with pytest.raises(TypeError, match="weight 0 is a Part"):
        gyrostat.weight_checksum([torch.ones(2).as_subclass(Part)])
