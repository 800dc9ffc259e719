"""An independent in-process QK-Clip, written from the ledger's rules alone and sharing no code with the client.

It tells what the demonstration should gain, and what the real loop is compared with.
"""

import math

import torch


class ReferenceClip:
    """Per-head ledger in nats; an order made from forward t is applied `delay` boundaries later.

    For the demonstration's model (byte_gpt) without projection biases, split or fused; GQA by the group's minimum.
    """

    def __init__(self, model, tau, delay=1):
        self._attentions = [block.attention for block in model.blocks]
        self._tau = tau
        self._delay = delay
        heads = self._attentions[0].heads
        self._ledger = torch.zeros(len(self._attentions), heads, dtype=torch.float64)
        self._queue = []
        self.clips = 0

    @torch.no_grad()
    def boundary(self, logit_max):
        """Call after the optimizer step with the [layers, heads] maxima of the forward before it."""
        excess = torch.log(logit_max.double().clamp(min=self._tau) / self._tau).clamp(max=math.log(10))
        self._queue.append((self._ledger + excess, excess > 0))
        if len(self._queue) <= self._delay:
            return
        target, flagged = self._queue.pop(0)
        delta = torch.where(flagged, (target - self._ledger).clamp(min=0), torch.zeros_like(target))
        self.clips += int((delta > 0).sum())
        for layer, attention in enumerate(self._attentions):
            if delta[layer].any():
                self._ledger[layer] += self._clip(attention, delta[layer])

    @staticmethod
    def _clip(attention, delta):
        group = delta.view(attention.kv_heads, -1).amax(dim=1)
        whole = group.repeat_interleave(attention.heads // attention.kv_heads)
        factors = torch.exp(-torch.cat([whole, group]) / 2).float().repeat_interleave(attention.head_dim)[:, None]
        query_rows = attention.heads * attention.head_dim
        if attention.fused:
            attention.qkv_proj.weight[: len(factors)] *= factors
        else:
            attention.q_proj.weight *= factors[:query_rows]
            attention.k_proj.weight *= factors[query_rows:]
        return whole
