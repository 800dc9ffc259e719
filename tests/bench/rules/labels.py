"""What is right for each recorded run: the labels of $GYROSTAT_RUNS and $GYROSTAT_CORPUS, and of make_runs.py.

`visible` is the step from which the loss itself shows it, as the notes beside those folders say, or as `visible_step`
finds it. Half of the recorded runs, chosen by a hash of their names, is held out from tuning; what make_runs.py trains
was never seen by it.
"""
import dataclasses
import hashlib
import math


@dataclasses.dataclass(frozen=True)
class Label:
    """`kind` is unstable, healthy or trap; `scenario` groups runs of one failure; `quiet` says from where to where a
    trap may be spoken of."""

    kind: str
    scenario: str = ""
    visible: int = None
    quiet: tuple = None


def _unstable(scenario, visible=None):
    return Label("unstable", scenario, visible)


# By the name of the file without its ending. Steps from experiments.md §1-§5 and from the README of the runs.
RUNS = {
    "s1_gqa.none": _unstable("logits", 235), "s1c_qkx.x30": _unstable("logits", 235),
    "s1m_delay_s0.none": _unstable("logits", 235), "s1m_long.none_s0": _unstable("logits", 235),
    "s2_auto.base_s2": _unstable("warm-up", 134), "s2_base.w20_s0": _unstable("warm-up", 105),
    "s2_base.w20_s1": _unstable("warm-up", 105), "s3_deep12.post_s0": _unstable("warm-up", 134),
    "s7_core.base_s2": _unstable("slow", 404), "s7b_ramp.s0": _unstable("ramp", 409),
    "s8_fp16.lr.16_s0": _unstable("overflow", 258), "s8_llama.none_s0": _unstable("overflow", 189),
}
HEALTHY_PREFIXES = ("s6_", "s2_base.w300")
TRAP = Label("trap", quiet=(250, 345))

# Public logs, by file name; a run of a file that holds several is "file:run". LABELS.md has the events.
CORPUS = {
    "megatron_grad_spikes_srun.out": _unstable("burst", 1602),
    "megatron_bigscience_3d_blowup.out": _unstable("explosion", 32),
    "nanochat_sft_nan_step9.log": _unstable("explosion", 9),
    "algoperf_deepspeech_inf_grads.csv": _unstable("burst", 180100),
    "algoperf_wmt_diverged.tfevents": _unstable("creep", 32413),
    "gptopt_columns_adamw_lr0.02_diverged.json": _unstable("creep", 940),
    "algoperf_absl_nan_step63.log": _unstable("explosion", 60),
    "llmc_stdout_nan_from_step1.log": _unstable("dead", 1),
    "automodel_nan_tokens.jsonl": _unstable("dead", 0),
    "nanogpt_wandb_output_late_spikes.log": _unstable("burst", 1256),
    "wandb_sweep_attention_logit_explosion.csv:g6rdipcd": _unstable("logits", 41),
    "wandb_sweep_attention_logit_explosion.csv:gz1gpya0": _unstable("logits", 19),
    "wandb_sweep_attention_logit_explosion.csv:wwmr8tw9": _unstable("logits", 5),
    "llamafactory_trainer_log_stable.jsonl": Label("healthy"),
    "llmc_mainlog_stable.log": Label("healthy"),
    "modded_nanogpt_muon_data_spikes.txt": Label("healthy"),
    "instructllama_sft_stable.tfevents": Label("healthy"),
    "deepspeed_bf16_loss_crlf.csv": Label("trap", quiet=(0, 50)),
    "fairseq_json_string_numbers.log": Label("healthy"),
    "megatron_golden_string_nan.json": Label("healthy"),
    "deepspeed_chat_sft_overflow.log": Label("healthy"),
    "wandb_sweep_attention_logit_explosion.csv:6pzcpq0n": Label("healthy"),
    "wandb_sweep_attention_logit_explosion.csv:2mgacfgs": Label("healthy"),
}


def of_run(stem):
    """The label of a file of $GYROSTAT_RUNS; None for rescued runs, which are not scored."""
    if stem.startswith(HEALTHY_PREFIXES):
        return Label("healthy")
    return TRAP if stem.startswith("s5_") else RUNS.get(stem)


def of_trained(name, recipe, losses):
    """The label of a run of make_runs.py; `losses` are (step, loss)."""
    if recipe.label == "healthy":
        return Label("healthy")
    if recipe.label == "trap":
        return Label("trap", quiet=(min(recipe.bad), max(recipe.bad) + 95))
    scenario = {"logits": "logits", "warmup": "warm-up", "slow": "slow", "ramp": "ramp", "overflow": "overflow"}
    return Label("unstable", scenario[name.split("_")[0]], visible_step(losses))


def visible_step(losses):
    """The first step at which the loss is not finite, or the mean of 20 has been 0.3 over its best for 20 steps. The
    last step where neither happens: such a run ends too high without having risen."""
    best, above, window = math.inf, 0, []
    for step, loss in losses:
        if not math.isfinite(loss):
            return step
        window = (window + [loss])[-20:]
        if len(window) < 20:
            continue
        mean = sum(window) / 20
        best = min(best, mean)
        above = above + 1 if mean > best + 0.3 else 0
        if above == 20:
            return step
    return losses[-1][0]


def held_out(name):
    """The half that no threshold may be read off."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 1
