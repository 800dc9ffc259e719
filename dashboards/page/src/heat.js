// Maps: layers × heads, layers × steps. One canvas pixel a cell, stretched by the browser; layer 0 is the bottom row.
import {html} from "htm/preact";
import {useEffect, useLayoutEffect, useMemo, useRef, useState} from "preact/hooks";
import {Lacks} from "./cards.js";
import {GRADIENT, isAbsent, range, scaleOf} from "./scale.js";
import {short, SIGNALS} from "./words.js";

const number = (value) => (value === undefined || isAbsent(value) ? "not measured" : short(value));

function Legend({scale, tau}) {
  const mark = tau > scale.low && tau < scale.high;
  return html`<div class="legend"><span>${short(scale.low)}</span>
    <span class="ramp" style=${{background: GRADIENT}} role="img" aria-label="dark is low, bright is high">
      ${mark && html`<i style=${{left: 100 * scale.share(tau) + "%"}}></i>`}</span>
    <span>${scale.cut && "≥ "}${short(scale.high)}${scale.log ? ", log" : ""}</span>
    ${mark && html`<span>tau ${short(tau)}</span>`}
    <span class="swatch bad"></span>not finite <span class="swatch none"></span>not measured</div>`;
}

// cells: {width, height, value(x, y), say(x, y)}; boxes: cells to frame; line: a column to mark, as a share, or null.
function Picture({id, signal, cells, version, rest, boxes = [], line = null, height, tau, xs, hovered,
  of = {}}) {
  const canvas = useRef(), [at, setAt] = useState(null);
  const scale = useMemo(() => scaleOf(range(cells.all()), 16 * tau), [version]);
  useLayoutEffect(() => {
    const {width, height: rows, value} = cells, to = canvas.current;
    if (!width || !rows) return;
    if (to.width !== width || to.height !== rows) { to.width = width; to.height = rows; }
    const context = to.getContext("2d"), image = context.createImageData(width, rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let y = 0; y < rows; ++y)
      for (let x = 0, out = (rows - 1 - y) * width; x < width; ++x) pixels[out++] = scale.paint(value(x, y));
    context.putImageData(image, 0, 0);
    to.dataset.draws = Number(to.dataset.draws ?? 0) + 1;
  }, [version]);
  const put = (x, y) => {
    const next = [Math.max(0, Math.min(cells.width - 1, x)), Math.max(0, Math.min(cells.height - 1, y))];
    setAt(next);
    hovered?.(...next);
  };
  const leave = () => { setAt(null); hovered?.(null); };
  const point = (event) => {
    const box = canvas.current.getBoundingClientRect();
    put(Math.floor((event.clientX - box.left) / box.width * cells.width),
      cells.height - 1 - Math.floor((event.clientY - box.top) / box.height * cells.height));
  };
  const keys = (event) => {
    const [x, y] = at ?? [0, 0], by = event.shiftKey ? 10 : 1;
    const to = {ArrowLeft: [x - by, y], ArrowRight: [x + by, y], ArrowUp: [x, y + by], ArrowDown: [x, y - by],
      Home: [0, y], End: [cells.width - 1, y]}[event.key];
    if (to) put(...to); else if (event.key === "Escape" && at) leave(); else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const axes = id === "map-heads" ? "layer and head" : "layer over steps";
  const {title, unit} = SIGNALS[signal], there = cells.width > 0 && cells.height > 0;
  const inside = at && at[0] < cells.width && at[1] < cells.height;
  const text = !there ? "not reported" : inside ? cells.say(...at) : rest;
  const part = (x, y) => ({left: 100 * x / cells.width + "%", width: 100 / cells.width + "%",
    bottom: 100 * y / cells.height + "%", height: 100 / cells.height + "%"});
  return html`<figure class="map" id=${id}>
    <figcaption><b>${title}</b> <span class="soft">${unit}</span><${Lacks} of=${of} />
      <output>${text}</output></figcaption>
    <div class="frame">
      <div class="y"><span>${cells.height ? cells.height - 1 : ""}</span><span>layer</span><span>0</span></div>
      <div class="plot" tabindex="0" role="img" style=${{height: height + "px"}} onKeyDown=${keys}
        onPointerMove=${point} onPointerDown=${point} onBlur=${leave}
        onPointerLeave=${(event) => event.pointerType === "mouse" && leave()}
        onFocus=${(event) => there && !at && event.target.matches(":focus-visible") && put(0, 0)}
        aria-label=${`${title} by ${axes}: ${text}. Arrow keys move from cell to cell.`}>
        <canvas ref=${canvas} width="1" height="1"></canvas>
        ${boxes.map(([x, y]) => html`<i class="box" style=${part(x, y)}></i>`)}
        ${line !== null && html`<i class="line" style=${{left: 100 * line + "%"}}></i>`}
        ${inside && html`<i class="cell" style=${part(...at)}></i>`}
      </div></div>
    <div class="x"><span>${xs[0]}</span><span>${xs[1]}</span><span>${xs[2]}</span></div>
    ${there && html`<${Legend} scale=${scale} tau=${tau} />`}
  </figure>`;
}

export function HeadMap({model}) {
  const heads = model.shownHeads(), live = model.live, tau = live?.tau ?? 0;
  const width = heads?.heads ?? 0, height = heads?.layers ?? 0, values = heads?.values ?? [];
  // Those over tau, worst first, so that colour is not the only sign; and the worst of all.
  const [over, worst] = useMemo(() => {
    const found = [];
    let best = -1;
    for (let i = 0; i < values.length; ++i) {
      if (tau > 0 && values[i] > tau) found.push([values[i], i]);
      if (!isAbsent(values[i]) && (best < 0 || values[i] > values[best])) best = i;
    }
    return [found.sort((a, b) => b[0] - a[0]), best];
  }, [heads, tau]);
  const step = model.step ?? live?.step;
  const say = (x, y) => `layer ${y}, head ${x}: ${number(values[y * width + x])}`;
  const rest = worst < 0 ? "" : `step ${step}: worst is ${say(worst % width, Math.floor(worst / width))}` +
    (over.length ? ` · ${over.length} over tau` : "");
  if (model.step !== null && !heads) {
    const why = model.headsAt?.error ?? "loading";
    return html`<${Picture} id="map-heads" signal="attn_logit_max" version="none" rest=${why} height=${200}
      xs=${["", why, ""]} cells=${{width: 0, height: 0, all: () => []}} />`;
  }
  return html`<${Picture} id="map-heads" signal="attn_logit_max" version=${heads} tau=${tau} rest=${rest}
    of=${heads ?? {}} height=${Math.max(120, Math.min(400, height * 12))} xs=${[0, "head", width ? width - 1 : ""]}
    boxes=${over.slice(0, 8).map(([, i]) => [i % width, Math.floor(i / width)])}
    cells=${{width, height, all: () => values, value: (x, y) => values[y * width + x], say}} />`;
}

const PIXELS = 480;  // Columns of a picture of time.

export function TimeMap({model, signal}) {
  const map = model.maps[signal], [from, to] = model.range();
  const steps = useMemo(() => Array.from({length: PIXELS}, (_, i) => map.at(from + (to - from) * (i + 0.5) / PIXELS)),
    [model.version, from, to]);
  const rows = map.rows, absent = -3.4028234663852886e38;
  const value = (x, y) => (steps[x] < 0 ? absent : map.columns[steps[x]][y]);
  const say = (x, y) => (steps[x] < 0 ? "not measured"
    : `step ${map.steps[steps[x]]}, layer ${y}: ${number(value(x, y))}`);
  const all = () => {
    const shown = [...new Set(steps)].filter((each) => each >= 0), found = [];
    for (const each of shown) found.push(...(range(map.columns[each]) ?? []));
    return found;
  };
  const looked = model.hover ?? model.step;
  const line = looked === null || looked < from || looked > to ? null : (looked - from) / (to - from);
  const column = looked !== null ? map.at(looked) : map.steps.length - 1;
  const now = column >= 0 ? range(map.columns[column]) : null;
  const rest = now ? `step ${map.steps[column]}: ${short(now[0])} to ${short(now[1])}` : "";
  useEffect(() => () => { model.hover = null; }, []);
  const hovered = (x) => {
    model.hover = x === null || steps[x] < 0 ? null : map.steps[steps[x]];
    model.changed();
  };
  return html`<${Picture} id=${"map-" + signal} signal=${signal} rest=${rest}
    version=${`${model.version} ${from} ${to}`}
    height=${Math.max(84, Math.min(220, rows * 6))} line=${line} hovered=${hovered}
    xs=${[short(Math.round(from)), "step", short(Math.round(to))]}
    of=${map} cells=${{width: rows ? PIXELS : 0, height: rows, all, value, say}} />`;
}
