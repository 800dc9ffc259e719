// From a value to a colour that everybody can tell: viridis, which grows lighter evenly, so that it also reads in grey
// and with any kind of colour blindness.

const ANCHORS = ["440154", "481a6c", "472f7d", "414487", "39568c", "31688e", "2a788e", "23888e", "1f988b", "22a884",
  "35b779", "54c568", "7ad151", "a5db36", "d2e21b", "fde725"];
const ABSENT_BELOW = -3.4e38;  // -FLT_MAX: not measured.
const abgr = (r, g, b) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
const NONFINITE = abgr(0xe0, 0x2f, 0x2f), ABSENT = abgr(0x8c, 0x92, 0x9c);

// 256 colours as the bytes of a canvas want them.
const RAMP = Uint32Array.from({length: 256}, (_, i) => {
  const at = i / 255 * (ANCHORS.length - 1), low = Math.min(Math.floor(at), ANCHORS.length - 2), part = at - low;
  const byte = (which, from) => parseInt(ANCHORS[which].slice(from, from + 2), 16);
  return abgr(...[0, 2, 4].map((from) => Math.round(byte(low, from) * (1 - part) + byte(low + 1, from) * part)));
});
export const GRADIENT = `linear-gradient(90deg,${ANCHORS.map((each) => "#" + each).join()})`;

export const isAbsent = (value) => value < ABSENT_BELOW && value > -Infinity;

// The range of the finite values; null where there is none.
export function range(values) {
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < values.length; ++i) {
    const value = values[i];
    if (value - value !== 0 || value <= ABSENT_BELOW) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

// A scale over [low, high], no higher than `top` (0: any), so that one runaway does not leave the rest in the dark;
// logarithmic where all is positive and it spans more than a factor of 8.
export function scaleOf(limits, top) {
  let [low, high] = limits ?? [0, 1];
  const cut = top > low && high > top;
  if (cut) high = top;
  const log = low > 0 && high / low > 8;
  if (high <= low) high = low + Math.max(Math.abs(low) * 1e-3, 1e-12);
  const from = log ? Math.log(low) : low, times = 255 / ((log ? Math.log(high) : high) - from);
  const index = (value) => Math.max(0, Math.min(255, ((log ? Math.log(value) : value) - from) * times | 0));
  return {low, high, log, cut, share: (value) => index(value) / 255, paint(value) {
    if (value - value !== 0) return NONFINITE;
    return value < ABSENT_BELOW ? ABSENT : RAMP[index(value)];
  }};
}
