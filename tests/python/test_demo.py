"""The demonstration's patient: ill in the way it says, and curable by an independent QK-Clip."""

import pytest
import torch

from byte_gpt import Config, Trainer, corpus, train
from byte_gpt.muon import MuonWithAdamW, orthogonalise
from reference_clip import ReferenceClip


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_logits_run_away_and_a_reference_clip_holds_them(kv_heads):
    config = Config(steps=120, kv_heads=kv_heads, batch=8, context=32)
    assert train(config).peak_logit > 100
    clips = []

    def clip(result, trainer):
        if not clips:
            clips.append(ReferenceClip(trainer.model, tau=30.0, delay=1))
        clips[0].boundary(result.logit_max)

    assert 30 < train(config, on_step=clip).peak_logit <= 75 and clips[0].clips > 50


def test_the_seed_decides_everything():
    losses = [train(Config(steps=5, seed=seed)).losses for seed in (3, 3, 4)]
    assert losses[0] == losses[1] != losses[2]


def test_taking_over_copies_weights_and_optimizer_state():
    one, two = (Trainer(Config(seed=seed, layers=1), record_logits=False) for seed in (0, 1))
    one.step()
    two.take_over(one)
    copied = [p.clone() for p in two.model.parameters()]
    assert all(torch.equal(p, q) for p, q in zip(one.model.parameters(), copied))
    one.step()
    assert all(torch.equal(p, q) for p, q in zip(two.model.parameters(), copied))
    moments = [[state["momentum"] for state in t.optimizer.state.values() if "momentum" in state] for t in (one, two)]
    assert moments[0] and not any(torch.equal(a, b) for a, b in zip(*moments))


def test_text_is_deterministic_and_plain_bytes():
    first, second = corpus.load(), corpus.load()
    assert torch.equal(first, second) and first.dtype == torch.uint8 and len(first) > 100_000


def test_newton_schulz_brings_singular_values_near_one():
    torch.manual_seed(0)
    for shape in ((3, 16, 16), (2, 32, 8), (2, 8, 32)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert 0.3 < values.min() and values.max() < 1.3


def test_adamw_half_equals_torchs():
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.ones(4, 3)) for _ in range(2))
    mine = MuonWithAdamW([{"params": [ours], "lr": 0.01}])
    reference = torch.optim.AdamW([theirs], lr=0.01, betas=(0.9, 0.98), weight_decay=0.0)
    for _ in range(10):
        ours.grad = torch.randn(4, 3)
        theirs.grad = ours.grad.clone()
        mine.step()
        reference.step()
    torch.testing.assert_close(ours, theirs)


def test_bad_shapes_are_refused():
    with pytest.raises(ValueError, match="width 32 must be a multiple of heads 5"):
        Config(heads=5)
    with pytest.raises(ValueError, match="optimizer is 'sgd'"):
        Config(optimizer="sgd")
