"""Parameters that several ranks of one replica hold alike: norms and biases behind the sum of a tensor-parallel model,
routers, replicated embeddings, an embedding that the first and the last pipeline stage share, everything on ranks that
share out their masters alone. Each must count once in a norm over the whole model.

When the client opens, each rank tells one number for each of its parameters, made of its place, its shape, and the bits
of up to 256 elements. Between ranks that differ in what they hold, equal numbers are copies where the content is
evidence. It is none where all elements are equal, as norms and biases are at first, nor where the ranks' query
projections are equal too though they are of other heads (made from one seed). There the module says what is probable:

- a norm is held alike, but for one over all heads of a rank; so is a single number;
- a bias is what its matrix is where that is held alike; it is held alike too where it is as wide as the model and its
  matrix takes another width (row-parallel);
- a loose vector is held alike where it is as wide as the model;
- everything else is cut.

What Megatron-LM writes on its parameters goes before: `tensor_model_parallel`, cut or held alike, and `shared`: another
stage counts it.
"""

import dataclasses
import hashlib

import torch

from gyrostat.whole import shards_parameters

_LOOKED_AT = 256  # Elements of a parameter.
_PARAMETERS_MAX = 1 << 15  # Of a rank; those beyond count wholly.
_NUMBER_BYTES = 8


@dataclasses.dataclass(frozen=True)
class Seat:
    """One rank among those of its replica."""

    rank: int
    stage: object  # Equal for ranks that hold the same layers.
    part: object  # Equal for ranks that hold the same part of the same layers.
    heads: object  # Which of them.
    numbers: bytes  # As Copies.numbers.


class Copies:
    """Of the model of one rank. A parameter of which nothing is known counts wholly, as if no other rank had it."""

    def __init__(self, model, layers):
        """layers: discover.Layers, numbered over the whole model by the time of look()."""
        self._model, self._layers = model, layers
        self._held = []
        self._queries = []  # Positions of query projections in it, where their content is evidence.
        self.numbers = b""  # Eight bytes for each of them.

    def look(self):
        """Makes `numbers` of the parameters as they are. Brings over at most 256 elements of each, in one transfer
        from each device."""
        self._held, self._queries, self.numbers = [], [], b""
        if shards_parameters(self._model):
            return
        self._held = _walk(self._model, self._layers)[:_PARAMETERS_MAX]
        numbers = []
        for held, raw in zip(self._held, _samples([held.tensor for held in self._held])):
            size = held.tensor.element_size()
            held.constant = raw == raw[:size] * (len(raw) // size)
            place = f"{held.place} {tuple(held.tensor.shape)} {held.tensor.dtype} "
            numbers.append(hashlib.blake2b(place.encode() + raw, digest_size=_NUMBER_BYTES).digest())
        queries = {id(layer.q.weight) for layer in self._layers if layer.q}
        self._queries = [at for at, held in enumerate(self._held) if id(held.tensor) in queries and not held.constant]
        self.numbers = b"".join(numbers)

    def weights(self, mine, peers, hidden_size):
        """{id of a parameter: what its square counts for here}, in [0, 1]; 1 is left out. Those of a parameter's copies
        add up to 1 over the replica.

        mine: the Seat of this rank. peers: those of the other ranks of its replica. hidden_size: the model's width; 0:
        not known.
        """
        if not self._held:
            return {}
        numbers = _decoded(mine.numbers)
        evident, probable, said, shared = (torch.tensor(column) for column in zip(*(
            (not held.constant, held.probable(hidden_size), held.said is not None, held.shared)
            for held in self._held)))
        says_alike = torch.tensor([held.said is True for held in self._held])
        matrix = torch.tensor([held.matrix for held in self._held])
        ranks = torch.ones(len(self._held))  # Of this stage that hold it.
        first = torch.full((len(self._held),), mine.rank)  # Of those.
        first_elsewhere = torch.full_like(first, torch.iinfo(torch.int64).max)
        for peer in peers:
            alike = torch.isin(numbers, _decoded(peer.numbers))
            if peer.stage != mine.stage:
                alike &= evident
                first_elsewhere[alike & (first_elsewhere > peer.rank)] = peer.rank
                continue
            if peer.part != mine.part:
                one_seed = peer.heads != mine.heads and bool(alike[self._queries].any())
                believed = torch.where(said, says_alike, probable if one_seed else evident | probable)
                believed |= ~said & (matrix >= 0) & (alike & believed)[matrix]  # The biases of such matrices.
                alike &= believed
            ranks += alike
            first[alike & (first > peer.rank)] = peer.rank
        weights = 1 / ranks
        weights[shared | (first_elsewhere < first)] = 0
        return {id(held.tensor): weight for held, weight in zip(self._held, weights.tolist()) if weight != 1}


@dataclasses.dataclass
class _Held:
    """A parameter of this rank."""

    tensor: torch.Tensor
    place: str  # In the whole model; "" for a matrix outside of the layers, whose name may be another on each stage.
    name: str  # In its module.
    kind: str  # The module's class, in small letters.
    matrix: int = -1  # A vector of a module that has a matrix: its position.
    columns: int = 0  # What that matrix takes.
    over_heads: bool = False  # The gain of a norm over all heads that are here.
    constant: bool = True

    @property
    def said(self):
        """Whether it is held alike, by what is written on it; None: nothing is. Experts may be cut in another way."""
        cut = getattr(self.tensor, "tensor_model_parallel", None)
        return None if not isinstance(cut, bool) or getattr(self.tensor, "allreduce", True) is False else not cut

    @property
    def shared(self):
        return getattr(self.tensor, "shared", None) is True

    def probable(self, hidden_size):
        """Whether tensor-parallel ranks hold such a parameter alike, as far as can be told without its content."""
        if self.tensor.numel() == 1:
            return True
        if _is_matrix(self.tensor) or self.over_heads:
            return False
        if "norm" in self.name or ("norm" in self.kind and self.matrix < 0):
            return True
        if "rowparallel" in self.kind or "columnparallel" in self.kind:
            return "rowparallel" in self.kind
        return self.tensor.numel() == hidden_size != self.columns


def _is_matrix(tensor):
    return tensor.numel() > max(tensor.shape, default=1)


def _walk(model, layers):
    """[_Held] of all parameters that may get a gradient: those of the layers, then all others."""
    over_heads = {id(tensor) for layer in layers for gain in (layer.q_gain, layer.k_gain)
                  if gain is not None and gain.flattened for tensor, _ in gain.tensors()}
    held, seen = [], set()
    for inside, root in [(f"{layer.index}:", layer.block) for layer in layers] + [("", model)]:
        for path, module in root.named_modules():
            named = [(name, p) for name, p in module._parameters.items() if p is not None and p.requires_grad
                     and p.layout is torch.strided and p.device.type != "meta" and p.numel()]
            matrix, columns = -1, 0
            for name, p in sorted(named, key=lambda pair: not _is_matrix(pair[1])):
                if id(p) in seen:
                    continue
                seen.add(id(p))
                place = "" if not inside and _is_matrix(p) else f"{inside}{path}.{name}"
                one = _Held(p, place, name, type(module).__name__.lower(), over_heads=id(p) in over_heads)
                if not _is_matrix(p):
                    one.matrix, one.columns = matrix, columns // p.numel()
                elif matrix < 0:
                    matrix, columns = len(held), p.numel()
                held.append(one)
    return held


def _samples(tensors):
    """The bits of some elements of each, spread over all its sides."""
    raw, by_device = [b""] * len(tensors), {}
    for at, tensor in enumerate(tensors):
        along = int(_LOOKED_AT ** (1 / max(1, tensor.dim())) + 1e-9)
        some = tensor.detach()[tuple(slice(None, None, -(-size // along)) for size in tensor.shape)]
        some = torch.view_as_real(some) if some.is_complex() else some
        by_device.setdefault(tensor.device, []).append((at, some.contiguous().reshape(-1).view(torch.uint8)))
    for parts in by_device.values():
        data = torch.cat([part for _, part in parts]).cpu().numpy().tobytes()
        begin = 0
        for at, part in parts:
            raw[at] = data[begin : begin + part.numel()]
            begin += part.numel()
    return raw


def _decoded(numbers):
    return torch.frombuffer(bytearray(numbers), dtype=torch.int64) if numbers else torch.empty(0, dtype=torch.int64)
