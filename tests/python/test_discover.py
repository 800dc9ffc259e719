"""What is found in models written in many ways, and what is said about the rest."""

import types

import pytest
import torch
from torch import nn

import gyrostat
import models
from gyrostat.discover import discover


def names(found):
    return [layer.name for layer in found.layers]


@pytest.mark.parametrize("kv_heads,kind", [(4, "mha"), (2, "gqa"), (1, "mqa")])
@pytest.mark.parametrize("fused", [False, True])
def test_split_and_fused_projections(kv_heads, kind, fused):
    found = discover(models.Model(layers=3, kv_heads=kv_heads, fused=fused))
    assert found.notes == [] and names(found) == ["layers.0", "layers.1", "layers.2"]
    assert (found.heads, found.kv_heads, found.head_dim, found.attention) == (4, kv_heads, 4, kind)
    layer = found.layers[1]
    assert layer.q.starts == (0, 4, 8, 12)
    assert layer.k.starts == tuple((16 if fused else 0) + 4 * h for h in range(kv_heads))


def test_interleaved_rows_of_gpt_neox():
    layer = discover(models.Model(layers=1, kv_heads=2, interleaved=True)).layers[0]
    assert layer.q.starts == (0, 4, 16, 20) and layer.k.starts == (8, 24)


def test_torch_encoder_and_decoder_layers():
    model = nn.Transformer(d_model=16, nhead=4, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=8)
    found = discover(model)
    assert names(found) == ["encoder.layers.0", "encoder.layers.1", "decoder.layers.0", "decoder.layers.1"]
    assert found.heads == 4 and found.notes == []
    assert found.layers[2].attention is model.decoder.layers[0].self_attn  # Not the cross-attention.
    assert found.layers[0].k.starts == (16, 20, 24, 28)


def test_hugging_face_spelling_with_the_heads_in_a_config():
    class SelfAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(12, 12) for _ in range(3))

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.self = SelfAttention()

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attention()

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = types.SimpleNamespace(num_attention_heads=3, model_type="bert")
            self.encoder = nn.Module()
            self.encoder.layer = nn.ModuleList(Layer() for _ in range(2))

    found = discover(Bert())
    assert names(found) == ["encoder.layer.0", "encoder.layer.1"] and (found.heads, found.head_dim) == (3, 4)


def test_conv1d_of_gpt2_keeps_heads_in_columns():
    class Conv1D(nn.Module):
        def __init__(self, nf, nx):
            super().__init__()
            self.nf = nf
            self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.zeros(nf))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.Module()
            self.attn.c_attn, self.attn.n_head = Conv1D(36, 12), 3

    model = nn.Module()
    model.h = nn.ModuleList([Block()])
    layer = discover(model).layers[0]
    assert layer.q.out_dim == 1 and layer.k.starts == (12, 16, 20)


def test_blocks_that_are_plain_attributes():
    model = nn.Module()
    model.first, model.second = models.Block(), models.Block()
    assert names(discover(model)) == ["first", "second"]


def test_pairs_of_attention_and_mlp_in_nested_lists():
    model = nn.Module()
    model.layers = nn.ModuleList(nn.ModuleList([models.Attention(), nn.Linear(16, 16)]) for _ in range(3))
    assert names(discover(model)) == ["layers.0", "layers.1", "layers.2"]


def test_a_single_attention_module_is_one_layer():
    assert names(discover(models.Attention())) == [""]


def test_layers_without_attention_count_in_a_hybrid():
    model = nn.Module()
    model.layers = nn.ModuleList([nn.Linear(16, 16), models.Block(), nn.Linear(16, 16), models.Block()])
    found = discover(model)
    assert names(found) == [f"layers.{i}" for i in range(4)]
    assert [layer.q is not None for layer in found.layers] == [False, True, False, True]


def test_missing_heads_are_said_and_can_be_given():
    model = models.Model(layers=1)
    del model.layers[0].attn.num_heads
    assert discover(model).notes[0] == "layers.0.attn: the number of heads was not found; give heads="
    found = discover(model, heads=8, kv_heads=8)
    assert found.heads == 8 and found.layers[0].q.width == 2


def test_a_model_without_attention_says_so():
    assert discover(nn.Linear(2, 2)).notes == ["no transformer layers were found; give them with layers="]


def test_layers_and_projections_by_hand():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.asks, self.answers = nn.Linear(8, 8), nn.Linear(8, 8)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = Odd()

    model = nn.Module()
    model.stack = nn.ModuleList(Layer() for _ in range(2))
    found = discover(model, layers="stack", heads=2, q_proj="mix.asks", k_proj="mix.answers")
    assert found.notes == [] and found.layers[1].attention is model.stack[1].mix
    assert found.layers[1].q.module is model.stack[1].mix.asks
    assert discover(model, heads=2, q_proj="mix.asks", k_proj="mix.answers").layers[0].q is not None
    with pytest.raises(ValueError, match="'mix.nope'"):
        discover(model, layers="stack", heads=2, q_proj="mix.nope", k_proj="mix.answers")
    with pytest.raises(ValueError, match="sequence of modules"):
        discover(model, layers=[1, 2])


def test_names_by_hand_that_some_layers_lack():
    model = models.Model(layers=2)
    model.layers.append(nn.Linear(16, 16))
    found = discover(model, q_proj="attn.q_proj", k_proj="attn.k_proj")
    assert [layer.q is not None for layer in found.layers] == [True, True, False] and found.notes == []


def test_shapes_that_do_not_fit_are_said():
    model = models.Model(layers=1)
    note = discover(model, heads=3).notes[0]
    assert note.startswith("layers.0.attn: 16 query rows and 16 key rows do not divide into 3 heads")


def test_shared_projections_are_never_bound():
    model = models.Model(layers=2)
    model.layers[1].attn.q_proj = model.layers[0].attn.q_proj
    found = discover(model)
    assert "share their projections" in found.notes[0] and found.layers[0].q is None


def test_latent_attention_whose_parts_are_strange_is_measured_only():
    model = models.Model(layers=1)
    model.layers[0].attn.kv_b_proj = nn.Linear(2, 2)
    found = discover(model)
    assert found.attention == "mla" and found.layers[0].q is None and "latent attention" in found.notes[0]


@pytest.mark.parametrize("names,widths", [
    (("q_b_proj", "kv_b_proj"), ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")),  # DeepSeek.
    (("wq_b", "wkv_b"), ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")),  # Its own code, and torchtitan.
    (("linear_q_up_proj", "linear_kv_up_proj"), ("qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")),  # Megatron-LM.
])
def test_latent_attention_is_found_by_everybodys_names(names, widths):
    model = models.Model(layers=1)
    attn = nn.Module()
    attn.num_heads = 4
    attn.config = types.SimpleNamespace(**dict(zip(widths, (6, 4, 5))))
    for name, rows in zip(names, (4 * 10, 4 * 11)):
        setattr(attn, name, nn.Linear(8, rows))
    model.layers[0].attn = attn
    found = discover(model)
    layer = found.layers[0]
    assert (found.attention, found.heads, found.kv_heads, found.head_dim) == ("mla", 4, 4, 10)
    assert layer.q.starts == (0, 10, 20, 30) and (layer.q.width, layer.k.width) == (6, 6)
    assert layer.q.rope_starts == (6, 16, 26, 36) and layer.q.rope_width == 4
    assert layer.k.starts == (0, 11, 22, 33) and layer.k.rope_starts == ()
    attn.num_heads = 5
    found = discover(model)
    assert found.layers[0].q is None and "have [40, 44] rows, wanted [50, 55] for 5 heads" in found.notes[0]


@pytest.mark.parametrize("entries,expected", [(4, "per_head"), (16, "flattened")])
def test_query_key_norm_is_told_by_its_gain(entries, expected):
    model = models.Model(layers=1)
    model.layers[0].attn.q_norm = nn.LayerNorm(entries)
    found = discover(model)
    assert found.qk_norm == expected
    assert found.layers[0].q is None and "k_norm has no gain that is known" in found.notes[0]
    model.layers[0].attn.k_norm = nn.LayerNorm(entries)
    layer = discover(model).layers[0]
    assert layer.q_gain.flattened == layer.k_gain.flattened == (expected == "flattened")
    assert discover(models.Model()).qk_norm == "none"


class GemmaRMSNorm(nn.Module):
    pass


class OtherRMSNorm(nn.Module):
    pass


class TransformerEngineLayerNorm(nn.Module):
    def __init__(self, zero_centered_gamma):
        super().__init__()
        self.zero_centered_gamma = zero_centered_gamma


@pytest.mark.parametrize("norm,gain", [
    (nn.LayerNorm(16), "plain"), (GemmaRMSNorm(), "unit_offset"), (OtherRMSNorm(), None),
    (TransformerEngineLayerNorm(True), "unit_offset"), (TransformerEngineLayerNorm(False), "plain")])
def test_a_norms_gain_is_declared_as_far_as_its_class_tells(fake_library, norm, gain):
    model = models.Model(layers=1)
    model.layers[0].norm = norm
    for name, child in list(model.layers[0].named_children()):
        if "norm" in type(child).__name__.lower() and child is not norm:
            setattr(model.layers[0], name, nn.Identity())
    gyrostat.watch(model, torch.optim.SGD(model.parameters(), 0.1), address="fake:1").close()
    assert fake_library.last.model.get("norm_gain") == gain
