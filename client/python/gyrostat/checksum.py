"""A checksum of weights, by which the daemon sees whether replicas still hold the same ones."""

import torch

from gyrostat.whole import whole

_CHUNK = 1 << 20  # Elements that are mixed at once: 24 MiB of 64-bit numbers beside the weights.
_VIEWS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # By bytes an element.
# Odd constants of SplitMix64 (Steele, Lea, Flood 2014) as signed numbers; products wrap.
_STEP, _FIRST, _SECOND = (n - (1 << 64) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def weight_checksum(weights):
    """A whole number below 2^24 of every bit of `weights`: equal bits in equal order give the same; others the same
    only by a chance of 2^-24.

    weights: a module (its parameters, in their order) or tensors, of any types and devices.
    → 0-dim float32 tensor on the first one's device; nothing waits for it. Give it to `mon.step(weight_checksum=…)` on
    every rank at the same steps, of weights that all ranks hold alike: all of a model that is only replicated, norms
    and the like of one that is cut. It reads the weights once, so take it every hundredth step or so.

    Raises TypeError for a tensor that is in part on other ranks, or is not dense, and ValueError for none at all. Pure:
    safe from any thread.
    """
    tensors = list(weights.parameters() if isinstance(weights, torch.nn.Module) else weights)
    if not tensors:
        raise ValueError("weight_checksum: no weights, wanted a module that has some, or tensors")
    total = None
    with torch.no_grad():
        for number, tensor in enumerate(tensors):
            mixed = _mix(_sum(tensor, number) + (number + 1) * _STEP % (1 << 62))
            total = mixed if total is None else total ^ mixed.to(total.device)
        return ((total >> 40) & 0xFFFFFF).to(torch.float32)


def _sum(tensor, number):
    """0-dim int64: the sum of all elements' bits, each times an odd number of its place: one bit always changes it."""
    if not isinstance(tensor, torch.Tensor) or not whole(tensor) or tensor.layout is not torch.strided:
        raise TypeError(f"weight_checksum: weight {number} is a {type(tensor).__name__}, wanted a dense tensor that is "
                        "all on this rank")
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    bits = tensor.detach().contiguous().reshape(-1).view(_VIEWS[tensor.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for first in range(0, bits.numel(), _CHUNK):
        part = bits[first : first + _CHUNK].to(torch.int64)
        place = torch.arange(first, first + part.numel(), device=tensor.device)
        total += (part * (place * _STEP | 1)).sum()
    return total


def _mix(value):
    """SplitMix64's finalizer: every bit of the sum moves the upper ones."""
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        value = (value ^ ((value >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return value ^ ((value >> 31) & ((1 << 33) - 1))
