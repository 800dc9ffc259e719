"""A byte-level GPT small enough to train on one CPU core, and a recipe that makes its attention logits run away.

The learning rate of the recipe is too high on purpose: this is the patient of the demonstration, not advice.
It knows nothing of gyrostat; whoever wants it watched hands `train` a monitor.
"""

from byte_gpt.trainer import History, StepResult, Trainer, train
from byte_gpt.config import Config

__all__ = ["Config", "History", "StepResult", "Trainer", "train"]
