"""The page of `gyrostatctl replay --html` in a real headless Chromium: it needs nothing but itself, shows what the log
holds, reads on a phone and in the dark, and takes no word of a stranger for its own."""
import base64
import json
import math
import os
import re
import subprocess
from pathlib import Path

import pytest

import browser as browsers
from gyrostatd import BIN

CORPUS = Path(os.environ["GYROSTAT_SOURCE_DIR"]) / "tests/corpus"
STEPS, LAYERS, HEADS = 300, 6, 4
SPIKE, NAN, RUNAWAY = 200, 240, 120  # Steps of a run in which much goes wrong.
CONTRAST_MIN = 4.5                   # WCAG 2.1, AA, text of normal size.

pytestmark = pytest.mark.skipif(browsers.program() is None, reason="no Chromium: deploy/install test gets one")


def loss_at(step):
    return "NaN" if step == NAN else 60.5 if step == SPIKE else round(2 + 3 * math.exp(-step / 40), 4)


def logit_at(step, layer, head):
    worst = layer == 4 and head == 2
    return round(8 * math.exp((step - RUNAWAY) / 40), 3) if worst and step > RUNAWAY else 3 + layer + 0.25 * head


def row_at(step):
    return {"step": step, "loss": loss_at(step), "learning_rate": 3e-4, "grad_norm": 0.9 + 0.1 * (step % 7),
            "attn_logit_max": [[logit_at(step, layer, head) for head in range(HEADS)] for layer in range(LAYERS)],
            "layer_grad_norm": [0.1 * (layer + 1) for layer in range(LAYERS)]}


def write_run(path, name):
    head = {"gyrostat": 1, "run": name, "model": {"layers": LAYERS, "heads": HEADS},
            "attn_logit": {"kind": "exact", "scaled": True, "masked": True}}
    path.write_text("\n".join(json.dumps(each) for each in [head, *map(row_at, range(STEPS))]) + "\n")
    return path


def report(out, *logs):
    """Writes the page; returns what --json says of the same logs."""
    done = subprocess.run([BIN / "gyrostatctl", "replay", "--json", "--html", out, *logs], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsers.Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """{name: (file, runs)}: one run in which much goes wrong; every own log."""
    folder = tmp_path_factory.mktemp("pages")
    one, many = folder / "one.html", folder / "many.html"
    logs = sorted(path for path in CORPUS.iterdir() if path.is_file() and path.suffix != ".md")
    return {"one": (one, report(one, write_run(folder / "one.jsonl", "sick"))),
            "many": (many, report(many, *logs))}


@pytest.fixture
def opened(browser, pages):
    """open(name, …): the page, which must be silent and alone at the end of the test too."""
    all_opened = []

    def open_page(name, **window):
        all_opened.append(browser.open(pages[name][0], **window))
        return all_opened[-1]

    yield open_page
    for page in all_opened:
        assert page.complaints == []
        outside = [each for each in page.requests[1:] if not each.startswith("data:")]
        assert outside == [] and page.requests[0].startswith("file:")
        page.close()


def count(page, selector):
    return page.js(f"document.querySelectorAll({json.dumps(selector)}).length")


def read_out(page, figure):
    return page.js(f"document.querySelector('#{figure} output').textContent")


def point_at(page, figure, x_share, y_share=0.5):
    """Moves the mouse into the figure's picture and returns what it then says."""
    page.js(f"document.querySelector('#{figure} .plot').scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = page.js(f"(() => {{ const b = document.querySelector('#{figure} .plot').getBoundingClientRect();"
                  "return [b.x, b.y, b.width, b.height]; })()")
    page.move(box[0] + box[2] * x_share, box[1] + box[3] * y_share)
    return settled(page, figure)


def settled(page, figure):
    page.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return read_out(page, figure)


def test_every_number_of_the_log_has_its_place(opened, pages):
    page, (run,) = opened("one"), pages["one"][1]
    assert len(run["findings"]) >= 4
    assert count(page, "figure.chart") == len(run["signals"])
    assert count(page, "figure.map") == 3  # Two arrays by layer, and one of them by head.
    assert count(page, ".findings tbody tr") == len(run["findings"])
    assert count(page, ".findings tbody td") == 5 * len(run["findings"])
    cells = ".findings tbody td:nth-child(2) b"
    severities = page.js(f"[...document.querySelectorAll('{cells}')].map((each) => each.textContent)")
    ranks = ["critical", "warning", "info"]
    assert severities == sorted((each["severity"] for each in run["findings"]), key=ranks.index)
    points = page.js("document.querySelector('#r0-loss').dataset.points").split()
    assert len(points) == STEPS and points[SPIKE] == f"{SPIKE}:60.5" and points[NAN] == f"{NAN}:!1"
    for figure, columns in (("r0-attn_logit_max-by-layer", None), ("r0-attn_logit_max-by-head", HEADS)):
        data = page.js(f"({{...document.querySelector('#{figure}').dataset}})")
        size = page.js(f"(() => {{ const i = document.querySelector('#{figure} img');"
                       "return [i.naturalWidth, i.naturalHeight]; })()")
        assert size == [int(data["columns"]), LAYERS] and columns in (None, size[0])
    assert page.js("document.querySelector('#r0-grad_norm figcaption').textContent").find("log scale") > 0


def test_many_runs_are_listed_first_and_each_is_linked(opened, pages):
    page, runs = opened("many"), pages["many"][1]
    assert count(page, ".runs tbody tr") == count(page, "section.run") == len(runs) > 4
    assert page.js("[...document.querySelectorAll('.runs a')].every((a) => document.getElementById(a.hash.slice(1)))")
    assert count(page, "section.run figure.chart") == sum(len(run["signals"]) for run in runs)
    folded = page.js("document.querySelector('section.run > details')?.parentElement.id")
    if folded:  # What a link leads to is opened.
        page.js(f"location.hash = {json.dumps(folded)}; new Promise((done) => setTimeout(done, 0))")
        assert page.js(f"document.querySelector('#{folded} > details').open")


def test_the_pointer_reads_values(opened):
    page = opened("one")
    at_rest = read_out(page, "r0-loss")
    lowest = min((loss_at(step), step) for step in range(STEPS) if step != NAN)
    assert at_rest == f"lowest {lowest[0]:.4g} at {lowest[1]} · highest 60.5 at {SPIKE} · " \
                      f"last {loss_at(STEPS - 1):.4g} · 1 not finite"
    for step in (0, 57, SPIKE, STEPS - 1):
        said = point_at(page, "r0-loss", min(step / (STEPS - 1), 0.9999))
        shown = float(f"{loss_at(step):.5g}")
        assert said.startswith(f"step {step}: {shown:g}"), said
        assert read_out(page, "r0-grad_norm").startswith(f"step {step}: "), "all pictures follow"
    assert point_at(page, "r0-loss", NAN / (STEPS - 1)).startswith(f"step {NAN}: 1 not finite")
    assert "in finding" in point_at(page, "r0-attn_logit_max", 0.95)
    page.move(1, 1)
    assert settled(page, "r0-loss") == at_rest


def test_the_pointer_reads_the_bytes_of_a_map(opened):
    page = opened("one")
    said = point_at(page, "r0-attn_logit_max-by-head", 2.5 / HEADS, 1 - 4.5 / LAYERS)
    match = re.fullmatch(r"layer 4, head 2: about ([\d.]+) at step (\d+)", said)
    assert match and int(match[2]) == STEPS - 1, said
    assert abs(float(match[1]) / logit_at(STEPS - 1, 4, 2) - 1) < 0.02
    said = point_at(page, "r0-attn_logit_max-by-layer", 0.999, 1 - 4.5 / LAYERS)
    match = re.fullmatch(r"step (\d+), layer 4: about ([\d.]+)", said)
    assert match and abs(float(match[2]) / logit_at(STEPS - 1, 4, 2) - 1) < 0.02, said
    other = read_out(page, "r0-layer_grad_norm-by-layer")
    assert re.match(rf"step {match[1]}, layer 4: about 0\.(499|5|501)\b", other), "all maps tell the same layer"
    said = point_at(page, "r0-attn_logit_max-by-layer", 0.999, 0.999)
    assert said.startswith(f"step {match[1]}, layer 0: about 3.75"), "the bottom row is layer 0"


def test_the_keyboard_reads_values(opened):
    page = opened("one")
    page.js("document.querySelector('#r0-loss .plot').focus()")
    for key, wanted in (("Home", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", STEPS - 1)):
        page.press(key)
        assert settled(page, "r0-loss").startswith(f"step {wanted}: "), key
    page.press("Escape")
    assert settled(page, "r0-loss").startswith("lowest ")
    page.js("document.querySelector('#r0-attn_logit_max-by-head .plot').focus()")
    page.press("Home")
    page.press("ArrowUp")
    assert settled(page, "r0-attn_logit_max-by-head").startswith("layer 1, head 0: ")
    focusable = page.js("[...document.querySelectorAll('.plot, .pin, a.step')].every((each) => each.tabIndex === 0)")
    assert focusable and page.js("[...document.querySelectorAll('.plot, .pin')].every((each) => "
                                 "each.getAttribute('aria-label')?.length > 10)")


def test_findings_and_pictures_lead_to_each_other(opened):
    page = opened("one")
    links = page.js("[...document.querySelectorAll('.pin, a.step, .runs a')].map((each) => each.getAttribute('href'))")
    assert len(links) > 6
    assert page.js("[...document.querySelectorAll('.pin')].every((pin) => "
                   "document.querySelector(pin.getAttribute('href')).matches('tr'))")
    step = page.js("document.querySelector('a.step').dataset.step")
    page.js("document.querySelector('a.step').click()")
    target = page.js("document.querySelector('a.step').hash.slice(1)")
    assert settled(page, target).startswith(f"step {step}: ")


@pytest.mark.parametrize("name", ["one", "many"])
@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_sees_all_of_it(opened, name, width):
    page = opened(name, width=width, height=800)
    page.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.js("document.documentElement.scrollWidth") <= width
    beyond = page.js(
        "[...document.querySelectorAll('main *:not(svg *)')].filter((each) => { const b = each.getBoundingClientRect();"
        f"return b.width && (b.right > {width} + 0.5 || b.left < -0.5); }}).map((each) => each.outerHTML.slice(0, 80))")
    assert beyond == []
    small = page.js("[...document.querySelectorAll('main *')].filter((each) => each.firstChild?.nodeType === 3 && "
                    "each.firstChild.textContent.trim() && parseFloat(getComputedStyle(each).fontSize) < 11).length")
    assert small == 0, "text keeps its size however narrow the page"


# The contrast of every visible text with what it stands on, worst first.
CONTRASTS = """(() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255).map((each) =>
    each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4).reduce((sum, each, i) =>
    sum + each * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour[3] === 1) return colour;
      if (colour[3] > 0) throw new Error("a ground that shines through: " + each.outerHTML.slice(0, 99));
    }
    return [255, 255, 255, 1];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const each = node.parentElement, style = getComputedStyle(each);
    if (!node.textContent.trim() || !each.getClientRects().length) continue;
    if (each.closest("script, style, title, defs")) continue;
    const ink = parse(each.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(each))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), node.textContent.trim().slice(0, 40), each.className.toString()]);
  }
  return found.sort((x, y) => x[0] - y[0]);
})()"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["one", "many"])
def test_every_text_can_be_read(opened, name, dark):
    page = opened(name, dark=dark)
    page.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    ground = page.js("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 150) == dark, ground
    contrasts = page.js(CONTRASTS)
    assert len(contrasts) > 60
    assert contrasts[0][0] >= CONTRAST_MIN, contrasts[:5]


def test_what_is_printed_is_unfolded_and_dark_on_light(opened):
    page = opened("many", dark=True)
    page.call("Emulation.setEmulatedMedia", media="print",
              features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.js(CONTRASTS)[0][0] >= CONTRAST_MIN
    pdf = base64.b64decode(page.call("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF-") and count(page, "details:not([open])") == 0


HOSTILE = ["<script>window.caught = 1</script>", "\"><img src=x onerror=\"window.caught = 2\">",
           "' onfocus='window.caught = 3' autofocus='", "</style></title><svg onload=window.caught=4>",
           "]]>--><!-- javascript:window.caught=5", "run\u202efdp.exe\u2066\u200f", "&lt;b&gt; & \x1b[31m"]


def test_a_hostile_name_is_only_a_name(browser, tmp_path):
    logs = []
    for i, name in enumerate(HOSTILE):
        path = tmp_path / ("%d%s.jsonl" % (i, name.replace("/", "\u2215").replace("\x1b", "")))
        logs.append(write_run(path, name))
    out = tmp_path / "hostile.html"
    assert len(report(out, *logs)) == len(HOSTILE)
    page = browser.open(out)
    page.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.js("document.querySelectorAll('[tabindex], a').forEach((each) => each.focus())")
    assert page.js("window.caught ?? null") is None
    assert page.complaints == [] and [each for each in page.requests[1:] if not each.startswith("data:")] == []
    names = page.js("[...document.querySelectorAll('h2')].map((each) => each.firstChild.textContent.trim())")
    assert names[:5] == HOSTILE[:5] and names[5] == "run\\u{202e}fdp.exe\\u{2066}\\u{200f}"
    assert not re.search("[\u200e\u200f\u202a-\u202e\u2066-\u2069\x1b]", out.read_text())
    assert count(page, "script") == 1 and count(page, "main img[onerror], main [onfocus], main svg[onload]") == 0
    page.close()


def test_the_policy_stops_what_got_in_all_the_same(browser, pages):
    page = browser.open(pages["one"][0])
    page.js("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.caught = 1'}))")
    page.js("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.caught = 2\">')")
    refused = page.js("fetch('http://127.0.0.1:1/').then(() => 'sent', (error) => error.name)")
    assert refused == "TypeError" and page.js("window.caught ?? null") is None
    for what in ("inline script", "inline event handler", "127.0.0.1:1", "/x"):
        stopped = [each for each in page.complaints if "Content Security Policy" in each]
        assert any(what in each for each in stopped), (what, page.complaints)
    page.close()


def test_a_long_log_makes_a_small_page_that_keeps_its_spike(browser, tmp_path):
    log, out = tmp_path / "long.csv", tmp_path / "long.html"
    log.write_text("step,loss,grad_norm\n" + "".join(
        f"{step},{77.25 if step == 31415 else 2 + step % 3},{0.5 + step % 5}\n" for step in range(60000)))
    report(out, log)
    assert out.stat().st_size < 200 << 10
    page = browser.open(out)
    assert "highest 77.25 at 31415" in read_out(page, "r0-loss")
    assert "77.25" in point_at(page, "r0-loss", 31415 / 59999)
    assert page.complaints == []
    page.close()
