"""Run: one run in full. Its first row says whether it is healthy; below, what moved first, and where."""
from functools import partial

from . import build
from .build import (AMBER, BLUE, GREEN, ONE_RUN, RED, Board, Query, annotations, heat_map, lines, query_variable,
                    run_variable, stat, table, timeline)

selector = partial(build.selector, run=ONE_RUN)
ALL = selector()


def value(metric, *matchers):
    return f"max({metric}{selector(*matchers)})"


def by_layer(metric, *matchers):
    return Query(f"max by (layer) ({metric}{selector(*matchers)})", "{{layer}}")


def first_row():
    def open_findings(severity):
        return "sum(gyrostat_finding_active" + selector(f'severity="{severity}"') + ")"
    return [
        (3, stat("Step", "Optimizer step of the newest report.", value("gyrostat_step"))),
        (3, stat("Last report", "How long ago the newest report came.",
                 f"time() - {value('gyrostat_last_report_timestamp_seconds')}", "s",
                 ((None, GREEN), (300, AMBER), (1800, RED)))),
        (3, stat("Loss", "Nats per token.", value("gyrostat_loss"), decimals=3)),
        (3, stat("Critical findings", "Open now: somebody should act.", open_findings("critical"),
                 steps=((None, GREEN), (1, RED)))),
        (3, stat("Warnings", "Open now.", open_findings("warning"), steps=((None, GREEN), (1, AMBER)))),
        (3, stat("Spike score", "The larger of the loss's and the gradient norm's.",
                 value("gyrostat_spike_score_percent"), "percent", ((None, GREEN), (0.1, AMBER), (0.4, RED)))),
        (3, stat("Largest logit", "The worst head's.", value("gyrostat_attention_logit_top", 'slot="1"'),
                 steps=((None, GREEN), (100, AMBER), (1000, RED)))),
        (3, stat("Headroom", "Steps until the residual stream outgrows its dtype, at the soonest. +Inf: it does not "
                 "grow. Empty: its format cannot overflow.", value("gyrostat_headroom_steps"),
                 steps=((None, RED), (200, AMBER), (1000, GREEN)))),
    ]


def loss_and_gradient():
    return [
        (9, [(12, lines("Loss over time", "Training loss, nats per token.", [Query(value("gyrostat_loss"), "loss")])),
             (12, lines("Gradient norm", "Global L2 norm before clipping, loss scale divided out.",
                        [Query(value("gyrostat_grad_norm"), "gradient norm")], log=True))]),
        (7, [(8, lines("Learning rate", "As used in the step.", [Query(value("gyrostat_learning_rate"), "rate")],
                       "sci")),
             (8, lines("Spike score over time", "Share of recent steps that are outliers, by signal.",
                       [Query(f"max by (signal) (gyrostat_spike_score_percent{ALL})", "{{signal}}")], "percent",
                       steps=((None, GREEN), (0.4, RED)))),
             (8, lines("Reports", "Taken, and dropped by the client.",
                       [Query(f"sum(rate(gyrostat_reports_total{ALL}[$__rate_interval]))", "taken"),
                        Query(f"sum(rate(gyrostat_reports_dropped_total{ALL}[$__rate_interval]))", "dropped")],
                       "cps"))]),
    ]


def attention():
    top = "gyrostat_attention_logit_top"
    columns = [("Largest logit", f"max by (slot) ({top}{ALL})"), ("Layer", f"max by (slot) ({top}_layer{ALL})"),
               ("Head", f"max by (slot) ({top}_head{ALL})")]
    buckets = f"sum by (le) (increase(gyrostat_attention_logit_bucket{ALL}[$__rate_interval]))"
    return [
        (9, [(12, heat_map("Largest attention logit, layer × time", "The largest of each layer's heads. A row that "
                           "brightens before the others moved first.", by_layer("gyrostat_attention_logit_max"))),
             (12, heat_map("All heads, distribution", "How many heads reported which logits.",
                           Query(buckets, "{{le}}", "heatmap"), distribution=True, axis="logit"))]),
        (9, [(10, lines("Worst heads", "The eight largest logits, slot 1 the worst; the table says which they are.",
                        [Query(f"max by (slot) ({top}{ALL})", "slot {{slot}}")], log=True,
                        steps=((None, GREEN), (100, AMBER), (1000, RED)))),
             (7, table("Which heads these are", "Layer and head of the worst heads now.", columns, ["slot"])),
             (7, lines("QK-Clip", "Smallest factor by which a head's logits were scaled in all; 1 where none was.",
                       [Query(value("gyrostat_qk_clip_scale_min"), "factor")], log=True, max=1))]),
    ]


def depth():
    site = 'site="$site"'
    return [
        (9, [(12, heat_map("Hidden RMS, layer × time", "Root mean square of the hidden state at the chosen site.",
                           by_layer("gyrostat_hidden_rms", site))),
             (12, heat_map("Gradient norm, layer × time", "L2 norm of each layer's gradient.",
                           by_layer("gyrostat_layer_grad_norm")))]),
        (9, [(12, heat_map("Largest entry of the stream, layer × time", "The largest magnitude in the residual "
                           "stream; fp16 ends at 65504.", by_layer("gyrostat_hidden_absmax", 'site="residual"'))),
             (12, lines("Headroom over time", "Steps until the residual stream outgrows its dtype, at the soonest; no "
                        "line where it does not grow or cannot overflow.",
                        [Query(value("gyrostat_headroom_steps") + " < +Inf", "steps")], log=True,
                        steps=((None, RED), (200, AMBER), (1000, GREEN))))]),
    ]


def findings():
    states = [{"type": "value", "options": {"0": {"text": "quiet", "color": "transparent", "index": 0},
                                            "1": {"text": "info", "color": BLUE, "index": 1},
                                            "2": {"text": "warning", "color": AMBER, "index": 2},
                                            "3": {"text": "critical", "color": RED, "index": 3}}}]

    def at(severity, level):
        active = "gyrostat_finding_active" + selector(f'severity="{severity}"')
        return f"max by (detector) ({active} > bool 0) * {level}"

    worst = (f"max by (detector) ({at('critical', 3)} > 0 or {at('warning', 2)} > 0 or {at('info', 1)} > 0)")
    return [
        (9, [(14, timeline("What is open", "The worst open finding of each detector; `gyrostatctl findings RUN` says "
                           "what each means.", [Query(worst, "{{detector}}")], states)),
             (10, lines("Findings that began", "By detector, of any severity.",
                        [Query(f"sum by (detector) (increase(gyrostat_findings_total{ALL}[$__rate_interval])) > 0",
                               "{{detector}}")], bars=True))]),
    ]


SITE = query_variable("site", "Site", "Where the hidden state is taken.",
                      'label_values(gyrostat_hidden_rms{job=~"$job",run="$run"}, site)', multi=False)

RUN = Board(
    "gyrostat-run", "gyrostat / Run", "One run: is it healthy, what moved first, and where?",
    [run_variable(multi=False), SITE],
    [("Is this run healthy?", [(4, first_row())]),
     ("Loss and gradient", loss_and_gradient()),
     ("Findings", findings()),
     ("Attention", attention()),
     ("Depth", depth())],
    annotations(ONE_RUN),
    {"Last report": ["GyrostatRunSilent"], "Loss over time": ["GyrostatDiverging", "GyrostatSpikeNotHealing"],
     "Gradient norm": ["GyrostatSpikeNotHealing", "GyrostatNonFinite"],
     "Spike score over time": ["GyrostatSpikeScoreHigh"], "Reports": ["GyrostatReportsDropped"],
     "What is open": ["GyrostatCriticalFinding", "GyrostatReplicasDiffer"],
     "Largest attention logit, layer × time": ["GyrostatLogitsExploding", "GyrostatLogitsForecast"],
     "QK-Clip": ["GyrostatControlLoop"], "Largest entry of the stream, layer × time": ["GyrostatOverflowNear"],
     "Headroom over time": ["GyrostatHeadroomLow"]})
