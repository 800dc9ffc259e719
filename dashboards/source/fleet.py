"""Fleet: all runs at once. Its first row says whether somebody should look at something."""
from .build import (AMBER, GREEN, RED, Board, Query, annotations, lines, run_variable, selector, stat, table,
                    to_run)

ALL = selector()


def by_run(expr):
    return f"max by (run) ({expr})"


def findings(severity):
    return "max by (run) (gyrostat_finding_active" + selector(f'severity="{severity}"') + " > 0)"


# Proposals nobody answered: what the alert GyrostatInterventionWaiting looks at, over the same half hour.
def unanswered(select=selector):
    def grown(states):
        return "sum(increase(gyrostat_interventions_total" + select(f'state=~"{states}"') + "[30m]))"
    return f'clamp_min(round({grown("proposed")} - {grown("approved|rejected")}), 0)'


def first_row():
    alarm = ((None, GREEN), (1, RED))
    return [
        (4, stat("Runs that report", "Runs with a report in the last five minutes.",
                 f"count(time() - gyrostat_last_report_timestamp_seconds{ALL} < 300) or vector(0)")),
        (4, stat("Runs that fell behind", "Runs that are still shown but have not reported for five minutes: silent, "
                 "or ended a moment ago.",
                 f"count(time() - gyrostat_last_report_timestamp_seconds{ALL} >= 300) or vector(0)",
                 steps=((None, GREEN), (1, AMBER)))),
        (4, stat("Runs in danger", "Runs with an open critical finding: divergence, lasting NaN, logits without bound.",
                 f'count({findings("critical")}) or vector(0)', steps=alarm)),
        (4, stat("Runs with a warning", "Runs with an open finding of severity warning.",
                 f'count({findings("warning")}) or vector(0)', steps=((None, GREEN), (1, AMBER)))),
        (4, stat("Proposals without an answer", "Interventions proposed in the last half hour, less those approved or "
                 "rejected in it. `gyrostatctl approve ID` answers one.", unanswered(),
                 steps=((None, GREEN), (1, AMBER)))),
        (4, stat("Daemons that answer", "gyrostatd processes that Prometheus can scrape.",
                 'count(up{job=~"$job"} == 1) or vector(0)', steps=((None, RED), (1, GREEN)))),
    ]


def overview():
    columns = [
        ("Step", by_run(f"gyrostat_step{ALL}")),
        ("Seconds since a report", by_run(f"time() - gyrostat_last_report_timestamp_seconds{ALL}")),
        ("Loss", by_run(f"gyrostat_loss{ALL}")),
        ("Gradient norm", by_run(f"gyrostat_grad_norm{ALL}")),
        ("Learning rate", by_run(f"gyrostat_learning_rate{ALL}")),
        ("Spike score, %", by_run(f"gyrostat_spike_score_percent{ALL}")),
        ("Largest logit", by_run("gyrostat_attention_logit_top" + selector('slot="1"'))),
        ("Headroom, steps", by_run(f"gyrostat_headroom_steps{ALL}")),
        ("Open findings", f"sum by (run) (gyrostat_finding_active{ALL})"),
        ("Interventions applied",
         "sum by (run) (gyrostat_interventions_total" + selector('state="applied"') + ")"),
    ]
    made = table("Every run", "The newest report of every run. Headroom: steps until fp16 overflows at the soonest, "
                 "empty where the run's format cannot overflow.", columns, ["run"])
    return to_run(made, "__data.fields.run")


def run_lines(*arguments, **more):
    return to_run(lines(*arguments, **more), "__field.labels.run")


def top(expr):
    """Panels show 16 lines at most."""
    return f"topk(16, {expr})"


def what_runs_do():
    def one(metric, *matchers):
        return [Query(top(by_run(f"gyrostat_{metric}" + selector(*matchers))), "{{run}}")]
    return [
        (9, [(12, run_lines("Loss", "Training loss, nats per token; the 16 highest.", one("loss"))),
             (12, run_lines("Gradient norm", "Global L2 norm before clipping; the 16 highest.", one("grad_norm"),
                            log=True))]),
        (9, [(12, run_lines("Spike score", "Share of recent steps that are outliers of loss or gradient norm; healthy "
                            "runs stay under 0.1 %, the line at 0.4 % is where a warning begins.",
                            one("spike_score_percent"), "percent", steps=((None, GREEN), (0.4, RED)))),
             (12, run_lines("Largest attention logit", "The worst head of each run; from 1,000 on the loss suffers.",
                            one("attention_logit_top", 'slot="1"'), log=True, steps=((None, GREEN), (1000, RED))))]),
    ]


FLEET = Board(
    "gyrostat-fleet", "gyrostat / Fleet", "All runs at once: which one needs somebody?", [run_variable(multi=True)],
    [
        ("Does anything need somebody?", [(4, first_row()), (9, [(24, overview())])]),
        ("What the runs do", what_runs_do()),
        ("What was found and done", [
            (9, [(8, lines("Findings that began", "New findings by detector, warnings and worse.",
                           [Query("sum by (detector) (increase(gyrostat_findings_total" +
                                  selector('severity=~"warning|critical"') + "[$__rate_interval])) > 0",
                                  "{{detector}}")], bars=True)),
                 (8, lines("Interventions", "Intents by the state they reached.",
                           [Query("sum by (state) (increase(gyrostat_interventions_total" + ALL +
                                  "[$__rate_interval])) > 0", "{{state}}")], bars=True)),
                 (8, lines("Reports", "Reports taken, and reports that clients had to drop.",
                           [Query(f"sum(rate(gyrostat_reports_total{ALL}[$__rate_interval]))", "taken"),
                            Query(f"sum(rate(gyrostat_reports_dropped_total{ALL}[$__rate_interval]))", "dropped")],
                           "cps"))]),
        ]),
    ], annotations())
