// The daemon's API: GETs, the two POSTs, and the stream of events.
import {real} from "./words.js";

const path = (...parts) => "api/" + parts.map(encodeURIComponent).join("/");

async function answer(response) {
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Error(body?.error ?? `the daemon answered ${response.status}`);
  return body;
}

// One question at a time: the daemon reads its history for few at once, and says 503 to the others.
let turn = Promise.resolve();
const inTurn = (ask) => (turn = turn.then(ask, ask));

async function get(where, query = {}) {
  const known = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const text = new URLSearchParams(known).toString(), url = where + (text ? "?" + text : "");
  return inTurn(async () => {
    for (let left = 9; ; --left) {
      const response = await fetch(url);
      if (response.status !== 503 || !left) return answer(response);
      await new Promise((done) => setTimeout(done, 300));
    }
  });
}

export const runs = () => get("api/runs");
export const run = (name) => get(path("runs", name));
export const heat = async (name, query) => withValues(await get(path("runs", name, "heat"), query));
const curve = ({points, history}) =>
  ({x: points.map((each) => each[0]), y: points.map((each) => real(each[1])), history});
// Of several signals, in their order.
export async function series(name, signals, query) {
  return (await get(path("runs", name, "series"), {...query, signal: signals.join()})).series.map(curve);
}

// What early.js has asked for before all this was parsed: the runs, or [event, curves] of one. The first picture waits
// for it for so long, then is drawn without.
const WAIT_MS = 150, early = [];
const whole = Promise.all(window.early.map(async (each, i) => { early[i] = await each; }));
export const begin = () => Promise.race([new Promise((done) => setTimeout(done, WAIT_MS)), whole]);
// Once, and of that run alone; of none: the runs.
export function first(name) {
  const [event, curves] = early.splice(0);
  return event && event.run === name ? [heard(event), curves && curves.series.map(curve)] : [];
}
export const late = (name) => whole.then(() => first(name));

// verdict: "approve" or "reject"; id: RUN/NUMBER.
export async function settle(id, verdict, reason, author) {
  return answer(await fetch(path("interventions", ...id.split("/"), verdict), {
    method: "POST", headers: {"Content-Type": "application/json", "X-Gyrostat": "1"},
    body: JSON.stringify({reason, author}),
  }));
}

// An event, its arrays unpacked.
function heard(event) {
  for (const signal in event.arrays) event.arrays[signal] = withValues(event.arrays[signal]);
  return event;
}

// base64 of little-endian float32 → {layers, heads, values}.
function withValues(array) {
  const text = atob(array.values), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = text.charCodeAt(i);
  return {...array, values: new Float32Array(bytes.buffer)};
}

const INTERVAL_MS = 200, PATIENCE_MS = 3000;

// Follows a run while the page can be seen: hear(event) for each, say("live" | a sentence) when that changes. Returns
// what ends it.
export function follow(name, hear, say) {
  let source, timer;
  const stop = () => { source?.close(); clearTimeout(timer); source = undefined; };
  const start = () => {
    stop();
    if (document.hidden) return;
    source = new EventSource(path("runs", name, "events") + "?interval_ms=" + INTERVAL_MS);
    source.onopen = () => say("live");
    source.onmessage = (message) => hear(heard(JSON.parse(message.data)));
    source.addEventListener("gone", () => { stop(); say("the daemon no longer knows this run"); });
    source.onerror = () => {
      if (!source) return;
      say("no connection to the daemon; trying again");
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(start, PATIENCE_MS);
    };
  };
  document.addEventListener("visibilitychange", start);
  start();
  return () => { document.removeEventListener("visibilitychange", start); stop(); };
}
