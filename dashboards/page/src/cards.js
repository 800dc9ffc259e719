// What is to be read: episodes with their diagnosis, interventions, findings, decisions.
import {html} from "htm/preact";
import {useState} from "preact/hooks";
import {settle} from "./api.js";
import {lacks, MARK, place, RANK, short, spell} from "./words.js";

export const Tag = ({severity}) => html`<span class=${"tag " + severity}>${MARK[severity]} ${severity}</span>`;
const Step = ({model, at}) => html`<button class="link" onClick=${() => model.setStep(at)}>${at}</button>`;

export const Lacks = ({of}) => lacks(of).map(([word, why]) => html` <i class="lack" title=${why}>${word}</i>`);

// Approve or reject, with a reason.
function Verdict({id, done}) {
  const [reason, setReason] = useState(""), [author, setAuthor] = useState(localStorage.author ?? "");
  const [said, setSaid] = useState(null), [busy, setBusy] = useState(false);
  const send = async (verdict) => {
    if (verdict === "reject" && !reason.trim()) return setSaid("A rejection needs a reason.");
    setBusy(true);
    setSaid(null);
    localStorage.author = author;
    try {
      await settle(id, verdict, reason.trim(), author.trim());
      done();
    } catch (error) {
      setSaid(error.message);
    }
    setBusy(false);
  };
  return html`<form class="verdict-form" onSubmit=${(event) => event.preventDefault()}>
    <label>Reason <input class="reason" value=${reason} maxlength="1000" placeholder="wanted for a rejection"
      onInput=${(event) => setReason(event.target.value)} /></label>
    <label>Your name <input class="author" value=${author} maxlength="120" placeholder="operator"
      onInput=${(event) => setAuthor(event.target.value)} /></label>
    <div class="buttons">
      <button type="button" class="approve" disabled=${busy} onClick=${() => send("approve")}>Approve</button>
      <button type="button" class="reject" disabled=${busy} onClick=${() => send("reject")}>Reject</button>
    </div>
    ${said && html`<p class="wrong" role="alert">${said}</p>`}
  </form>`;
}

function Intervention({model, each}) {
  const waits = each.state === "proposed";
  return html`<li class=${"order" + (waits ? " waits" : "")} id=${"order-" + each.id.split("/")[1]}>
    <p><b>${spell(each.kind)}</b> <span class=${"state " + (each.outcome ?? each.state)}>
      ${waits ? "waits for approval" : each.state}${each.outcome ? ", " + each.outcome : ""}</span>
      ${" "}<span class="soft">${each.id}</span></p>
    <p>${each.reason}</p>
    <p class="soft">proposed at step <${Step} model=${model} at=${each.step_proposed} />${each.step_applied !== null
      && html`, applied at <${Step} model=${model} at=${each.step_applied} />`}${each.orders > 0
      && ` · ${each.orders_applied} of ${each.orders} orders applied, ${each.heads} heads`} · by ${each.author}</p>
    ${waits && html`<${Verdict} id=${each.id} done=${() => model.look()} />`}
  </li>`;
}

const MODES = {observe: "decides and records, sends nothing", advise: "proposes, and waits for approval",
  act: "sends what the configuration allows"};

export function Interventions({model}) {
  const mode = model.live?.mode ?? model.view?.mode, all = [...(model.view?.interventions ?? [])].reverse();
  all.sort((a, b) => (b.state === "proposed") - (a.state === "proposed"));
  const [more, setMore] = useState(false), shown = more ? all : all.slice(0, 5);
  const row = (each) => html`<${Intervention} key=${each.id} model=${model} each=${each} />`;
  return html`<section class="card" id="interventions" aria-label="Interventions"><h2>Interventions</h2>
    ${all.length ? html`<ul>${shown.map(row)}</ul>`
      : html`<p class="soft">None yet. Mode ${mode}: ${MODES[mode]}.</p>`}
    ${all.length > shown.length && html`<button class="link" onClick=${() => setMore(true)}>all ${all.length}</button>`}
  </section>`;
}

function Episode({model, each, open}) {
  const cause = each.causes[0];
  const where = each.common_mode ? "everywhere at once" : place(each) || spell(each.signal ?? each.detector);
  const end = each.step_end === null ? ", still going on"
    : html` to <${Step} model=${model} at=${each.step_end} />${each.healed ? ", healed" : ""}`;
  return html`<details class=${"episode " + each.severity} open=${open}>
    <summary><${Tag} severity=${each.severity} /> <b>${each.headline}</b></summary>
    <dl>
      <div><dt>Cause</dt><dd>${spell(cause.cause)}, ${Math.round(100 * cause.weight)} %. ${each.less_likely}</dd></div>
      <div><dt>First</dt><dd>${where}, step <${Step} model=${model} at=${each.first_step} /></dd></div>
      <div><dt>Since</dt><dd>step <${Step} model=${model} at=${each.step_begin} />${end}</dd></div>
      <div><dt>Evidence</dt><dd><ul>${each.evidence.map((text) => html`<li>${text}</li>`)}</ul></dd></div>
      ${each.likely && html`<div><dt>Likely</dt><dd>${each.likely}</dd></div>`}
      <div><dt>Now</dt><dd>${each.advice}</dd></div>
    </dl>
  </details>`;
}

export function Episodes({model}) {
  const all = [...(model.view?.episodes ?? [])].reverse();
  return html`<section class="card" id="episodes" aria-label="Episodes"><h2>Episodes</h2>
    ${all.length ? all.map((each, i) => html`<${Episode} key=${each.id} model=${model} each=${each} open=${i === 0} />`)
      : html`<p class="soft">Nothing has happened that needs a diagnosis.</p>`}</section>`;
}

export function Findings({model}) {
  const [open, setOpen] = useState(false), all = model.view?.findings ?? [];
  const rows = [...all].sort((a, b) => (a.step_end !== null) - (b.step_end !== null)
    || RANK[b.severity] - RANK[a.severity] || b.step_detected - a.step_detected);
  const shown = open ? rows : rows.slice(0, 12);
  const where = (each) => [each.signal && spell(each.signal), place(each)].filter(Boolean).join(", ") || "–";
  return html`<section class="card" id="findings" aria-label="Findings">
    <h2>Findings <span class="soft">${all.length}</span></h2>
    ${rows.length === 0 && html`<p class="soft">No detector has said anything.</p>`}
    ${shown.length > 0 && html`<table>
    <thead><tr><th>Severity</th><th>Detector</th><th>Where</th><th>Steps</th><th>What</th></tr></thead>
    <tbody>${shown.map((each) => html`<tr key=${each.id}><td><${Tag} severity=${each.severity} /></td>
      <td>${spell(each.detector)}</td><td>${where(each)}</td>
      <td><${Step} model=${model} at=${each.step_begin} />${each.step_end === null ? " …" : ` to ${each.step_end}`}
        ${each.healed ? " healed" : ""}</td><td>${each.message}</td></tr>`)}</tbody></table>`}
    ${rows.length > shown.length
      && html`<button class="link" onClick=${() => setOpen(true)}>all ${rows.length}</button>`}
  </section>`;
}

export function Decisions({model}) {
  const all = [...(model.view?.decisions ?? [])].reverse();
  if (!all.length) return null;
  return html`<details class="card" id="decisions">
    <summary><h2>Decisions</h2> <span class="soft">the newest ${all.length}</span></summary>
    <ul>${all.map((each) => html`<li>step ${each.step}: <b>${spell(each.kind)}</b>${" "}
      ${each.acted ? "yes" : "no"} – ${each.reason}</li>`)}</ul>
  </details>`;
}

export function Facts({model}) {
  const {view, live} = model, model_ = view?.model ?? {}, at = live ?? view ?? {};
  const facts = {Mode: at.mode, Step: at.step, Ranks: at.ranks, Attempt: at.attempts,
    Model: [model_.preset, model_.layers && `${model_.layers} layers`, model_.heads && `${model_.heads} heads`,
      spell(model_.norm_placement ?? "")].filter(Boolean).join(", "),
    Tau: short(at.tau), "Heads over tau": at.heads_over_tau,
    "Job allows": view?.allow?.length ? view.allow.map(spell).join(", ") : "no change"};
  return html`<dl class="facts">${Object.entries(facts).filter(([, value]) => value !== undefined && value !== "")
    .map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
