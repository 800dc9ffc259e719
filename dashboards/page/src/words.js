// Numbers and names for people.

const NONFINITE = {NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity};

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

export const SIGNALS = {
  loss: {title: "Loss", unit: "nats per token"},
  grad_norm: {title: "Gradient norm", unit: "global L2, before clipping"},
  learning_rate: {title: "Learning rate", unit: "as used in the step"},
  attn_logit_max: {title: "Max attention logits", unit: "largest softmax input per head"},
  hidden_ms: {title: "Hidden norm", unit: "mean |x|²/d of the residual stream"},
  layer_grad_norm: {title: "Gradient norm by layer", unit: "L2"},
};
