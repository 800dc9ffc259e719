// The page: a list of runs, and one run live. The address after # says which: #NAME.
import {html, render} from "htm/preact";
import {useEffect, useReducer, useRef, useState} from "preact/hooks";
import "./style.css";
import * as api from "./api.js";
import {Decisions, Episodes, Facts, Findings, Interventions, Tag} from "./cards.js";
import {Chart} from "./chart.js";
import {HeadMap, TimeMap} from "./heat.js";
import {CURVES, MAPS, Model} from "./model.js";
import {ago, short} from "./words.js";

const LIST_MS = 2000, THEMES = ["auto", "light", "dark"];
const KEYS = [["?", "this list"], ["g", "the list of runs"], ["← →", "one step back or on; with Shift ten"],
  ["Home", "the first step"], ["End or l", "back to what is live"], ["[ ]", "the finding before or after"],
  ["a", "to the intervention that waits"], ["e", "to the episodes"], ["t", "light, dark, or as the system is"],
  ["Escape", "leaves a picture, a zoom, the past"], ["in a map", "arrows move from cell to cell, Home and End along"]];

const runOf = () => decodeURIComponent(location.hash.slice(1));

function Help({box}) {
  const row = ([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`;
  return html`<dialog ref=${box} aria-label="Keyboard"
      onClick=${(event) => event.target === box.current && box.current.close()}>
    <h2>Keyboard</h2><dl class="keys">${KEYS.map(row)}</dl>
    <p class="soft">Drag over a curve to zoom in. Maps: dark is low, bright is high.</p>
    <button onClick=${() => box.current.close()}>Close</button></dialog>`;
}

function Runs() {
  const [got, setGot] = useState(() => api.first()[0]), [error, setError] = useState(null);
  useEffect(() => {
    const ask = () => !document.hidden
      && api.runs().then((each) => { setGot(each); setError(null); }, (each) => setError(each.message));
    ask();
    const timer = setInterval(ask, LIST_MS);
    return () => clearInterval(timer);
  }, []);
  if (!got) return html`<p class="soft">${error ?? "…"}</p>`;
  const rank = {live: 0, silent: 1, ended: 2};
  const rows = [...got.runs].sort((a, b) => rank[a.state] - rank[b.state]
    || b.last_report_unix_ms - a.last_report_unix_ms);
  const problem = error ?? (got.not_ready && "not ready: " + got.not_ready);
  return html`${problem && html`<p class="banner" role="alert">${problem}</p>`}
    <section class="card"><h2>Runs <span class="soft">${rows.length}</span></h2>
    ${rows.length === 0 && html`<p>No run has reported yet. In Python: <code>gyrostat.watch(model)</code>.</p>`}
    ${rows.length > 0 && html`<table class="runs"><thead><tr><th>Run</th><th>State</th><th>Mode</th><th>Step</th>
      <th>Loss</th><th>Findings</th></tr></thead>
    <tbody>${rows.map((each) => html`<tr key=${each.run}>
      <td><a href=${"#" + encodeURIComponent(each.run)}>${each.run}</a>
        ${each.headline && html`<br /><span class="soft">${each.headline}</span>`}</td>
      <td><span class=${"state " + each.state}>${each.state}</span>${" "}
        <span class="soft">${ago(each.last_report_unix_ms)}</span></td>
      <td>${each.mode}</td><td>${each.step}</td><td>${short(each.loss)}</td>
      <td>${each.severity ? html`<${Tag} severity=${each.severity} /> ${each.findings_open} open` : "–"}
        ${each.interventions_pending > 0 && html` <b class="waiting">${each.interventions_pending} to approve</b>`}
      </td></tr>`)}</tbody></table>`}
    </section><p class="soft">gyrostatd ${got.version}</p>`;
}

function Scrubber({model}) {
  const [first, last] = model.zoom ?? model.extent(), step = model.step ?? last;
  return html`<div class="scrub" role="group" aria-label="History">
    <label>step <input type="range" min=${first} max=${last} value=${step} aria-label="Step of the history"
      aria-valuetext=${model.step === null ? "live" : "step " + step}
      onInput=${(event) => model.setStep(Number(event.target.value))} /></label>
    <output>${step}</output>
    <button class=${model.step === null && !model.zoom ? "on" : ""} onClick=${() => act("Escape", model)}>Live</button>
    <label>show <select aria-label="How much of the history" value=${model.zoom ? "zoom" : model.span}
      onChange=${(event) => model.setSpan(Number(event.target.value))}>
      <option value="0">all</option><option value="1000">last 1000</option><option value="200">last 200</option>
      ${model.zoom && html`<option value="zoom" disabled>${model.zoom.join(" to ")}</option>`}</select></label>
  </div>`;
}

function Run({name, model, theme}) {
  const live = model.live, state = live?.state ?? model.view?.state;
  const waits = (model.view?.interventions ?? []).filter((each) => each.state === "proposed").length;
  if (model.error && !live) return html`<p class="banner" role="alert">${model.error}</p>`;
  return html`<header class="run"><h1>${name}</h1>
      <span class=${"state " + state}>${state ?? "…"}</span>
      <span class="soft" id="link">
        ${model.status === "live" ? "last report " + ago(live?.last_report_unix_ms) : model.status}</span>
      ${waits > 0 && html`<button class="waiting" onClick=${() => act("a", model)}>${waits} to approve</button>`}
    </header>
    <${Facts} model=${model} />
    <div class="columns"><div>
      <section class="card"><${Scrubber} model=${model} />
        ${CURVES.map((signal) => html`<${Chart} key=${signal} model=${model} signal=${signal} theme=${theme} />`)}
        <p class="legend soft"><span class="swatch band"></span>finding
          <span class="swatch mark"></span>intervention, dashed until applied</p></section>
      <section class="card maps"><${HeadMap} model=${model} />
        ${MAPS.map((signal) => html`<${TimeMap} key=${signal} model=${model} signal=${signal} />`)}</section>
    </div><aside>
      <${Interventions} model=${model} /><${Episodes} model=${model} /><${Decisions} model=${model} />
    </aside></div><${Findings} model=${model} />`;
}

const show = (element) => {
  element?.scrollIntoView({block: "center"});
  element?.querySelector("input, summary")?.focus();
};

// What a key does to a run; false: nothing.
function act(key, model, shift) {
  if (key === "ArrowLeft" || key === "ArrowRight") model.moveStep((key === "ArrowLeft" ? -1 : 1) * (shift ? 10 : 1));
  else if (key === "Home") model.setStep(model.extent()[0]);
  else if (key === "End" || key === "l") model.setStep(null);
  else if (key === "Escape") { model.setStep(null); model.setZoom(null); }
  else if (key === "a") show(document.querySelector(".order.waits"));
  else if (key === "e") show(document.querySelector("#episodes"));
  else if (key === "[" || key === "]") {
    const steps = [...new Set((model.view?.findings ?? []).map((each) => each.step_begin))].sort((a, b) => a - b);
    const from = model.step ?? Infinity;
    const next = key === "[" ? steps.filter((each) => each < from).at(-1) : steps.find((each) => each > from);
    if (next !== undefined) model.setStep(next);
  } else return false;
  return true;
}

function App() {
  const [name, setName] = useState(runOf()), [theme, setTheme] = useState(localStorage.theme ?? "auto");
  const [, again] = useReducer((n) => n + 1, 0), model = useRef(null), help = useRef();
  if (model.current?.name !== (name || undefined)) {
    model.current?.close();
    model.current = name ? new Model(name, again) : null;
  }
  const dark = theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  localStorage.theme = theme;
  useEffect(() => { document.title = name ? name + " – gyrostat" : "gyrostat"; }, [name]);
  const turn = () => setTheme((now) => THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);  // Keys outrun drawing.
  useEffect(() => {
    const moved = () => setName(runOf());
    const system = matchMedia("(prefers-color-scheme: dark)");
    const keys = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || help.current.open) return;
      if (event.target.matches("input, select, textarea") && event.key !== "Escape") return;
      if (event.target.matches("button, summary, a") && /^(Enter| )$/.test(event.key)) return;
      if (event.key === "?") help.current.showModal();
      else if (event.key === "g") location.hash = "";
      else if (event.key === "t") turn();
      else if (!model.current || !act(event.key, model.current, event.shiftKey)) return;
      event.preventDefault();
    };
    addEventListener("hashchange", moved);
    addEventListener("keydown", keys);
    system.addEventListener("change", again);
    return () => {
      removeEventListener("hashchange", moved);
      removeEventListener("keydown", keys);
      system.removeEventListener("change", again);
    };
  }, []);
  return html`<nav><a href="#" class="home">gyrostat</a><span></span>
      <button onClick=${turn} title="t" aria-label=${`Colours: ${theme}`}>
        ${{auto: "◐ auto", light: "☀ light", dark: "☾ dark"}[theme]}</button>
      <button onClick=${() => help.current.showModal()} title="?" aria-label="Keyboard">? keys</button></nav>
    <main>${name ? html`<${Run} key=${name} name=${name} model=${model.current} theme=${String(dark)} />`
      : html`<${Runs} />`}</main>
    <${Help} box=${help} />`;
}

api.begin().then(() => render(html`<${App} />`, document.getElementById("page")));
