"""What a learning-rate scheduler of torch's will do, as far as it can be read: kind, peak, warm-up, total steps.

A LambdaLR (the warm-ups of Hugging Face) is a function that nobody can look into: give watch() schedule= by hand.
"""

from torch.optim import lr_scheduler


def read(scheduler):
    """{field of gyro_model: value}; {} where the scheduler cannot be read."""
    try:
        return _read(scheduler)
    except (AttributeError, IndexError, TypeError):  # Another torch keeps them under other names.
        return {}


def _read(scheduler):
    if isinstance(scheduler, lr_scheduler.SequentialLR):
        if len(scheduler._schedulers) != 2:
            return {}
        warming, then = scheduler._schedulers
        warmup = scheduler._milestones[0]
        if not (isinstance(warming, lr_scheduler.LinearLR) and warming.end_factor == 1 and warming.total_iters == warmup
                and warming.start_factor < 1):
            return {}
        spec = _read_plain(then)
        if spec:
            spec["warmup_steps"] = warmup
            spec["total_steps"] = spec["total_steps"] and spec["total_steps"] + warmup
        return spec
    if isinstance(scheduler, lr_scheduler.LinearLR) and scheduler.end_factor == 1 and scheduler.start_factor < 1:
        return {**_spec(scheduler, "const", None), "warmup_steps": scheduler.total_iters}
    return _read_plain(scheduler)


def _read_plain(scheduler):
    """Of one without a warm-up."""
    if isinstance(scheduler, lr_scheduler.CosineAnnealingLR):
        return _spec(scheduler, "cosine", scheduler.T_max)
    if isinstance(scheduler, lr_scheduler.LinearLR) and scheduler.end_factor < scheduler.start_factor == 1:
        return _spec(scheduler, "linear", scheduler.total_iters)
    if isinstance(scheduler, getattr(lr_scheduler, "PolynomialLR", ())) and scheduler.power == 1:
        return _spec(scheduler, "linear", scheduler.total_iters)
    if isinstance(scheduler, lr_scheduler.ConstantLR) and scheduler.factor == 1:
        return _spec(scheduler, "const", None)
    return {}


def _spec(scheduler, kind, total):
    return {"schedule_kind": kind, "schedule_peak": float(scheduler.base_lrs[0]), "warmup_steps": 0,
            "total_steps": total}
