"""Panels, variables and dashboards as plain dictionaries: the few shapes we use of Grafana's many.

Every panel has a title, a description, a unit and its data source; every threshold begins at null. A layout is rows of
panels with their widths; a row's panels share its height.
"""
from dataclasses import dataclass, field

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
GREEN, AMBER, RED, BLUE, PURPLE = "green", "orange", "red", "blue", "purple"  # Grafana's own: safe in both themes.
# Where dashboards/runbooks is published. Prometheus itself does it with --web.user-assets, as compose.yaml asks it to;
# `dashboards/generate --runbooks URL` names another place.
RUNBOOKS = "http://127.0.0.1:9090/user"


# A run's name may hold what a regular expression reads otherwise; Grafana escapes it only where several can be chosen.
ANY_RUN, ONE_RUN, NO_RUN = ('run=~"$run"',), ('run="$run"',), ()


def selector(*matchers, run=ANY_RUN):
    """{job=~"$job",run=~"$run",…}: every query is held to what the variables say."""
    return "{" + ",".join(['job=~"$job"', *run, *matchers]) + "}"


@dataclass
class Query:
    expr: str
    legend: str = ""
    format: str = "time_series"
    instant: bool = False


def targets(queries):
    made = []
    for index, query in enumerate(queries):
        target = {"refId": chr(ord("A") + index), "datasource": DATASOURCE, "editorMode": "code", "expr": query.expr,
                  "format": query.format, "instant": query.instant, "range": not query.instant}
        if query.legend:
            target["legendFormat"] = query.legend
        made.append(target)
    return made


def thresholds(steps):
    """[(None, colour), (from, colour), …]; the first step has no beginning."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


def panel(kind, title, description, queries, unit, options, custom=None, steps=((None, GREEN),), **field_config):
    defaults = {"unit": unit, "thresholds": thresholds(steps), "color": {"mode": "palette-classic"}, **field_config}
    if custom is not None:
        defaults["custom"] = custom
    return {"type": kind, "title": title, "description": description, "datasource": DATASOURCE,
            "targets": targets(queries), "options": options, "fieldConfig": {"defaults": defaults, "overrides": []}}


def stat(title, description, expr, unit="none", steps=((None, BLUE),), legend="", **field_config):
    """The newest value, large; coloured where thresholds say something."""
    options = {"graphMode": "area", "colorMode": "value", "justifyMode": "auto", "textMode": "auto",
               "wideLayout": True, "showPercentChange": False, "percentChangeColorMode": "standard",
               "orientation": "auto", "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return panel("stat", title, description, [Query(expr, legend or title)], unit, options, steps=steps,
                 **{"color": {"mode": "thresholds"}, "noValue": "–", **field_config})


def lines(title, description, queries, unit="none", log=False, steps=None, fill=0, bars=False, **field_config):
    """Series over time. `log`: base 10; `steps`: thresholds drawn as dashed lines."""
    custom = {"drawStyle": "bars" if bars else "line", "lineInterpolation": "linear", "lineWidth": 1,
              "fillOpacity": 60 if bars else fill, "showPoints": "never", "spanNulls": False,
              "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
              "stacking": {"mode": "normal" if bars else "none", "group": "A"},
              "thresholdsStyle": {"mode": "dashed" if steps else "off"}}
    options = {"legend": {"displayMode": "table", "placement": "bottom", "showLegend": True,
                          "calcs": ["lastNotNull", "max"]},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    made = panel("timeseries", title, description, queries, unit, options, custom, steps or ((None, GREEN),),
                 **field_config)
    if bars:  # Longer than four scrapes, so that neighbours hardly count the same event.
        made["interval"] = "1m"
    return made


def heat_map(title, description, query, unit="none", distribution=False, axis="layer"):
    """Layer × time: a row per series, labelled by its legend. `distribution`: a histogram's buckets instead."""
    options = {"calculate": False, "cellGap": 0, "showValue": "never",
               "color": {"mode": "scheme", "scheme": "Viridis", "fill": "dark-blue", "scale": "exponential",
                         "exponent": 0.5, "steps": 64, "reverse": False},
               "cellValues": {"unit": unit},
               "rowsFrame": {"layout": "le" if distribution else "auto", "value": title},
               "yAxis": {"axisPlacement": "left", "axisLabel": axis, "reverse": False, "unit": "none"},
               "legend": {"show": True}, "exemplars": {"color": "rgba(255,0,255,0.7)"},
               "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True}}
    custom = {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}
    return panel("heatmap", title, description, [query], unit, options, custom)


def timeline(title, description, queries, mappings):
    """A band per series, coloured by its value."""
    options = {"showValue": "never", "rowHeight": 0.8, "mergeValues": True, "alignValue": "left",
               "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
               "tooltip": {"mode": "single", "sort": "none"}}
    custom = {"lineWidth": 0, "fillOpacity": 80, "spanNulls": False}
    return panel("state-timeline", title, description, queries, "none", options, custom,
                 mappings=mappings, color={"mode": "thresholds"})


def table(title, description, columns, by, unit="none"):
    """One row for each value of the labels `by`; `columns` are (name, expr), joined on those labels. A column's unit
    stands in its name: the published schema accepts no override by a field's name."""
    queries = [Query(expr, name, "table", True) for name, expr in columns]
    names = {f"Value #{target['refId']}": name for target, (name, _) in zip(targets(queries), columns)}
    transformations = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names,
                                       "indexByName": {label: i for i, label in enumerate([*by, *names])}}}]
    options = {"frameIndex": 0, "showHeader": True, "cellHeight": "sm",
               "footer": {"show": False, "reducer": ["sum"], "countRows": False}}
    made = panel("table", title, description, queries, unit, options,
                 {"align": "auto", "inspect": False, "filterable": True}, noValue="–")
    made["transformations"] = transformations
    return made


def to_run(made, run):
    """The panel, with a link from each value to dashboard Run; `run` is Grafana's name for the value's run."""
    url = f"/d/gyrostat-run?var-run=${{{run}}}&${{__url_time_range}}"
    made["fieldConfig"]["defaults"]["links"] = [link("Open this run", url, "Dashboard Run", False)]
    return made


# Without `current`: the published schema wants a text and a value in it, and a value would name somebody's own data
# source. Grafana takes a missing one as {}, and then picks the default Prometheus.
def datasource_variable():
    return {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1,
            "description": "The Prometheus that scrapes gyrostatd.", "hide": 0, "includeAll": False, "multi": False,
            "regex": "", "options": []}


def query_variable(name, label, description, expr, multi=True, sort=1):
    made = {"type": "query", "name": name, "label": label, "description": description, "datasource": DATASOURCE,
            "query": expr, "definition": expr, "refresh": 2, "sort": sort, "hide": 0,
            "multi": multi, "includeAll": multi, "regex": "", "options": []}
    if multi:
        made["allValue"] = ".+"
    return made


def job_variable():
    return query_variable("job", "Scrape job", "Prometheus's name for the daemons it scrapes.",
                          "label_values(gyrostat_build_info, job)")


def run_variable(multi):
    return query_variable("run", "Run", "The training run.", 'label_values(gyrostat_step{job=~"$job"}, run)', multi)


def annotation(name, color, expr, title, body, tags):
    return {"name": name, "enable": True, "hide": False, "iconColor": color, "datasource": DATASOURCE, "expr": expr,
            "step": "30s", "titleFormat": title, "textFormat": body, "tagKeys": tags}


def annotations(run=ANY_RUN):
    """What began and what was done, on every graph. By changes(): a counter that stands still marks nothing. Over
    $__rate_interval, because windows that only touch would miss what happens between the scrapes on their edge."""
    findings = ("changes(gyrostat_findings_total" + selector('severity=~"warning|critical"', run=run) +
                "[$__rate_interval]) > 0")
    interventions = ("changes(gyrostat_interventions_total" +
                     selector('state=~"proposed|applied|refused|rejected"', run=run) + "[$__rate_interval]) > 0")
    return [
        annotation("Findings", RED, findings, "{{detector}}", "{{run}}: a {{severity}} finding began",
                   "detector,severity"),
        annotation("Interventions", PURPLE, interventions, "{{kind}} {{state}}",
                   "{{run}}: an intervention became {{state}}", "kind,state"),
    ]


def link(title, url, tooltip, new_tab=True):
    return {"type": "link", "title": title, "url": url, "icon": "doc", "tooltip": tooltip, "tags": [],
            "asDropdown": False, "targetBlank": new_tab, "includeVars": False, "keepTime": False}


def dashboard_links():
    return [{"type": "dashboards", "title": "gyrostat", "tags": ["gyrostat"], "icon": "external link", "url": "",
             "tooltip": "The other dashboards of gyrostat", "asDropdown": False, "targetBlank": False,
             "includeVars": True, "keepTime": True},
            link("Runbooks", RUNBOOKS + "/README.md", "What each alert means, what to check and what to do")]


@dataclass
class Board:
    """`rows` are (title, [(height, [(width, panel), …]), …]): titled sections of lines of panels, 24 columns wide."""
    uid: str
    title: str
    description: str
    variables: list
    rows: list
    annotations: list = field(default_factory=list)
    runbooks: dict = field(default_factory=dict)  # Title of a panel → alerts that speak of the same.

    def panel(self, number, each, position):
        made = {"id": number, **each, "gridPos": position}
        if alerts := self.runbooks.get(each["title"]):
            made["links"] = [link(alert, f"{RUNBOOKS}/{alert}.md", "What it means, what to check, what to do")
                             for alert in alerts]
        return made

    def panels(self):
        made, y, number = [], 0, 0
        for title, sections in self.rows:
            number += 1
            made.append({"type": "row", "id": number, "title": title, "collapsed": False, "panels": [],
                         "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
            y += 1
            for height, section in sections:
                x = 0
                for width, each in section:
                    number += 1
                    made.append(self.panel(number, each, {"h": height, "w": width, "x": x, "y": y}))
                    x += width
                assert x == 24, f"{self.title}: {title}: the panels are {x} columns wide"
                y += height
        return made

    def json(self):
        return {
            "id": None, "uid": self.uid, "title": self.title, "description": self.description,
            "tags": ["gyrostat", "training"], "timezone": "browser", "editable": False, "graphTooltip": 1,
            "schemaVersion": 39, "version": 1, "refresh": "30s", "time": {"from": "now-3h", "to": "now"},
            "links": dashboard_links(), "annotations": {"list": self.annotations},
            "templating": {"list": [datasource_variable(), job_variable(), *self.variables]},
            "panels": self.panels(),
        }
