"""What is right for each recorded run: the labels of $GYROSTAT_RUNS and $GYROSTAT_CORPUS, and of make_runs.py.

`visible` is the step from which the loss itself shows it, as the notes beside those folders say, or as `visible_step`
finds it. Limits may be read off all recorded runs and logs and off the seeds make_runs.TUNING_SEEDS. The other seeds of
make_runs.py are held out: trained after the limits stood, in other shapes, and scored once.
"""
import dataclasses
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


def of_trained(name, recipe, losses, twin):
    """The label of a run of make_runs.py; `losses` are (step, loss), `twin` those of the healthy run of the same seed.
    None where what was to fail did not: such a run ends less than 0.2 above its twin, or never spiked."""
    if recipe.label == "healthy":
        return Label("healthy")
    if recipe.label == "trap":
        return Label("trap", quiet=(min(recipe.bad), max(recipe.bad) + 95))
    kind = name.split("_")[0]
    if kind == "spike":
        at = recipe.glitch[0]
        before = sum(loss for _, loss in losses[at - 20:at]) / 20
        jumped = any(not loss <= 1.3 * before for _, loss in losses[at:at + 10])
        return Label("unstable", "_".join(name.split("_")[:2]), at + 1) if jumped else None
    mean = [sum(loss for _, loss in run[-50:]) / 50 for run in (losses, twin)]
    if mean[0] < mean[1] + FAILED_NATS:
        return None
    scenario = {"logits": "logits", "warmup": "warm-up", "slow": "slow", "ramp": "ramp", "overflow": "overflow"}
    return Label("unstable", scenario[kind], visible_step(losses, twin))


FAILED_NATS = 0.2  # So much above its healthy twin, a run has failed.


def means(losses):
    return [sum(loss for _, loss in losses[i - 20:i]) / 20 for i in range(20, len(losses) + 1)]


def visible_step(losses, twin):
    """The first step at which the loss is not finite; or the mean of 20 has been 0.3 over its best for 20 steps; or it
    has come to stay 0.2 above that of the healthy twin: such a run ends too high without having risen."""
    stays = len(losses) - 1
    mine, healthy = means(losses), means(twin)
    healthy += healthy[-1:] * (len(mine) - len(healthy))
    for i in range(len(mine) - 1, -1, -1):
        if mine[i] < healthy[i] + FAILED_NATS:
            break
        stays = i + 19
    best, above = math.inf, 0
    for i, (_, loss) in enumerate(losses):
        if not math.isfinite(loss) or i == stays:
            return losses[i][0]
        if i >= 19:
            best = min(best, mine[i - 19])
            above = above + 1 if mine[i - 19] > best + 0.3 else 0
            if above == 20:
                return losses[i][0]
    return losses[-1][0]
