// One run as the page knows it: history from the API, the rest from events. Bounded: curves and maps are thinned out as
// they grow. Tells `changed` after each change; `version` counts changes of curves and maps.
import * as api from "./api.js";
import {painted, real} from "./words.js";

export const CURVES = ["loss", "grad_norm", "learning_rate"], MAPS = ["hidden_ms", "layer_grad_norm"];
const POINTS = 1200, POINTS_MAX = 4 * POINTS, COLUMNS = 240, COLUMNS_MAX = 4 * COLUMNS, CATCH_UP_MS = 2000;

const none = () => CURVES.map(() => ({x: [], y: []}));

// Values by layer over steps, as columns in order of steps.
class Columns {
  constructor() { this.steps = []; this.columns = []; this.rows = 0; }
  push(step, values) {
    if (values.length !== this.rows) { this.steps = []; this.columns = []; this.rows = values.length; }
    if (this.steps.length && step <= this.steps.at(-1)) return;
    this.steps.push(step);
    this.columns.push(values);
    if (this.steps.length > COLUMNS_MAX) this.thin();
  }
  // Every two columns become one, which keeps the larger values; what is not finite stays.
  thin() {
    const steps = [], columns = [];
    for (let i = 0; i < this.steps.length; i += 2) {
      const a = this.columns[i], b = this.columns[i + 1] ?? a;
      steps.push(this.steps[i]);
      columns.push(a.map((value, row) => (value >= b[row] || value !== value ? value : b[row])));
    }
    this.steps = steps;
    this.columns = columns;
  }
  // The column that holds at a step: the last that is no later.
  at(step) {
    let low = 0, high = this.steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.steps[middle] <= step) low = middle + 1; else high = middle;
    }
    return low - 1;
  }
}

export class Model {
  constructor(name, changed) {
    Object.assign(this, {name, changed, view: null, live: null, status: "connecting", error: null, version: 0,
      step: null, hover: null, span: 0, zoom: null, heads: null, headsAt: null, known: 0});
    this.clear();
    const [event, curves] = api.first(name), follow = () => {
      if (this.closed) return;
      this.end = api.follow(name, (event) => this.hear(event), (status) => { this.status = status; changed(); });
      this.timer = setInterval(() => this.catchUp(), CATCH_UP_MS);
      this.look();
      this.load(curves);
    };
    if (curves) CURVES.forEach((signal, i) => { this.curves[signal] = curves[i]; });
    this.know();
    if (event) this.put(event);
    if (event && !document.hidden) painted.then(follow); else follow();
    if (!event) api.late(name).then(([event]) => event && !this.live && !this.closed && this.hear(event));
  }
  close() {
    this.closed = true;
    this.end?.();
    clearInterval(this.timer);
    clearTimeout(this.looking);
    clearTimeout(this.fetching);
  }
  clear() {
    this.curves = Object.fromEntries(CURVES.map((each) => [each, {x: [], y: []}]));
    this.maps = Object.fromEntries(MAPS.map((each) => [each, new Columns()]));
  }

  async look() {
    try {
      this.view = await api.run(this.name);
      this.error = null;
    } catch (error) {
      this.error = error.message;
    }
    this.changed();
  }

  // Everything again: at the start, after a jump back, when the window has changed or a curve has grown long.
  // `curves`: where they are known already.
  async load(curves) {
    const ticket = this.ticket = {}, [from, to] = this.zoom ?? [];
    const fine = curves ?? await api.series(this.name, CURVES, {from, to, points: POINTS}).catch(none);
    const begin = from ?? fine[0].x[0];
    const maps = await Promise.all(MAPS.map((signal) => api.heat(this.name, {signal, from: begin, to, columns: COLUMNS})
      .catch(() => null)));
    if (ticket !== this.ticket) return;
    const live = this.maps;
    this.clear();
    CURVES.forEach((signal, i) => { this.curves[signal] = fine[i]; });
    MAPS.forEach((signal, i) => {
      const got = maps[i], last = got?.steps?.at(-1) ?? -Infinity;
      Object.assign(this.maps[signal], {sampled: got?.sampled, resolution: got?.resolution});
      got?.steps?.forEach((step, at) =>
        this.maps[signal].push(step, got.values.subarray(at * got.layers, (at + 1) * got.layers)));
      live[signal].steps.forEach((step, at) => {
        if (step > last && this.inZoom(step)) this.maps[signal].push(step, live[signal].columns[at]);
      });
    });
    if (!curves) this.know();
    this.bump();
  }
  know() { this.known = Math.max(...CURVES.map((signal) => this.curves[signal].x.at(-1) ?? 0)); }
  inZoom(step) { return !this.zoom || (step >= this.zoom[0] && step <= this.zoom[1]); }
  bump() { ++this.version; this.changed(); }

  hear(event) {
    const before = this.live;
    if (event.revision !== this.view?.revision) this.lookSoon();
    if (before && (event.step < before.step || event.attempt !== before.attempt)) this.load();
    this.put(event);
    this.bump();
  }
  put(event) {
    this.live = event;
    this.heads = event.arrays.attn_logit_max ?? null;
    if (this.inZoom(event.step)) {
      for (const signal of CURVES) {
        const {x, y} = this.curves[signal], value = event.scalars[signal];
        if (value === undefined || value === null || event.step <= (x.at(-1) ?? -Infinity)) continue;
        x.push(event.step);
        y.push(real(value));
        if (x.length > POINTS_MAX && this.longest !== x) { this.longest = x; this.load(); }
      }
      for (const signal of MAPS)
        if (event.arrays[signal]) this.maps[signal].push(event.step, event.arrays[signal].values);
    }
  }
  lookSoon() {
    clearTimeout(this.looking);
    this.looking = setTimeout(() => this.look(), 50);
  }

  // Events skip steps of a fast job; what they skipped comes from the history, so that no spike is missed.
  async catchUp() {
    const to = this.live?.step;
    if (document.hidden || this.zoom || this.busy || !to || to <= this.known) return;
    this.busy = true;
    const from = this.known + 1, ticket = this.ticket;
    const all = await api.series(this.name, CURVES, {from, points: 400}).catch(() => []);
    if (ticket === this.ticket) all.forEach((got, i) => {
      const signal = CURVES[i], {x, y, history} = this.curves[signal];
      if (!got.x.length) return;
      const keep = x.findIndex((step) => step >= from), after = x.findIndex((step) => step > got.x.at(-1));
      const head = keep < 0 ? x.length : keep, tail = after < 0 ? x.length : after;
      this.curves[signal] = {history, x: [...x.slice(0, head), ...got.x, ...x.slice(tail)],
        y: [...y.slice(0, head), ...got.y, ...y.slice(tail)]};
      this.known = Math.max(this.known, got.x.at(-1));
    });
    this.busy = false;
    this.bump();
  }

  // First and last step of all that is shown.
  extent() {
    const ends = [...CURVES.map((each) => this.curves[each].x), ...MAPS.map((each) => this.maps[each].steps)]
      .filter((steps) => steps.length);
    if (!ends.length) return [0, this.live?.step ?? 1];
    return [Math.min(...ends.map((steps) => steps[0])), Math.max(...ends.map((steps) => steps.at(-1)))];
  }
  // What the pictures of time show.
  range() {
    if (this.zoom) return this.zoom;
    const [first, last] = this.extent();
    const from = this.span ? Math.max(first, last - this.span) : first;
    return [from, Math.max(last, from + 1)];
  }
  setSpan(span) { this.span = span; this.setZoom(null); }
  setZoom(zoom) {
    const again = this.zoom || zoom;
    this.zoom = zoom;
    if (again) this.load();
    this.bump();
  }

  // A step of the past, or null for what is live.
  setStep(step) {
    const [first, last] = this.extent();
    this.step = step === null ? null : Math.round(Math.min(last, Math.max(first, step)));
    this.headsAt = null;
    clearTimeout(this.fetching);
    if (step !== null) this.fetching = setTimeout(() => this.fetchHeads(this.step), 60);
    this.bump();
  }
  async fetchHeads(step) {
    const got = await api.heat(this.name, {signal: "attn_logit_max", step}).catch((error) => ({error: error.message}));
    if (this.step !== step) return;
    this.headsAt = got;
    this.bump();
  }
  shownHeads() { return this.step === null ? this.heads : this.headsAt?.values ? this.headsAt : null; }
  moveStep(by) {
    const from = this.step ?? this.extent()[1], x = this.curves.loss.x;
    if (!x.length) return this.setStep(from + by);
    const at = x.findIndex((step) => step >= from);
    this.setStep(x[Math.max(0, Math.min(x.length - 1, (at < 0 ? x.length - 1 : at) + by))]);
  }

  // The value of a curve at the step that is looked at, as [step, value].
  valueAt(signal) {
    const {x, y} = this.curves[signal], wanted = this.hover ?? this.step;
    if (!x.length) return null;
    if (wanted === null) return [x.at(-1), y.at(-1)];
    let best = 0;
    for (let low = 0, high = x.length - 1; low <= high;) {
      const middle = (low + high) >> 1;
      if (x[middle] <= wanted) { best = middle; low = middle + 1; } else high = middle - 1;
    }
    if (best + 1 < x.length && x[best + 1] - wanted < wanted - x[best]) ++best;
    return [x[best], y[best]];
  }
}
