"""gyrostatd's own page in a real headless Chromium, with a real daemon behind it: live numbers arrive, an approval by
click reaches the journal, everything can be done from the keyboard, in the dark and on a phone."""
import json
import os
import re
import subprocess
import threading

import pytest

import browser as browsers
from gyrostatd import BIN, Daemon, wait_until

LAYERS, HEADS = 6, 8
CONTRAST_MIN = 4.5  # WCAG 2.1, AA, text of normal size.

pytestmark = pytest.mark.skipif(browsers.program() is None, reason="no Chromium: deploy/install test gets one")


class Load:
    """A synthetic job that reports until it is ended."""

    def __init__(self, daemon, run, *more, rate=8, layers=LAYERS, heads=HEADS):
        self.command = [str(BIN / "gyrostat-loadgen"), "--address", daemon.grpc, "--run", run, "--layers", str(layers),
                        "--heads", str(heads), "--rate", str(rate), "--steps", "1000000", *map(str, more)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


RUNAWAY = ("--scenario", "runaway", "--allow", "qk_clip")


def complaints(page):
    """All but the browser's note of a history that was busy: the page asks again then."""
    return [each for each in page.complaints if "status of 503" not in each]


def ctl(daemon, *words):
    done = subprocess.run([BIN / "gyrostatctl", *words, "--address", daemon.grpc, "--json"], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("daemon"), config="policy: {qk_clip: {tau: 30}}\n") as daemon:
        status, body, _ = daemon.get("/", headers={"Accept": "text/html", "Accept-Encoding": "gzip"}, raw=True)
        if status == 200 and not body.startswith(b"\x1f\x8b"):
            pytest.skip("the page is not built in: deploy/install page gets npm")
        yield daemon


@pytest.fixture(scope="module")
def live(daemon):
    """A run that reports all the time."""
    with Load(daemon, "live", *RUNAWAY):
        wait_until(lambda: [each for each in ctl(daemon, "runs") if each["run"] == "live" and each["step"] > 30],
                   "the run reports")
        yield "live"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsers.Browser(tmp_path_factory.mktemp("browser"), loopback=True) as browser:
        yield browser


@pytest.fixture
def opened(browser, daemon):
    """open(run, …): the page, which must be silent and ask nobody but its daemon."""
    pages = []

    def open_page(run="", **window):
        pages.append(browser.open(f"http://{daemon.http}/" + (f"#{run}" if run else ""), **window))
        return pages[-1]

    yield open_page
    for page in pages:
        assert complaints(page) == []
        assert [each for each in page.requests if not each.startswith((f"http://{daemon.http}/", "data:"))] == []
        page.close()


def until(page, expression, what):
    return wait_until(lambda: page.js(expression), what)


def text(page, selector):
    return page.js(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''")


def fact(page, name):
    return page.js("[...document.querySelectorAll('.facts div')].find((each) => "
                   f"each.firstChild.textContent === {json.dumps(name)})?.lastChild.textContent ?? ''")


def draws(page):
    return page.js("Number(document.querySelector('#map-heads canvas')?.dataset.draws ?? 0)")


def middle(page, selector):
    page.js(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
    return page.js(f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                   "return [b.x + b.width / 2, b.y + b.height / 2]; })()")


def ready(page):
    until(page, "document.querySelectorAll('.uplot').length === 3 && "
                "Number(document.querySelector('#map-heads canvas')?.dataset.draws) > 1", "pictures with data")


def test_the_list_leads_to_a_run(opened, live):
    page = opened()
    until(page, f"document.querySelector('.runs a')?.textContent === '{live}'", "the run is listed")
    assert page.js("document.title") == "gyrostat"
    x, y = middle(page, ".runs a")
    page.click(x, y)
    ready(page)
    assert page.js("document.title") == f"{live} – gyrostat" and text(page, "h1") == live


def test_live_numbers_arrive_without_asking(opened, live):
    page = opened(live)
    ready(page)
    first = int(fact(page, "Step"))
    before = draws(page)
    until(page, f"Number([...document.querySelectorAll('.facts dd')][1].textContent) > {first + 20}", "later steps")
    wait_until(lambda: draws(page) > before + 3, "the map is drawn with them")
    loss = "document.querySelector('#chart-loss output').textContent"
    said = until(page, f"/^([\\d.e-]+) at step (\\d+)$/.exec({loss})", "the newest loss")
    assert float(said[1]) > 0 and int(said[2]) > first
    assert re.match(rf"step \d+: worst is layer \d, head \d: [\d.]+", text(page, "#map-heads output"))
    asked = len([each for each in page.requests if "/events" in each])
    assert asked == 1, "one stream, not a request a step"
    assert "step" in text(page, "#map-layer_grad_norm output")


def test_an_approval_by_click_reaches_the_journal(opened, daemon):
    with Load(daemon, "advised", *RUNAWAY):
        wait_until(lambda: [each for each in ctl(daemon, "runs") if each["run"] == "advised"], "the run is known")
        ctl(daemon, "mode", "advised", "advise")
        page = opened("advised")
        until(page, "!!document.querySelector('.order.waits .approve')", "a proposal is shown")
        headline = until(page, "document.querySelector('.episode summary')?.textContent", "an episode")
        assert "Attention logits" in headline
        page.click(*middle(page, ".order.waits .reject"))
        until(page, "document.querySelector('.wrong')?.textContent === 'A rejection needs a reason.'", "a complaint")
        page.click(*middle(page, ".order.waits .reason"))
        page.type("it <b>looks</b> right")
        page.click(*middle(page, ".order.waits .author"))
        page.type("Anna Änn")
        page.click(*middle(page, ".order.waits .approve"))
        until(page, "document.querySelectorAll('.order.waits').length === 0 && !!document.querySelector('.order')",
              "nothing waits any more")
        (intent,) = ctl(daemon, "interventions", "advised")[:1]
        assert intent["author"] == "Anna Änn" and intent["state"] != "proposed"
        wait_until(lambda: ctl(daemon, "interventions", "advised")[0]["step_applied"] is not None, "it is applied")
        until(page, "/applied/.test(document.querySelector('.order').textContent)", "the page says so")
    daemon_log = daemon.log()
    assert "looks</b> right" in daemon_log and "Anna" in daemon_log


def test_a_rejection_by_keyboard(opened, daemon):
    with Load(daemon, "rejected", *RUNAWAY):
        wait_until(lambda: [each for each in ctl(daemon, "runs") if each["run"] == "rejected"], "the run is known")
        ctl(daemon, "mode", "rejected", "advise")
        page = opened("rejected")
        until(page, "!!document.querySelector('.order.waits')", "a proposal is shown")
        page.press("a")
        assert page.js("document.activeElement.className") == "reason"
        page.type("not now")
        for wanted in ("author", "approve", "reject"):
            page.press("Tab")
            assert page.js("document.activeElement.className") == wanted
        page.press("Enter")
        until(page, "document.querySelectorAll('.order.waits').length === 0", "nothing waits any more")
        (intent,) = ctl(daemon, "interventions", "rejected")[:1]
        assert intent["state"] == "rejected"
        assert intent["author"] in ("operator", "Anna Änn"), "a name is remembered by the browser"


def test_the_keyboard_reads_the_past_and_the_cells(opened, live):
    page = opened(live)
    ready(page)
    until(page, "Number(document.querySelector('.scrub input').min) < 2", "the history")
    page.press("Home")
    until(page, "document.querySelector('.scrub output').textContent === '0' || "
                "document.querySelector('.scrub output').textContent === '1'", "the first step")
    first = int(text(page, ".scrub output"))
    page.press("ArrowRight")
    until(page, f"Number(document.querySelector('.scrub output').textContent) > {first}", "a step on")
    step = int(text(page, ".scrub output"))
    assert step <= first + 10
    until(page, f"document.querySelector('#map-heads output').textContent.startsWith('step {step}: worst is')",
          "the heads of that step")
    assert f"at step {step}" in text(page, "#chart-loss output")
    page.js("document.querySelector('#map-heads .plot').focus()")
    page.press("ArrowUp")
    page.press("ArrowRight")
    heads = "document.querySelector('#map-heads output').textContent"
    said = until(page, f"/^layer (\\d+), head (\\d+): [\\d.]+$/.exec({heads})", "a cell is read")
    assert said[1:3] in (["1", "1"], ["2", "1"], ["1", "0"])
    page.press("Escape")
    page.js("document.activeElement.blur()")
    page.press("l")
    until(page, "Number(document.querySelector('.scrub output').textContent) > 30", "live again")
    page.press("?")
    assert page.js("document.querySelector('dialog').open") and "Keyboard" in text(page, "dialog")
    page.press("Escape")
    until(page, "!document.querySelector('dialog').open", "the help is closed")
    page.press("g")
    until(page, "!!document.querySelector('.runs')", "the list")


def test_the_pointer_reads_values(opened, live):
    page = opened(live)
    ready(page)
    page.move(*middle(page, "#map-heads .plot"))
    until(page, "/^layer \\d+, head \\d+: [\\d.]+$/.test(document.querySelector('#map-heads output').textContent)",
          "the cell under the pointer")
    page.move(*middle(page, "#chart-loss .plot"))
    until(page, "/ at step \\d+/.test(document.querySelector('#chart-grad_norm output').textContent) && "
                "Number(/step (\\d+)/.exec(document.querySelector('#chart-loss output').textContent)[1]) < "
                "Number(document.querySelector('.scrub output').textContent)", "all curves follow the pointer")
    page.move(2, 2)


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
    }
    return [255, 255, 255, 1];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const each = node.parentElement;
    if (!node.textContent.trim() || !each.getClientRects().length || each.closest("script, style, option")) continue;
    const [a, b] = [light(parse(getComputedStyle(each).color)), light(ground(each))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), node.textContent.trim().slice(0, 40), each.className.toString()]);
  }
  return found.sort((x, y) => x[0] - y[0]);
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read_in_light_and_dark(opened, live, dark):
    page = opened(live, dark=dark)
    ready(page)
    ground = page.js("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 150) == dark, ground
    contrasts = page.js(CONTRASTS)
    assert len(contrasts) > 40 and contrasts[0][0] >= CONTRAST_MIN, contrasts[:5]
    page.press("t")  # Explicitly light, whatever the system says; then dark.
    until(page, "document.documentElement.dataset.theme === 'light'", "light by hand")
    page.press("t")
    until(page, "document.documentElement.dataset.theme === 'dark'", "dark by hand")
    assert page.js(CONTRASTS)[0][0] >= CONTRAST_MIN
    page.press("t")


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_sees_all_of_it(opened, live, width):
    for run in ("", live):
        page = opened(run, width=width, height=800)
        if run:
            ready(page)
        else:
            until(page, "!!document.querySelector('.runs a')", "the list")
        assert page.js("document.documentElement.scrollWidth") <= width
        beyond = page.js("[...document.querySelectorAll('main *')].filter((each) => { const b = "
                         f"each.getBoundingClientRect(); return b.width && (b.right > {width} + 0.5 || "
                         "b.left < -0.5) && !each.closest('.uplot'); }).map((each) => each.outerHTML.slice(0, 80))")
        assert beyond == []


def test_pictures_have_names_for_those_who_do_not_see_them(opened, live):
    page = opened(live)
    ready(page)
    assert page.js("[...document.querySelectorAll('.plot')].every((each) => each.tabIndex === 0 && "
                   "each.getAttribute('aria-label').length > 30)")
    assert page.js("[...document.querySelectorAll('button, input, select')].every((each) => "
                   "each.textContent.trim() || each.getAttribute('aria-label') || each.closest('label'))")


def test_what_a_job_says_is_only_text(opened, daemon):
    """Names may not hold markup; a reason may, and is text all the same."""
    page = opened("advised")
    until(page, "!!document.querySelector('.order')", "the intervention")
    assert page.js("document.querySelectorAll('main b b, main script, main img').length") == 0
    page.js("location.hash = '#%3Cimg%20src%3Dx%20onerror%3D1%3E'")
    until(page, "/wanted 1 to 128/.test(document.querySelector('.banner')?.textContent)", "a bad name is refused")
    assert page.js("document.querySelectorAll('main img').length") == 0
    page.js("location.hash = ''")
    until(page, "!!document.querySelector('.runs')", "the list")
    page.complaints.clear()  # The browser notes the 400 that was meant.


def test_the_first_picture_wants_two_answers_and_no_stream(browser, daemon, live):
    page = browser.open("about:blank")
    page.call("Network.setBlockedURLs", urls=["*/events*"])
    page.call("Page.navigate", url=f"http://{daemon.http}/#{live}")
    until(page, "/at step/.test(document.querySelector('#chart-loss output')?.textContent) && "
                "document.querySelectorAll('.uplot').length === 3 && "
                "Number(document.querySelector('#map-heads canvas')?.dataset.draws) > 0", "numbers, curves, heads")
    assert int(fact(page, "Step")) > 0
    asked = [each.partition("/api/")[2] for each in page.requests if each.startswith("http")][:3]
    assert asked[0] == "" and asked[1] == f"runs/{live}/now" and asked[2].startswith(f"runs/{live}/series?"), asked
    page.close()


def test_a_name_that_is_none_asks_for_nothing_early(opened):
    page = opened("a?b=1")
    until(page, "/wanted 1 to 128/.test(document.querySelector('.banner')?.textContent)", "a bad name is refused")
    assert [each for each in page.requests if "/now" in each or "a?b" in each.partition("#")[0]] == []
    page.complaints.clear()  # The browser notes the 400 that was meant.


def lacks(page, selector):
    return page.js(f"[...document.querySelectorAll({json.dumps(selector + ' .lack')})].map((each) => "
                   "[each.textContent, each.title])")


def test_the_page_says_what_retention_and_sampling_left_out(browser, tmp_path):
    """Of a short run old reports are reduced; of a long one of many heads not every report is read for a map."""
    with Daemon(tmp_path, config="history: {full_reports: 64, heads_reports: 192}\n") as daemon:
        for run, layers, heads, steps in (("reduced", 6, 8, 700), ("sampled", 65, 64, 2600)):
            subprocess.run([BIN / "gyrostat-loadgen", "--address", daemon.grpc, "--run", run, "--layers", str(layers),
                            "--heads", str(heads), "--steps", str(steps)], check=True, stdout=subprocess.DEVNULL,
                           timeout=300)
        wait_until(lambda: '"extremes"' in daemon.get("/api/runs/reduced/series?signal=loss")[1], "retention has run")
        page = browser.open(f"http://{daemon.http}/#reduced")
        ready_maps = "Number(document.querySelector('#map-hidden_ms canvas')?.dataset.draws) > 0"
        until(page, ready_maps + " && document.querySelectorAll('#chart-loss .lack').length > 0", "the word")
        ((word, why),) = lacks(page, "#chart-loss")
        assert re.fullmatch(r"reduced to step \d+", word) and "smallest and largest" in why
        until(page, "document.querySelectorAll('#map-hidden_ms .lack').length > 0", "the map's word")
        assert lacks(page, "#map-hidden_ms")[0][0] == "reduced" and lacks(page, "#map-heads") == []
        page.js("(() => { const slider = document.querySelector('.scrub input'); slider.value = 560;"
                "slider.dispatchEvent(new Event('input', {bubbles: true})); })()")
        until(page, "document.querySelectorAll('#map-heads .lack').length > 0", "the heads of an old step")
        assert lacks(page, "#map-heads") == [["reduced", "retention keeps each layer's worst head and the worst heads "
                                              "of all"]]
        page.close()
        page = browser.open(f"http://{daemon.http}/#sampled")
        until(page, "[...document.querySelectorAll('#map-hidden_ms .lack')].some((each) => "
                    "each.textContent === 'sampled' && /passed over/.test(each.title))", "the map is a sample")
        assert complaints(page) == []
        page.close()


def test_the_page_says_when_the_daemon_is_gone(browser, tmp_path):
    with Daemon(tmp_path) as daemon, Load(daemon, "short"):
        wait_until(lambda: ctl(daemon, "runs"), "the run is known")
        page = browser.open(f"http://{daemon.http}/#short")
        ready(page)
        daemon.kill()
        until(page, "/no connection/.test(document.querySelector('#link').textContent)", "the page says so")
        page.close()


def test_many_readers_that_do_not_read_leave_the_page_alive(opened, daemon, live):
    import socket
    host, port = daemon.http.split(":")
    lazy = []
    for _ in range(40):
        peer = socket.create_connection((host, int(port)), timeout=120)
        peer.sendall(f"GET /api/runs/{live}/events?interval_ms=50 HTTP/1.1\r\nHost: {daemon.http}\r\n\r\n".encode())
        lazy.append(peer)
    answers = [peer.recv(12) for peer in lazy]
    assert answers.count(b"HTTP/1.1 503") >= 8 and answers.count(b"HTTP/1.1 200") <= 32
    assert daemon.get("/healthz")[0] == 200
    before = ctl(daemon, "runs")[0]["step"]
    wait_until(lambda: [each for each in ctl(daemon, "runs") if each["run"] == live][0]["step"] > before,
               "reports go on")
    for peer in lazy:
        peer.close()
    page = opened(live)
    ready(page)
