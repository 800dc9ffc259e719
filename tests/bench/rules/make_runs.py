#!/usr/bin/python3
"""Trains the labelled runs of the benchmark: `make_runs.py FOLDER [NAME …]` writes NAME.jsonl there, gyrostat JSONL.

Small byte-level transformers on the text of byte_gpt.corpus, one recipe a label; NAME may be a part of names: `_s31`.
What is already there is kept, so that a broken session goes on.
"""
import dataclasses
import json
import math
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "deploy/demo"))
from byte_gpt import corpus, muon  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One run. `label` is unstable, healthy or trap."""

    label: str
    placement: str = "pre"
    layers: int = 4
    width: int = 48
    heads: int = 4
    context: int = 32
    batch: int = 8
    optimizer: str = "adamw"
    lr: float = 0.003
    warmup: int = 50
    steps: int = 500
    seed: int = 11
    decay: bool = False            # Linear to 0.
    fp16_stream: bool = False
    bad: tuple = ()                # Steps whose batch is random bytes.
    changes: tuple = ()            # (step, batch, context).
    glitch: tuple = ()             # (step, steps, factor): the rate is that much too high for so long.
    resumes: tuple = ()            # Steps at which the optimizer's state is lost and a new attempt begins.


# Seeds that limits may be read off, and the shapes of those that none may: whoever changes a limit after having scored
# the second trains others.
TUNING_SEEDS = (21, 22)
HELD_OUT = {31: {"layers": 3, "width": 64, "heads": 2, "context": 48},
            32: {"layers": 5, "width": 40, "heads": 5, "context": 32, "batch": 10},
            33: {"layers": 4, "width": 56, "heads": 7, "context": 24, "batch": 12}}


def recipes():
    """Name → Recipe; the names begin with what goes wrong."""
    made = {}
    for seed in TUNING_SEEDS:
        made.update(recipes_of(seed, {}, 6))
    for seed, shape in HELD_OUT.items():
        made.update(recipes_of(seed, shape, shape["layers"] + 3))
    return made


def recipes_of(seed, shape, deep):
    """The scenarios in one shape. `deep` layers make the slow divergence of post-norm."""
    unstable = {
        "logits_muon": {"optimizer": "muon", "lr": 0.1, "steps": 450},
        "warmup_post": {"placement": "post", "lr": 0.01, "warmup": 30, "steps": 400},
        "slow_post": {"placement": "post", "layers": deep, "lr": 0.012, "warmup": 150, "steps": 600},
        "overflow": {"optimizer": "muon", "lr": 0.12, "fp16_stream": True, "steps": 400},
        "ramp": {"lr": 0.3, "warmup": 900, "steps": 500},
        "spike_heals": {"steps": 350, "glitch": (200, 1, 30.0)},
        "spike_stays": {"steps": 350, "glitch": (200, 5, 100.0)},
    }
    healthy = {
        "healthy_pre": {"steps": 400},
        "healthy_post": {"placement": "post", "warmup": 200, "lr": 0.002, "steps": 400},
        "healthy_decay": {"decay": True, "steps": 400},
        "healthy_changes": {"steps": 450, "changes": ((150, 16, 32), (250, 8, 64), (350, 8, 32))},
        "healthy_resume": {"steps": 400, "resumes": (200,)},
        "healthy_muon": {"optimizer": "muon", "lr": 0.02, "steps": 400},
    }
    trap = {"batch1": {"bad": (200,), "steps": 350}, "batch10": {"bad": tuple(range(200, 210)), "steps": 350}}
    return {f"{name}_s{seed}": Recipe(label, **{"seed": seed, **shape, **settings})
            for label, group in (("unstable", unstable), ("healthy", healthy), ("trap", trap))
            for name, settings in group.items()}


class Block(nn.Module):
    """Attention and MLP around a stream, normalised before (pre) or after (post); keeps what a report needs."""

    def __init__(self, recipe):
        super().__init__()
        self.recipe = recipe
        width = recipe.width
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.seen = {}

    def attend(self, x):
        """The attention branch; notes largest logits and mean row entropies per head."""
        batch, tokens, width = x.shape
        heads = self.recipe.heads
        q, k, v = (part.view(batch, tokens, heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, -1))
        mask = torch.full((tokens, tokens), float("-inf")).triu(1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width / heads) + mask
        weights = scores.softmax(-1)
        with torch.no_grad():
            self.seen["attn_logit_max"] = scores.amax((0, 2, 3)).tolist()
            rows = -(weights * weights.clamp_min(1e-30).log()).sum(-1)
            self.seen["attn_entropy"] = rows.mean((0, 2)).tolist()
        return self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, width))

    def stream(self, x):
        """The residual stream, in fp16 where the recipe says so."""
        return x.half().float() if self.recipe.fp16_stream else x

    def forward(self, x):
        attn_norm, mlp_norm = self.norms
        if self.recipe.placement == "post":
            x = attn_norm(self.stream(x + self.attend(x)))
            x = mlp_norm(self.stream(x + self.down(F.relu(self.up(x)))))
        else:
            x = self.stream(x + self.attend(attn_norm(x)))
            x = self.stream(x + self.down(F.relu(self.up(mlp_norm(x)))))
        with torch.no_grad():
            self.seen["hidden_absmax"] = x.abs().max().item()
            self.seen["hidden_ms"] = x.pow(2).mean().item()
        return x


class Model(nn.Module):
    def __init__(self, recipe):
        super().__init__()
        self.embedding = nn.Embedding(256, recipe.width)
        self.positions = nn.Embedding(128, recipe.width)
        self.blocks = nn.ModuleList(Block(recipe) for _ in range(recipe.layers))
        self.norm = nn.LayerNorm(recipe.width)
        self.head = nn.Linear(recipe.width, 256, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_optimizer(model, recipe):
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.98), weight_decay=0)
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return muon.MuonWithAdamW([{"params": matrices, "lr": recipe.lr, "muon": True},
                               {"params": rest, "lr": 0.003, "muon": False}])


def schedule(recipe, step):
    """The share of the peak rate at this step."""
    share = min(1.0, (step + 1) / recipe.warmup)
    if recipe.glitch and recipe.glitch[0] <= step < recipe.glitch[0] + recipe.glitch[1]:
        share *= recipe.glitch[2]
    return share * (1 - step / recipe.steps) if recipe.decay else share


def number(value):
    """JSON has no NaN: gyrostat JSONL writes the names."""
    if math.isfinite(value):
        return float(f"{value:.5g}")
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def norm_of(parameters):
    return math.sqrt(sum(p.grad.pow(2).sum().item() for p in parameters if p.grad is not None))


def report(step, loss, rate, model):
    blocks = model.blocks
    layers = [norm_of(block.parameters()) for block in blocks]
    ends = norm_of(model.embedding.parameters()), norm_of(model.head.parameters())
    row = {"step": step, "loss": number(loss), "learning_rate": number(rate),
           "grad_norm": number(norm_of(model.parameters())), "layer_grad_norm": [number(v) for v in layers],
           "embedding_grad_norm": number(ends[0]), "output_grad_norm": number(ends[1])}
    for name in ("hidden_absmax", "hidden_ms"):
        row[name] = [number(block.seen[name]) for block in blocks]
    for name in ("attn_logit_max", "attn_entropy"):
        row[name] = [[number(v) for v in block.seen[name]] for block in blocks]
    return row


def header(name, recipe):
    model = {"layers": recipe.layers, "hidden_size": recipe.width, "heads": recipe.heads, "attention": "mha",
             "norm_kind": "layernorm", "norm_placement": recipe.placement, "qk_norm": "none",
             "optimizer": recipe.optimizer, "compute_dtype": "fp16" if recipe.fp16_stream else "fp32",
             "schedule": {"kind": "linear" if recipe.decay else "const", "peak": recipe.lr,
                          "warmup_steps": recipe.warmup, "total_steps": recipe.steps}}
    return {"gyrostat": 1, "run": name, "model": model,
            "attn_logit": {"kind": "exact", "scaled": True, "masked": True}}


def train(name, recipe, text, path):
    torch.manual_seed(recipe.seed)
    model = Model(recipe)
    optimizer = make_optimizer(model, recipe)
    peaks = [group["lr"] for group in optimizer.param_groups]
    batches = corpus.Batches(text, recipe.batch, recipe.context, recipe.seed)
    rows = [header(name, recipe)]
    for step in range(recipe.steps):
        for at, batch, context in recipe.changes:
            if at == step:
                batches = corpus.Batches(text, batch, context, recipe.seed + step)
        if step in recipe.resumes:
            optimizer = make_optimizer(model, recipe)
        inputs, targets = batches.next()
        if step in recipe.bad:
            inputs, targets = (torch.randint(0, 256, t.shape) for t in (inputs, targets))
        for group, peak in zip(optimizer.param_groups, peaks):
            group["lr"] = peak * schedule(recipe, step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        rows.append(report(step, loss.item(), optimizer.param_groups[0]["lr"], model))
        optimizer.step()
    part = path.with_suffix(".part")
    part.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    part.rename(path)


def main(arguments):
    if not arguments:
        print(__doc__)
        return 2
    torch.set_num_threads(1)
    folder = pathlib.Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    made = recipes()
    text = corpus.load()
    for name in made:
        if not any(part in name for part in arguments[1:] or [""]):
            continue
        path = folder / f"{name}.jsonl"
        if path.exists():
            continue
        train(name, made[name], text, path)
        print(f"{name}: {made[name].label}, {made[name].steps} steps", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
