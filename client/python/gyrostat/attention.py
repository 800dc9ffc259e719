"""Largest attention logit per head, measured where softmax or scaled-dot-product attention is really called.

Around the call of each attention module a torch function mode is on. It sees the very scores that enter the
softmax, with rotary embedding, mask and bias in them. Only forwards that train count (module.training and gradients
enabled); micro- batches, and forwards recomputed in the backward pass, join by maximum.
"""

import math
import types

import torch
from torch import overrides
from torch.nn import functional as F

from gyrostat import lineage, logits
from gyrostat.early import NEVER
from gyrostat.whole import whole

_NN = torch._C._nn
_SOFTMAX = (torch.softmax, F.softmax, torch.Tensor.softmax)
_TANH = (torch.tanh, torch.Tensor.tanh, torch.Tensor.tanh_, F.tanh)
_ATTENTION = [getattr(home, name) for home in (F, _NN)
              for name in ("scaled_dot_product_attention", "_scaled_dot_product_attention") if hasattr(home, name)]
_PRODUCTS = {torch.matmul: 0, torch.Tensor.matmul: 0, torch.Tensor.__matmul__: 0, torch.bmm: 0, torch.Tensor.bmm: 0,
             torch.baddbmm: 1, torch.Tensor.baddbmm: 1, torch.einsum: 1}  # Position of the first factor.
_LINEAR = {F.linear: (0, 1), torch.addmm: (1, 2)}  # Positions of input and weight.
_FORWARDS_MAX = 64  # Maxima kept apart; a loop that never steps must not collect them for ever.
_SAMPLE_TOKENS = 16  # Kept of the projections' input, for the actuator's own check.


def _answered_no(function):
    """multi_head_attention_forward asks first whether a mode wants it. A copy of it that has been answered no can
    be called inside the mode, which then sees the softmax in it.
    """
    namespace = {**function.__globals__, "has_torch_function": lambda tensors: False}
    copy = types.FunctionType(function.__code__, namespace, function.__name__, function.__defaults__,
                              function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


_multi_head_inside = _answered_no(F.multi_head_attention_forward)


def head_maxima(scores, heads):
    """[heads] float32 from softmax inputs [B, H, Tq, Tk], [B * H, Tq, Tk], [B, Hkv, H / Hkv, Tq, Tk] or [B, Tq, H, Tk].
    None where the shape is none of these."""
    x = scores.detach()
    if x.numel() == 0:
        return None
    if x.dim() == 3 and x.shape[0] % heads == 0:
        x = x.unflatten(0, (-1, heads))
    elif x.dim() == 5 and x.shape[1] * x.shape[2] == heads:
        x = x.flatten(1, 2)
    if x.dim() != 4:
        return None
    if x.shape[1] == heads:
        return x.amax(dim=(0, 2, 3)).float()
    return x.amax(dim=(0, 1, 3)).float() if x.shape[2] == heads else None


class LayerProbe:
    """What one layer's attention has shown since the last `take`, and what has been learnt about it."""

    def __init__(self, layer, fuse, early=NEVER):
        self.layer = layer
        self._early = early
        self.lineage = lineage.Lineage(layer)
        self.samples = [None, None]  # [n, in] float32 inputs of the Q and K projections; kept from the first forward.
        self.forwards = 0
        self.dtype = None  # Of the scores.
        self.resting = False  # An order wants this step not to be measured.
        self.curious = False  # Whether projections and products still matter; later only the softmax does.
        self._fuse = fuse
        self._maxima = []  # Of the forwards since the last take; appended to by whichever thread runs the forward.
        self._kind = None
        self._capped = False
        self._blind = False  # No softmax is visible: bound the logits by the projections' norms instead.
        self._seen = False  # In this forward.
        self._product = None  # (queries, keys, elements of the result) of this forward's last product.
        self._norms = [None, None]
        self._mode = _Mode(self, fuse)

    def around(self, call, args, kwargs):
        """For a Tap on the attention module."""
        if self._early.due:
            self._early.ask()
        resting = self.resting and self.lineage.state is not None
        if resting or self._fuse.blown or not torch.is_grad_enabled() or not self.layer.attention.training:
            return call(*args, **kwargs)
        self._begin()
        try:
            with self._mode.on():
                return call(*args, **kwargs)
        finally:
            try:
                if not self._fuse.blown:
                    self._end()
            except Exception as error:
                self._fuse.blow(error)

    def taps(self):
        """The modules to watch, each with what to put around its call, for a Tap."""
        norms = [(gain.module, self._around_norm(side))
                 for side, gain in enumerate((self.layer.q_gain, self.layer.k_gain)) if gain]
        return [(self.layer.attention, self.around)] + norms

    def _around_norm(self, side):
        def around(call, args, kwargs):
            result = call(*args, **kwargs)
            if self.curious and self.lineage.state is None and not self._fuse.blown:
                try:
                    values = args[0] if args else next(iter(kwargs.values()))
                    if not self._parted(values, result):
                        self.lineage.normed(side, values.detach(), result.detach())
                except Exception as error:
                    self._fuse.blow(error)
            return result

        return around

    def given(self, maxima, kind):
        """Joins detached float32 maxima of any shape with one entry for each head, measured by the loop itself."""
        if not self._parted(maxima):
            self.record(maxima.reshape(-1), kind)

    def record(self, maxima, kind):
        """Joins [heads] maxima of one micro-batch."""
        self._seen = True
        if maxima.shape[0] != self.layer.heads:
            self._fuse.say(f"{self.layer.name}: maxima of {maxima.shape[0]} heads were given, "
                           f"wanted {self.layer.heads}; they are not used")
            return
        self._maxima.append(maxima)
        self._kind = weaker(self._kind, kind)
        if len(self._maxima) > _FORWARDS_MAX:
            self._maxima = [_join(self._maxima)]

    def take(self):
        """([heads] maxima, kind) since the last take, or (None, None)."""
        if not self._maxima:
            return None, None
        taken = _join(self._maxima), self._kind
        self._maxima, self._kind = [], None
        return taken

    def scores(self, x, dim):
        """A softmax over `x` is about to be taken."""
        if dim is not None and dim not in (-1, x.dim() - 1):
            return
        if self._parted(x):
            return
        maxima = head_maxima(x, self.layer.heads)
        if maxima is None:
            return
        self.dtype = x.dtype
        if self._capped:
            # cap * tanh(S / cap) <= S where S is positive: what enters the softmax is a lower bound of the logits.
            self._fuse.say(f"{self.layer.name}: logits are soft-capped before the softmax; "
                           "reported as lower bounds, never a reason to clip")
        self.record(maxima, "sampled_lower" if self._capped else "exact")
        if self.curious and self.lineage.state is None:
            queries, keys, count = self._product or (None, None, 0)
            self.lineage.scored(*((queries, keys) if count == x.numel() else (None, None)))

    def pair(self, q, k, scale=None, causal=False, mask=None, bias=None, align="last"):
        """Queries [B, H, Tq, D] and keys [B, Hkv, Tk, D] that are about to attend."""
        if self._parted(q, k):
            return
        try:
            maxima = logits._chunked(q, k, scale, causal, mask, bias, align)
        except ValueError as error:
            self._fuse.say(f"{self.layer.name}: {error}; this attention is not measured")
            return
        self.dtype = q.dtype
        self.record(maxima, "exact")
        if self.curious and self.lineage.state is None:
            self.lineage.scored(q, k)

    def linear(self, x, weight, output):
        """A linear map was applied. Only called while curious."""
        q, k = self.layer.q, self.layer.k
        is_q, is_k = weight is q.weight, weight is k.weight
        if not (is_q or is_k) or self._parted(x, output):
            return
        for side, mine in enumerate((is_q, is_k)):
            if self.samples[side] is None and mine:
                self.samples[side] = x.detach().reshape(-1, x.shape[-1])[:_SAMPLE_TOKENS].float().clone()
        if self.lineage.state is None:
            self.lineage.projected(weight, output)
        if self._blind and not self.layer.latent:  # The key's rotary part is not the projection's.
            for slot, projection, mine in ((0, q, is_q), (1, k, is_k)):
                if mine:
                    norms = projection.by_head(output.detach()).float().norm(dim=-1)
                    self._norms[slot] = norms.flatten(0, -2).amax(dim=0)

    def product(self, queries, keys, result):
        """A batched product was made. Only called while curious."""
        if whole(result) and result.dim() >= 3:
            self._product = (queries.detach(), keys.detach(), result.numel())

    def _parted(self, *tensors):
        """Whether some of them may be in part on other ranks; says so."""
        strange = next((tensor for tensor in tensors if not whole(tensor)), None)
        if strange is not None:
            self._seen = True
            self._fuse.say(f"{self.layer.name}: attention works on {type(strange).__name__}s, which may be in part on "
                           "other ranks; its maxima are not measured. Give them with mon.attention_max()")
        return strange is not None

    def tanh(self):
        self._capped = True

    def _begin(self):
        self._capped = self._seen = False
        self._norms = [None, None]
        self.curious = self.layer.q is not None and (self._blind or self.lineage.state is None)
        if self.curious:
            self.lineage.begin()

    def _end(self):
        self._product = None
        self.forwards += 1
        if self._seen:
            return
        if self._blind and None not in self._norms:
            # |q.k| <= |q||k|: scale D^-0.5 assumed. A rotary embedding keeps norms.
            group = self.layer.heads // self.layer.kv_heads
            bound = self._norms[0] * self._norms[1].repeat_interleave(group) / math.sqrt(self.layer.q.width)
            self.record(bound, "norm_product")
        elif not self._blind:
            self._blind = True
            instead = ("reporting the product of the norms of queries and keys instead, which no clip may use"
                       if self.layer.q else "its maxima are not measured")
            self._fuse.say(f"{self.layer.name}: no softmax or scaled-dot-product attention is called where it can be "
                           f"seen; {instead}. Give exact maxima with mon.attention()")


def _join(maxima):
    """The elementwise maximum of [heads] tensors; NaN wins."""
    if len(maxima) == 1:
        return maxima[0]
    return torch.stack([m.to(maxima[0].device) for m in maxima]).amax(dim=0)


KINDS = ("exact", "lse_upper", "norm_product", "sampled_lower")  # The most trustworthy first.


def weaker(a, b):
    """The less trustworthy of two kinds; None counts as the best."""
    return b if a is None else max(a, b, key=KINDS.index)


def may_clip(kind):
    """Whether a clip may be computed from maxima of this kind."""
    return kind in ("exact", "lse_upper")


# torch 1.13 runs its stack of modes in Python, some 6 us a call, which shows on small models. A mode that is alone on
# the stack may be called directly. Later versions keep the stack in C++ and need none of this.
_STACK = torch._C if torch.__version__.startswith("1.13.") else None


class _Direct:
    """Makes a mode the only one, called without going through the stack; also again from inside its own handler, where
    torch has it switched off."""

    def __init__(self, mode):
        self._mode = mode
        self._pushed = False

    @staticmethod
    def possible(mode):
        depth = _STACK._len_torch_function_stack() if _STACK else 2
        return depth == 0 or (depth == 1 and _STACK._get_function_stack_at(0) is mode)

    def __enter__(self):
        self._pushed = _STACK._len_torch_function_stack() == 0
        if self._pushed:
            _STACK._push_on_torch_function_stack(self._mode)
        _STACK._set_torch_function_mode(self._mode)

    def __exit__(self, *exc_info):
        if self._pushed:
            _STACK._pop_torch_function_stack()
        _STACK._set_torch_function_mode(None)


class _Mode(overrides.TorchFunctionMode):
    """Hands what matters to a probe and calls everything through. The user's exceptions pass; ours never do."""

    def __init__(self, probe, fuse):
        super().__init__()
        self._probe = probe
        self._fuse = fuse
        self._before = {**dict.fromkeys(_SOFTMAX, self._softmax),
                        **dict.fromkeys(_ATTENTION, self._scaled_dot_product),
                        **dict.fromkeys(_TANH, self._tanh)}

    def on(self):
        """A context in which this mode sees the calls."""
        return _Direct(self) if _Direct.possible(self) else self

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _STACK and _STACK._len_torch_function_stack() > 1 and _STACK._get_function_stack_at(0) is self:
            # Called directly, but the user has entered a mode inside ours: that one comes first.
            return overrides._TorchFunctionStackMode().__torch_function__(func, types, args, kwargs)
        before = self._before.get(func)
        if before is not None and not self._fuse.blown:
            try:
                before(*args, **kwargs)
            except Exception as error:
                self._fuse.blow(error)
        elif func is F.multi_head_attention_forward:
            with self.on():
                return _multi_head_inside(*args, **kwargs)
        result = func(*args, **kwargs)
        if self._probe.curious and not self._fuse.blown:
            try:
                self._after(func, args, kwargs, result)
            except Exception as error:
                self._fuse.blow(error)
        return result

    def _softmax(self, input, dim=None, *rest, **kwargs):
        self._probe.scores(input, dim)

    def _tanh(self, *args, **kwargs):
        self._probe.tanh()

    def _scaled_dot_product(self, query, key, value, attn_mask=None, dropout_p=0.0, *rest, is_causal=None, scale=None,
                            **kwargs):
        # torch 1.13: (..., need_attn_weights, is_causal); torch 2: (..., is_causal), scale= by name.
        causal = bool(rest[-1] if rest and is_causal is None else is_causal)
        self._probe.pair(query, key, scale=scale, causal=causal, mask=attn_mask, align="first")

    def _after(self, func, args, kwargs, result):
        if func in _LINEAR:
            x, weight = _LINEAR[func]
            values = list(args) + [kwargs[name] for name in ("input", "weight", "mat1", "mat2") if name in kwargs]
            if len(values) > weight:
                self._probe.linear(values[x], values[weight], result)
        elif func in _PRODUCTS:
            first = _PRODUCTS[func]
            factors = args[first] if len(args) == first + 1 and isinstance(args[first], (list, tuple)) else args[first:]
            if len(factors) >= 2:
                self._probe.product(factors[0], factors[1], result)
