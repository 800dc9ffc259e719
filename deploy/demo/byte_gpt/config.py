"""What one arm of the demonstration trains."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Config:
    """A small pre-LN transformer and its optimizer.

    The defaults are the runaway: Muon at a learning rate five times too high, with no normalisation of queries and
    keys. The largest attention logit passes 100 near step 90 and 800 before step 400, and the loss ends some 0.15
    nats too high.
    """

    seed: int = 0
    steps: int = 400
    layers: int = 4
    width: int = 32
    heads: int = 4
    kv_heads: int = 4  # Fewer than `heads`: grouped-query attention.
    context: int = 64  # Bytes a sequence.
    batch: int = 16  # Sequences a step.
    fused_qkv: bool = False
    bias: bool = False  # In the attention projections.
    dtype: str = "float32"  # Of the weights: float32 or bfloat16.
    optimizer: str = "muon"  # Of the weight matrices: muon or adamw.
    lr: float = 0.1  # Of the weight matrices.
    lr_rest: float = 0.003  # Of embeddings, norms, biases and the output head; always AdamW.
    warmup: int = 50  # Steps of linear warm-up; constant after.

    def __post_init__(self):
        if self.width % self.heads or self.heads % self.kv_heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}, "
                             f"and heads a multiple of kv_heads {self.kv_heads}")
        if self.optimizer not in ("muon", "adamw"):
            raise ValueError(f"optimizer is {self.optimizer!r}, wanted 'muon' or 'adamw'")
