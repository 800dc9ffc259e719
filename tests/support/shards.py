"""The two seams of a tensor-parallel block (Megatron-LM, arXiv 1909.08053, section 3), over torch.distributed.

A group of None is a block that is whole.
"""

import torch
import torch.distributed as dist


class ToShards(torch.autograd.Function):
    """The input of column-parallel maps: as it is; its gradient is the sum over the shards."""

    @staticmethod
    def forward(context, x, group):
        context.group = group
        return x

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class FromShards(torch.autograd.Function):
    """The output of row-parallel maps: the sum over the shards; its gradient goes to all of them."""

    @staticmethod
    def forward(context, x, group):
        x = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(context, gradient):
        return gradient, None


def to_shards(x, group):
    return x if group is None else ToShards.apply(x, group)


def from_shards(x, group):
    return x if group is None else FromShards.apply(x, group)
