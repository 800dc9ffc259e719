"""Finds layers, heads and Q/K projections by walking a module.

Names decide, and what they suggest is believed only for measuring: before a weight is scaled, lineage.py has to see
that these very rows made what entered the softmax. What cannot be found is said in words, and can be given by hand.
"""

import dataclasses

import torch

from gyrostat.arguments import shown
from gyrostat.gain import Gain
from gyrostat.projection import Projection, contiguous, interleaved

_SPLIT = (("q_proj", "k_proj"), ("query", "key"), ("q", "k"), ("wq", "wk"), ("w_q", "w_k"), ("W_q", "W_k"),
          ("Wq", "Wk"), ("to_q", "to_k"), ("q_lin", "k_lin"), ("q_linear", "k_linear"), ("linear_q", "linear_k"),
          ("query_proj", "key_proj"), ("queries", "keys"), ("q_attn", "k_attn"))
_FUSED = ("qkv_proj", "qkv", "c_attn", "Wqkv", "wqkv", "W_qkv", "to_qkv", "in_proj", "att_proj", "attn_qkv", "W_pack",
          "qkv_linear")
_INTERLEAVED = ("query_key_value", "linear_qkv")
_HEADS_MAX = 1024  # As gyrostat.h.
_PAIR = ("q_proj", "k_proj")  # Arguments that go together.
_HEADS = ("num_heads", "n_heads", "n_head", "num_attention_heads", "nhead", "heads", "n_local_heads", "h")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_heads", "n_kv_head", "n_local_kv_heads",
             "num_query_groups")
_CROSS = ("cross", "encoder_attn", "multihead_attn", "EncDecAttention", "encoder_decoder")
_LATENT = ("kv_a_proj_with_mqa", "kv_b_proj", "wkv_b", "kv_a_proj", "linear_kv_up_proj")
_LATENT_QUERIES = ("q_b_proj", "wq_b", "linear_q_up_proj", "q_proj", "wq", "linear_q_proj")  # The last ones: no latent.
_LATENT_KEYS = ("kv_b_proj", "wkv_b", "linear_kv_up_proj")
_NOPE = ("qk_nope_head_dim", "qk_head_dim")  # Of MLA: DeepSeek's names, Megatron's names.
_ROPE = ("qk_rope_head_dim", "qk_pos_emb_head_dim")
_VALUE = ("v_head_dim",)
_NORMS = (("q_norm", "k_norm"), ("query_norm", "key_norm"), ("q_layernorm", "k_layernorm"), ("q_ln", "k_ln"),
          ("norm_q", "norm_k"), ("query_layernorm", "key_layernorm"))


@dataclasses.dataclass
class Layer:
    """One block. Without `attention` only its hidden states and gradients are watched."""

    index: int
    name: str
    block: torch.nn.Module
    attention: torch.nn.Module = None  # The module whose call holds projections and softmax.
    heads: int = 0
    kv_heads: int = 0
    q: Projection = None
    k: Projection = None
    q_gain: Gain = None  # Both or none: what a clip scales where a norm lies behind the projections.
    k_gain: Gain = None
    qk_norm: str = "none"
    first_head: int = 0  # Of a tensor-parallel job: the head of the whole model that head 0 here is.
    all_heads: int = 0  # Of the layer on all ranks; 0: as many as here.
    all_kv_heads: int = 0

    def stand(self, first_layer, first_head, first_kv_head):
        """This rank's layers and heads begin there in the whole model: everything is numbered so from now on."""
        self.index += first_layer
        self.first_head = first_head
        for part, first in ((self.q, first_head), (self.k, first_head if self.latent else first_kv_head),
                            (self.q_gain, first_head), (self.k_gain, first_kv_head)):
            if part is not None:
                part.first_head = first

    def take_place(self, heads, kv_heads):
        """Other ranks hold more of this layer, so many heads in all."""
        self.all_heads, self.all_kv_heads = heads, heads if self.latent else kv_heads

    @property
    def group(self):
        """Query heads that share a key head."""
        return (self.all_heads or self.heads) // (self.all_kv_heads or self.kv_heads)

    @property
    def latent(self):
        """MLA: queries have a rotary part of their own, whose key all heads share."""
        return self.q is not None and bool(self.q.rope_starts)


@dataclasses.dataclass
class Found:
    layers: list
    heads: int = 0  # The largest of any layer.
    kv_heads: int = 0
    head_dim: int = 0
    attention: str = None  # mha, gqa, mqa or mla.
    qk_norm: str = None
    notes: list = dataclasses.field(default_factory=list)  # What is missing, one sentence each.


class WrongArgument(ValueError):
    """An argument that does not fit the model. names: itself and those that go with it."""

    def __init__(self, names, value, wanted):
        super().__init__(f"{names[0]} is {shown(value)}, wanted {wanted}")
        self.names = names


def discover(model, layers=None, heads=None, kv_heads=None, q_proj=None, k_proj=None):
    """What can be found in `model`; never raises for a strange model, but WrongArgument for what was given by hand.

    layers: a sequence of modules, or the dotted name of one inside the model ("transformer.h").
    heads, kv_heads: per layer. q_proj, k_proj: dotted names inside a layer ("attn.q_proj"); equal names mean one fused
    projection, rows [q | k | v]. Layers that have no such names are looked at as if they were not given.
    """
    _check_numbers(heads, kv_heads)
    _check_names(q_proj, k_proj)
    blocks = _given_blocks(model, layers) if layers is not None else _find_blocks(model, bool(q_proj or k_proj))
    found = Found(layers=[Layer(index, name, block) for index, (name, block) in enumerate(blocks)])
    if not found.layers:
        found.notes.append("no transformer layers were found; give them with layers=")
        return found
    for names, name in ((_PAIR, q_proj), (_PAIR[::-1], k_proj)):
        if name and not any(_submodule(block, name) for _, block in blocks):
            raise WrongArgument(names, name, f"the dotted name of a module inside {found.layers[0].name or 'it'}")
    config = getattr(model, "config", None)
    for layer in found.layers:
        named = _submodule(layer.block, q_proj) and _submodule(layer.block, k_proj)
        _fill(layer, config, heads, kv_heads, *((q_proj, k_proj) if named else (None, None)), found.notes)
    _forbid_shared(found, model)
    _summarise(found)
    return found


def _check_numbers(heads, kv_heads):
    for argument, value in (("heads", heads), ("kv_heads", kv_heads)):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (whole and 1 <= value <= _HEADS_MAX):
            raise WrongArgument([argument], value, f"a whole number from 1 to {_HEADS_MAX}")


def _check_names(q_proj, k_proj):
    for names, value, other in ((_PAIR, q_proj, k_proj), (_PAIR[::-1], k_proj, q_proj)):
        if value is not None and not (isinstance(value, str) and value):
            raise WrongArgument(names, value, "the dotted name of a module inside a layer")
        if value and not other:
            raise WrongArgument(names, value, f"{names[1]} with it (equal names for a fused projection)")


def _submodule(block, name):
    """The module of that dotted name in `block`, or None."""
    try:
        return block.get_submodule(name) if name else None
    except AttributeError:
        return None


def _given_blocks(model, layers):
    given = _submodule(model, layers) if isinstance(layers, str) else layers
    given = given.values() if isinstance(given, torch.nn.ModuleDict) else given
    try:
        blocks = list(given)
    except Exception:  # Whatever somebody's own class may raise.
        blocks = []
    if not blocks or not all(isinstance(block, torch.nn.Module) for block in blocks):
        raise WrongArgument(["layers"], layers, "a sequence of modules, or the dotted name of one in the model")
    names = {id(module): name for name, module in model.named_modules()}
    return [(names.get(id(block), f"layers[{i}]"), block) for i, block in enumerate(blocks)]


def _find_blocks(model, named_by_hand):
    """The outermost module around each attention that holds no other; list members where they sit in one list."""
    modules = dict(model.named_modules())
    owners = [name for name, module in modules.items() if _owns_attention(module) and not _is_cross(name)]
    if named_by_hand and not owners:
        lists = [m for m in modules.values() if isinstance(m, torch.nn.ModuleList) and len(m)]
        owners = [name for name, m in modules.items() if lists and any(m is b for b in max(lists, key=len))]
    blocks = {}
    for owner in owners:
        name = owner
        while name:
            parent = name.rpartition(".")[0]
            inside = sum(1 for other in owners if other == parent or _within(other, parent))
            listed = isinstance(modules[parent], (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict))
            if listed and (inside == len(owners) or inside > 1):
                _add_siblings(blocks, parent, modules)
                break
            if inside > 1 or not parent:
                blocks[name] = modules[name]
                break
            name = parent
        else:
            blocks[owner] = modules[owner]
    order = {name: i for i, name in enumerate(modules)}
    chosen = sorted(blocks, key=order.get)
    return [(name, blocks[name]) for name in chosen if not any(_within(name, other) for other in chosen)]


def _add_siblings(blocks, parent, modules):
    """All members of the list: layers without attention (of a hybrid model) are layers too. Not of a plain Sequential,
    whose members are different things."""
    children = dict(modules[parent].named_children())
    attending = {key for key, child in children.items() if any(_owns_attention(m) for m in child.modules())}
    whole = isinstance(modules[parent], torch.nn.ModuleList)
    for key, child in children.items():
        if whole or key in attending:
            blocks[f"{parent}.{key}" if parent else key] = child


def _within(name, parent):
    return name != parent and (parent == "" or name.startswith(parent + "."))


def _is_cross(name):
    return any(mark in name for mark in _CROSS)


def _owns_attention(module):
    children = module._modules
    return (isinstance(module, torch.nn.MultiheadAttention)
            or any(a in children and b in children and _is_projection(children[a]) for a, b in _SPLIT)
            or any(name in children and _is_projection(children[name]) for name in _FUSED + _INTERLEAVED)
            or any(name in children for name in _LATENT))


def _is_projection(module):
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == 2 and not isinstance(module, torch.nn.Embedding)


def _fill(layer, config, heads, kv_heads, q_proj, k_proj, notes):
    """Completes one layer, or leaves it without attention and says why."""
    if q_proj or k_proj:
        owner = _owner_by_hand(layer, q_proj, k_proj)
    else:
        owners = [(name, m) for name, m in layer.block.named_modules()
                  if _owns_attention(m) and not _is_cross(name)]
        if len(owners) > 1:
            notes.append(f"{layer.name} holds {len(owners)} attentions; give q_proj= and k_proj=")
            return
        if not owners:
            return
        owner = owners[0]
    name, layer.attention = owner
    title = ".".join(filter(None, (layer.name, name)))
    layer.heads = heads or _number(layer.attention, _HEADS, layer.block, config)
    if not layer.heads:
        notes.append(f"{title}: the number of heads was not found; give heads=")
        return
    if _is_latent(layer.attention):
        layer.kv_heads = layer.heads
        trouble = _bind_latent(layer, config, title)
        if trouble:
            notes.append(f"{title} is latent attention (MLA), {trouble}; weights of this layer are never scaled")
        return
    if kv_heads and layer.heads % kv_heads:
        raise WrongArgument(["kv_heads"], kv_heads, f"what divides the {layer.heads} heads of {title}")
    layer.kv_heads = kv_heads or _number(layer.attention, _KV_HEADS, layer.block, config)
    trouble = _bind(layer, title, q_proj, k_proj)
    if trouble:
        notes.append(f"{title}: {trouble}; weights of this layer are never scaled")
        layer.q = layer.k = None
    else:
        _bind_norms(layer, title, notes)
    if not layer.kv_heads or layer.heads % layer.kv_heads:
        layer.kv_heads = layer.heads


def _owner_by_hand(layer, q_proj, k_proj):
    """The innermost module that holds both named projections, which are there."""
    parents = [name.split(".")[:-1] for name in (q_proj, k_proj)]
    common = []
    for a, b in zip(*parents):
        if a != b:
            break
        common.append(a)
    name = ".".join(common)
    return name, layer.block.get_submodule(name)


def _number(attention, names, block, config):
    """The first attribute of that name, looked for in the attention, its config, the block, the model's config."""
    for home in (attention, getattr(attention, "config", None), block, config):
        for name in names:
            value = getattr(home, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return 0


def _bind(layer, title, q_proj, k_proj):
    """Sets layer.q and layer.k (and kv_heads where only the shapes tell). Returns what stood in the way, or ""."""
    attention, children = layer.attention, layer.attention._modules
    if q_proj:
        q, k = layer.block.get_submodule(q_proj), layer.block.get_submodule(k_proj)
        names = (q_proj, k_proj)
        return _bind_fused(layer, q, names[0]) if q is k else _bind_split(layer, q, k, names)
    if isinstance(attention, torch.nn.MultiheadAttention):
        return _bind_multihead(layer, title)
    for names in _SPLIT:
        if names[0] in children and names[1] in children:
            return _bind_split(layer, children[names[0]], children[names[1]], [f"{title}.{n}" for n in names])
    for name in _FUSED + _INTERLEAVED:
        if name in children:
            return _bind_fused(layer, children[name], f"{title}.{name}", mixed=name in _INTERLEAVED)
    return "no Q and K projections were found; give q_proj= and k_proj="


def _out_dim(module):
    # Conv1D of GPT-2 stores [in, out] and says so by `nf`, its output width.
    return 1 if getattr(module, "nf", None) == module.weight.shape[1] and type(module).__name__ == "Conv1D" else 0


def _make(module, starts, width, title, weight="weight", bias="bias"):
    has_bias = getattr(module, bias, None) is not None
    out_dim = _out_dim(module) if weight == "weight" else 0
    return Projection(module, weight, bias if has_bias else "", out_dim, starts, width, title)


def _bind_split(layer, q, k, titles):
    if not (_is_projection(q) and _is_projection(k)):
        return f"{titles[0]} or {titles[1]} has no weight matrix"
    q_rows, k_rows = q.weight.shape[_out_dim(q)], k.weight.shape[_out_dim(k)]
    width = q_rows // layer.heads
    if q_rows % layer.heads or k_rows % width:
        return f"{q_rows} query rows and {k_rows} key rows do not divide into {layer.heads} heads"
    layer.kv_heads = layer.kv_heads or k_rows // width
    if k_rows != layer.kv_heads * width or layer.heads % layer.kv_heads:
        return f"{k_rows} key rows are not {layer.kv_heads} key heads of width {width}"
    layer.q = _make(q, contiguous(layer.heads, width), width, titles[0])
    layer.k = _make(k, contiguous(layer.kv_heads, width), width, titles[1])
    return ""


def _bind_fused(layer, qkv, title, mixed=False):
    """[q | k | v], or by key head where `mixed`. Without kv_heads, a third each."""
    if not _is_projection(qkv):
        return f"{title} has no weight matrix"
    rows = qkv.weight.shape[_out_dim(qkv)]
    layer.kv_heads = layer.kv_heads or layer.heads
    total = layer.heads + 2 * layer.kv_heads
    if rows % total or layer.heads % layer.kv_heads:
        return f"{rows} rows are not {layer.heads} query heads and twice {layer.kv_heads} key heads; give kv_heads="
    width = rows // total
    if mixed:
        q_starts, k_starts = interleaved(layer.heads, layer.kv_heads, width)
    else:
        q_starts = contiguous(layer.heads, width)
        k_starts = contiguous(layer.kv_heads, width, layer.heads * width)
    layer.q, layer.k = _make(qkv, q_starts, width, title), _make(qkv, k_starts, width, title)
    return ""


def _is_latent(attention):
    return any(part in attention._modules for part in _LATENT)


def _bind_latent(layer, config, title):
    """Sets layer.q and layer.k of MLA. Returns what stood in the way, or ""."""
    children = layer.attention._modules
    nope, rope, value = (_number(layer.attention, names, layer.block, config) for names in (_NOPE, _ROPE, _VALUE))
    q, k = (next((name for name in names if name in children and _is_projection(children[name])), None)
            for names in (_LATENT_QUERIES, _LATENT_KEYS))
    if not (nope and rope and value and q and k):
        return "whose projections or widths were not found"
    rows = [children[name].weight.shape[0] for name in (q, k)]
    wanted = [layer.heads * (nope + rope), layer.heads * (nope + value)]
    if rows != wanted:
        return f"whose {q} and {k} have {rows} rows, wanted {wanted} for {layer.heads} heads"
    layer.q = _make(children[q], contiguous(layer.heads, nope, stride=nope + rope), nope, f"{title}.{q}")
    layer.q.rope_starts = contiguous(layer.heads, rope, nope, stride=nope + rope)
    layer.q.rope_width = rope
    layer.k = _make(children[k], contiguous(layer.heads, nope, stride=nope + value), nope, f"{title}.{k}")
    return ""


def _bind_norms(layer, title, notes):
    """Sets the gains of a query-key norm. A norm that has none, or on one side only, leaves nothing to scale."""
    children = layer.attention._modules
    names = next((pair for pair in _NORMS if any(name in children for name in pair)), None)
    if names is None:
        return
    gains = []
    for name, projection in zip(names, (layer.q, layer.k)):
        gain = getattr(children.get(name), "weight", None)
        flattened = gain is not None and gain.numel() != projection.width
        sizes = (projection.width, projection.heads * projection.width)
        if projection is layer.q:
            layer.qk_norm = "flattened" if flattened else "per_head"
        if gain is None or gain.dim() != 1 or gain.numel() not in sizes:
            notes.append(f"{title}.{name} has no gain that is known; weights of this layer are never scaled")
            layer.q = layer.k = None
            return
        bias = "bias" if getattr(children[name], "bias", None) is not None else ""
        gains.append(Gain(children[name], "weight", bias, projection.heads, projection.width, flattened,
                          f"{title}.{name}"))
    if gains[0].flattened != gains[1].flattened and layer.heads != 1:
        one_head = [gain for gain in gains if gain.heads == 1]  # One key head: both readings are the same.
        for gain in one_head:
            gain.flattened = True
        if gains[0].flattened != gains[1].flattened:
            notes.append(f"{title} normalizes queries and keys in different ways; weights of this layer are never "
                         "scaled")
            layer.q = layer.k = None
            return
    layer.q_gain, layer.k_gain = gains


def _bind_multihead(layer, title):
    attention = layer.attention
    layer.kv_heads = layer.heads
    width = attention.embed_dim // layer.heads
    q_starts = contiguous(layer.heads, width)
    if attention.in_proj_weight is not None:
        k_starts, names = contiguous(layer.heads, width, attention.embed_dim), ("in_proj_weight", "in_proj_weight")
    elif attention.in_proj_bias is None:
        k_starts, names = q_starts, ("q_proj_weight", "k_proj_weight")
    else:
        return "separate weights with one fused bias"
    layer.q, layer.k = (_make(attention, starts, width, title, name, "in_proj_bias")
                        for starts, name in zip((q_starts, k_starts), names))
    return ""


def _forbid_shared(found, model):
    """A parameter that serves two layers, or another module, cannot be scaled for one of them. Known by its memory: two
    parameters may be views of it.
    """
    users = {}
    for layer in found.layers:
        if layer.q:
            for parameter in {_memory(p): p for p in _scaled_parameters(layer)}.values():
                users.setdefault(_memory(parameter), []).append(layer)
    scaled = {id(getattr(part, "module", None)) for layer in found.layers
              for part in (layer.q, layer.k, layer.q_gain, layer.k_gain) if layer.q}
    for name, module in model.named_modules():
        for parameter in module._parameters.values():
            layers = users.get(_memory(parameter)) if parameter is not None and id(module) not in scaled else None
            for layer in layers or ():
                if layer.q:
                    found.notes.append(f"{layer.name} shares its projections with {name}; weights of this layer are "
                                       "never scaled")
                    layer.q = layer.k = layer.q_gain = layer.k_gain = None
    for sharing in users.values():
        if len(sharing) > 1:
            found.notes.append(f"{sharing[0].name} and {sharing[1].name} share their projections; "
                               "weights of these layers are never scaled")
            for layer in sharing:
                layer.q = layer.k = layer.q_gain = layer.k_gain = None


def _scaled_parameters(layer):
    """What a clip of this layer may scale."""
    return [part.weight for part in (layer.q, layer.k, layer.q_gain, layer.k_gain) if part is not None]


def _memory(parameter):
    """Equal for parameters that begin at the same element, and for the same one where they have no memory."""
    return parameter.data_ptr() or -id(parameter)


def _summarise(found):
    attending = [layer for layer in found.layers if layer.attention is not None and layer.heads]
    if not attending:
        found.notes.append("no attention was found; give heads=, q_proj= and k_proj=")
        return
    first = attending[0]
    found.heads = max(layer.heads for layer in attending)
    found.kv_heads = max(layer.kv_heads for layer in attending)
    if found.heads % found.kv_heads:
        found.kv_heads = found.heads  # Layers that differ; the daemon wants one shape.
    found.head_dim = first.q.width + first.q.rope_width if first.q else 0
    if _is_latent(first.attention):
        found.attention = "mla"
    elif found.kv_heads == found.heads:
        found.attention = "mha"
    else:
        found.attention = "mqa" if found.kv_heads == 1 else "gqa"
    found.qk_norm = first.qk_norm
