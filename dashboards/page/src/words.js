// Numbers and names for people.

const NONFINITE = {NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity};

// Kept when the browser has shown a first picture, or will not (nobody looks). What can wait, waits for it: the browser
// shows nothing while scripts run.
export const painted = new Promise((done) => {
  new PerformanceObserver(done).observe({type: "paint", buffered: true});
  setTimeout(done, 400);
});

// What JSON says for a number: null stays null, the three strings become what they name.
export const real = (value) => (typeof value === "string" ? NONFINITE[value] ?? NaN : value);

// Four significant digits, as short as they can be: 0.25, 12500, 3e-4.
export function short(value) {
  value = real(value);
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e6 || size < 1e-3 ? value.toExponential(3).replace(/\.?0+e\+?/, "e")
    : String(Number(value.toPrecision(4)));
  return text.replace("-", "−").replace("e−", "e-");
}

export function ago(unixMs, now = Date.now()) {
  if (!unixMs) return "never";
  const s = Math.max(0, (now - unixMs) / 1000);
  if (s < 2) return "now";
  return s < 90 ? `${Math.round(s)} s ago` : s < 5400 ? `${Math.round(s / 60)} min ago`
    : s < 129600 ? `${Math.round(s / 3600)} h ago` : `${Math.round(s / 86400)} days ago`;
}

export const RANK = {info: 0, warning: 1, critical: 2};
export const MARK = {info: "●", warning: "▲", critical: "■"};  // Shape tells what colour tells.

// "layer 4, head 2, rank 1", or nothing.
export const place = (of) => ["layer", "head", "rank"]
  .filter((each) => of[each] !== null && of[each] !== undefined).map((each) => `${each} ${of[each]}`).join(", ");

export const spell = (token) => (token ?? "").replaceAll("_", " ");

// What a picture of the past does not show, as [word, why] each. `history` is a curve's, which has no heads to lose.
const KEPT = {heads: "each layer's worst head and the worst heads of all", extremes: "each smallest and largest value"};
export function lacks({sampled, resolution, history = {}}) {
  const {reduced = [], reports_dropped: gone, chunks_damaged: damaged} = history;
  const why = (each) => "retention keeps " + each;
  return [sampled && ["sampled", "so many reports that some were passed over, with any peak in them"],
    KEPT[resolution] && ["reduced", why(KEPT[resolution])],
    ...reduced.filter((each) => each.resolution === "extremes").map(({from_step: from, to_step: to}) =>
      [`reduced to step ${to}`, why(`${KEPT.extremes} from step ${from} on`)]),
    gone && [`${gone} reports dropped`, why("no older ones")],
    damaged && [`${damaged} blocks damaged`, "the daemon's log says which"]].filter(Boolean);
}

export const SIGNALS = {
  loss: {title: "Loss", unit: "nats per token"},
  grad_norm: {title: "Gradient norm", unit: "global L2, before clipping"},
  learning_rate: {title: "Learning rate", unit: "as used in the step"},
  attn_logit_max: {title: "Max attention logits", unit: "largest softmax input per head"},
  hidden_ms: {title: "Hidden norm", unit: "mean |x|²/d of the residual stream"},
  layer_grad_norm: {title: "Gradient norm by layer", unit: "L2"},
};
