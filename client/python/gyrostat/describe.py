"""The model spec: what the daemon is told about a model once per attempt."""

import torch

from gyrostat import masters, schedules

_PRESETS = {
    "gpt2": "gpt2", "llama": "llama", "deepseek_v3": "deepseek-v3", "qwen3": "qwen3", "kimi_k2": "kimi-k2",
    "gemma2": "gemma2", "gemma3": "gemma3", "gemma3_text": "gemma3", "olmo2": "olmo2", "glm4": "glm4",
    "gpt_neox": "gpt-neox", "bert": "bert",
}  # By the config.model_type of Hugging Face models.


def describe(model, found, optimizers, scheduler=None, alphas=None, betas=False, by_hand=None):
    """The model spec as {field of gyro_model: value}; None and 0 where not known. alphas: alpha.Alphas, or None.
    betas: whether the branches' weights are bound; only then deepnorm_beta is told, which allows orders of it.
    by_hand: a spec that wins.
    """
    config = getattr(model, "config", None)
    embeddings = [m for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    vocabulary = max(embeddings, key=lambda m: m.num_embeddings, default=None)
    clipped = [layer for layer in found.layers if layer.q]
    weights = [p.weight for layer in clipped for p in (layer.q, layer.k)]
    scaled = [part.tensors()[0][0] for layer in clipped
              for part in (layer.q_gain or layer.q, layer.k_gain or layer.k)]
    scaled = [tensor for tensor in scaled if tensor.numel()]  # Of a slice, perhaps nothing is here.
    spec = {
        "layers": len(found.layers), "heads": found.heads, "kv_heads": found.kv_heads, "head_dim": found.head_dim,
        "hidden_size": vocabulary.embedding_dim if vocabulary is not None else 0,
        "vocab_size": vocabulary.num_embeddings if vocabulary is not None else 0,
        "attention": found.attention, "qk_norm": found.qk_norm,
        "optimizer": "+".join(type(o).__name__.lower() for o in optimizers) or None,
        "preset": _PRESETS.get(getattr(config, "model_type", None)),
        "master_fp32": masters.Masters(optimizers).declare(scaled) if scaled else None if clipped else -1,
        "compute_dtype": {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(weights[0].dtype) if weights else None,
    }
    if found.layers:
        spec.update(_norms(found.layers[0].block))
    spec.update(schedules.read(scheduler))
    alpha = alphas.declared()[0] if alphas is not None else None
    if alpha is not None:  # What reads an alpha computes LN(alpha x + G(x)).
        spec["deepnorm_alpha"] = alpha
        spec["norm_placement"] = "post" if alpha == 1 else "deepnorm"
    spec.update(by_hand or {})
    spec["deepnorm_beta"] = (spec.get("deepnorm_beta") or 1.0) if betas else 0.0
    return spec


def _norms(block):
    """Kind, epsilon and, where the class says it, gain (w or 1 + w) and placement of the norms in a block."""
    found = {}
    for module in block.modules():
        name = type(module).__name__.lower()
        if "rmsnorm" in name or "layernorm" in name:
            found["norm_kind"] = "rmsnorm" if "rmsnorm" in name else "layernorm"
            eps = getattr(module, "eps", None) or getattr(module, "variance_epsilon", None)
            found["norm_eps"] = float(eps) if eps else None
            found["norm_gain"] = _gain(module, name)
            break
    norm_first = getattr(block, "norm_first", None)  # torch's own TransformerEncoderLayer and DecoderLayer.
    if isinstance(norm_first, bool):
        found["norm_placement"] = "pre" if norm_first else "post"
    return found


def _gain(norm, name):
    """plain or unit_offset of a norm of class `name`; None where neither its class nor itself tells."""
    centred = getattr(norm, "zero_centered_gamma", None)  # Transformer Engine's.
    if isinstance(centred, bool):
        return "unit_offset" if centred else "plain"
    if "gemma" in name or name.endswith("1p"):  # NeMo's LayerNorm1P.
        return "unit_offset"
    return "plain" if type(norm).__module__.startswith("torch.nn.") else None
