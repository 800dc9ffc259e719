"""Interventions: what was proposed, done and achieved, and what the run looked like before and after."""
from .build import AMBER, GREEN, RED, Board, Query, annotations, lines, run_variable, selector, stat, table
from .fleet import unanswered

ALL = selector()
FAILED = 'state=~"refused|foreign|lost"'


def reached(*matchers, metric="interventions"):
    return f"sum(gyrostat_{metric}_total{selector(*matchers)})"


def outcome(name):
    return reached(f'outcome="{name}"', metric="intervention_outcomes")


def first_row():
    good, bad, open_ = ((None, GREEN),), ((None, GREEN), (1, RED)), ((None, GREEN), (1, AMBER))
    return [
        (4, stat("Without an answer", "Proposed in the last half hour, less those approved or rejected in it.",
                 unanswered(), steps=open_)),
        (4, stat("Applied", "Intents of which an order was applied.", reached('state="applied"'))),
        (4, stat("Effective", "Judged afterwards to have done what they were for.", outcome("effective"), steps=good)),
        (4, stat("Ineffective", "Judged to have changed nothing; two of a kind disable it.", outcome("ineffective"),
                 steps=open_)),
        (4, stat("Harmful", "Judged to have made it worse.", outcome("harmful"), steps=bad)),
        (4, stat("Failed", "Refused by the job, lost, or meant for another attempt.", reached(FAILED), steps=bad)),
    ]


def before_and_after():
    top = "max by (run) (gyrostat_attention_logit_top" + selector('slot="1"') + ")"
    return [
        (9, [(12, lines("Largest attention logit", "What QK-Clip is to hold; the marks are interventions.",
                        [Query(f"topk(16, {top})", "{{run}}")], log=True)),
             (12, lines("Loss", "Nats per token; a right intervention leaves no mark on it.",
                        [Query(f"topk(16, max by (run) (gyrostat_loss{ALL}))", "{{run}}")]))]),
        (9, [(12, lines("QK-Clip", "Smallest factor by which a head's logits were scaled in all. A line that keeps "
                        "falling is a tug of war with the optimizer.",
                        [Query(f"bottomk(16, min by (run) (gyrostat_qk_clip_scale_min{ALL}))", "{{run}}")], log=True,
                        max=1)),
             (12, lines("Learning rate", "Where an intervention changes it.",
                        [Query(f"topk(16, max by (run) (gyrostat_learning_rate{ALL}))", "{{run}}")], "sci"))]),
    ]


def record():
    def states(name):
        """Kinds of which the run has had none make no row."""
        return ("sum by (run, kind) (gyrostat_interventions_total" + selector(f'state="{name}"') + ")"
                f" and sum by (run, kind) (gyrostat_interventions_total{ALL}) > 0")
    columns = [(name.capitalize(), states(name)) for name in
               ("proposed", "approved", "rejected", "applied", "judged", "refused", "expired", "withdrawn", "lost")]
    return [
        (9, [(24, table("By run and kind", "Intents, not orders, by the states they have reached since the run began; "
                        "`gyrostatctl interventions RUN` lists each with its reason.", columns, ["run", "kind"]))]),
        (9, [(12, lines("What happened when", "Intents by the state they reached.",
                        [Query("sum by (kind, state) (increase(gyrostat_interventions_total" + ALL +
                               "[$__rate_interval])) > 0", "{{kind}} {{state}}")], bars=True)),
             (12, lines("What they turned out to do", "Judged over the steps that follow.",
                        [Query("sum by (kind, outcome) (increase(gyrostat_intervention_outcomes_total" + ALL +
                               "[$__rate_interval])) > 0", "{{kind}} {{outcome}}")], bars=True))]),
    ]


INTERVENTIONS = Board(
    "gyrostat-interventions", "gyrostat / Interventions", "What was proposed, done and achieved.",
    [run_variable(multi=True)],
    [("Does a proposal wait, did one go wrong?", [(4, first_row())]),
     ("Before and after", before_and_after()),
     ("The record", record())],
    annotations(),
    {"Without an answer": ["GyrostatInterventionWaiting"], "Harmful": ["GyrostatInterventionHarmful"],
     "Failed": ["GyrostatInterventionFailed"]})
