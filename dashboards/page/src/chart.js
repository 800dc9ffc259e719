// Curves over steps (uPlot), all with one cursor, findings and interventions marked.
import {html} from "htm/preact";
import {useEffect, useRef} from "preact/hooks";
import uPlot from "uplot";
import {Lacks} from "./cards.js";
import {MARK, painted, place, short, SIGNALS, spell} from "./words.js";

const HEIGHT = 150;
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const finite = (values) => values.filter(Number.isFinite);
// Logarithmic where all is positive and it spans more than a factor of 20.
function isLog(values) {
  const known = finite(values), low = Math.min(...known);
  return known.length > 0 && low > 0 && Math.max(...known) / low > 20;
}

// Bands for findings under the curve, and a line for each intervention with its mark below.
function marks(model) {
  return (u) => {
    const {ctx, bbox} = u, ratio = devicePixelRatio, last = u.scales.x.max;
    const at = (step) => Math.min(bbox.left + bbox.width, Math.max(bbox.left, u.valToPos(step, "x", true)));
    ctx.save();
    for (const each of model.view?.findings ?? []) {
      const from = at(each.step_begin), to = Math.max(at(each.step_end ?? last), from + 2 * ratio);
      if (each.step_begin > last || (each.step_end ?? last) < u.scales.x.min) continue;
      ctx.fillStyle = css("--" + each.severity);
      ctx.globalAlpha = 0.08;
      ctx.fillRect(from, bbox.top, to - from, bbox.height);
      ctx.globalAlpha = 1;
      ctx.fillRect(from, bbox.top, to - from, 3 * ratio);
    }
    for (const each of model.view?.interventions ?? []) {
      const step = each.step_applied ?? each.step_proposed;
      if (step < u.scales.x.min || step > last) continue;
      const x = at(step), y = bbox.top + bbox.height, r = 5 * ratio;
      ctx.fillStyle = ctx.strokeStyle = css("--order");
      ctx.lineWidth = ratio;
      ctx.setLineDash(each.step_applied === null ? [3 * ratio, 3 * ratio] : []);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, y);
      ctx.stroke();
      ctx.beginPath();
      ctx.moveTo(x, y - 2 * r);
      ctx.lineTo(x + r, y - r);
      ctx.lineTo(x, y);
      ctx.lineTo(x - r, y - r);
      ctx.fill();
    }
    ctx.restore();
  };
}

// What is not finite, as red ticks on top of the axis; the step that is looked at, as a line.
function over(model, signal) {
  return (u) => {
    const {ctx, bbox} = u, ratio = devicePixelRatio, {x, y} = model.curves[signal];
    ctx.save();
    ctx.fillStyle = css("--critical");
    y.forEach((value, i) => {
      if (Number.isFinite(value) || x[i] < u.scales.x.min || x[i] > u.scales.x.max) return;
      ctx.fillRect(u.valToPos(x[i], "x", true) - ratio, bbox.top + bbox.height - 14 * ratio, 2 * ratio, 14 * ratio);
    });
    if (model.step !== null && model.step >= u.scales.x.min && model.step <= u.scales.x.max) {
      ctx.fillStyle = css("--ink");
      ctx.fillRect(u.valToPos(model.step, "x", true) - ratio / 2, bbox.top, ratio, bbox.height);
    }
    ctx.restore();
  };
}

function options(model, signal, log, width) {
  const axis = {stroke: () => css("--soft"), font: "12px system-ui, sans-serif", ticks: {show: false},
    grid: {stroke: () => css("--grid"), width: 1}};
  return {
    width, height: HEIGHT, legend: {show: false}, padding: [6, 8, 0, 0],
    cursor: {sync: {key: "steps"}, y: false, points: {size: 7}, drag: {x: true, y: false}},
    scales: {x: {time: false, range: () => model.range()}, y: log ? {distr: 3} : {}},
    axes: [{...axis, size: 26, values: (u, ticks) => ticks.map((each) => (each % 1 ? "" : short(each)))},
      {...axis, size: 52, space: 26, values: (u, ticks) => ticks.map((each) => (each === null ? "" : short(each)))}],
    series: [{}, {stroke: () => css("--line"), width: 1.5, points: {show: false}, spanGaps: false}],
    hooks: {
      drawAxes: [marks(model)],
      draw: [over(model, signal)],
      setCursor: [(u) => {
        if (!u.root.matches(":hover")) return;
        const step = u.cursor.idx === null || u.cursor.left < 0 ? null : u.data[0][u.cursor.idx] ?? null;
        if (step !== model.hover) { model.hover = step; model.changed(); }
      }],
      setSelect: [(u) => {
        if (u.select.width < 8) return;
        const {left, width: wide} = u.select;
        model.setZoom([u.posToVal(left, "x"), u.posToVal(left + wide, "x")].map(Math.round));
        u.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
      }],
    },
  };
}

// "2.31 at step 40, in finding 3 attn_logit: layer 4, head 2"
function said(model, signal) {
  const [step, value] = model.valueAt(signal) ?? [];
  if (step === undefined) return "not reported yet";
  const looked = model.hover ?? model.step;
  let text = `${short(value)} at step ${step}`;
  if (looked === null) return text;
  const of = (model.view?.findings ?? []).filter((each) => each.step_begin <= step && (each.step_end ?? step) >= step);
  for (const each of of.slice(-2)) text += ` ${MARK[each.severity]} ${spell(each.detector)} ${place(each)}`.trimEnd();
  for (const each of model.view?.interventions ?? [])
    if ((each.step_applied ?? each.step_proposed) === step) text += ` ◆ ${spell(each.kind)} ${each.state}`;
  return text;
}

export function Chart({model, signal, theme}) {
  const box = useRef(), kept = useRef({});
  const {x, y} = model.curves[signal];
  useEffect(() => {
    const watch = new ResizeObserver(() => {  // Also as it begins, when the curve has its width already.
      const width = box.current?.clientWidth, {u} = kept.current;
      if (u && width && width !== u.width) u.setSize({width, height: HEIGHT});
    });
    watch.observe(box.current);
    return () => { watch.disconnect(); kept.current.u?.destroy(); kept.current = {}; };
  }, [signal]);
  useEffect(() => {
    const draw = () => {
      if (!box.current) return;
      const log = isLog(y), data = [x, y.map((each) => (Number.isFinite(each) && (!log || each > 0) ? each : null))];
      if (kept.current.u && kept.current.log === log) return kept.current.u.setData(data);
      kept.current.u?.destroy();
      kept.current = {log, u: new uPlot(options(model, signal, log, box.current.clientWidth), data, box.current)};
    };
    if (kept.current.u) draw(); else painted.then(draw);
  }, [model.version, theme, model.view]);
  const {title, unit} = SIGNALS[signal], text = said(model, signal);
  const keys = (event) => {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (by) model.moveStep(event.shiftKey ? 10 * by : by);
    else if (event.key === "Home") model.setStep(model.extent()[0]);
    else if (event.key === "End") model.setStep(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<figure class="chart" id=${"chart-" + signal}>
    <figcaption><b>${title}</b> <span class="soft">${unit}${kept.current.log ? ", log scale" : ""}</span>
      <${Lacks} of=${model.curves[signal]} />
      <output>${text}</output></figcaption>
    <div class="plot" ref=${box} tabindex="0" role="img" onKeyDown=${keys}
      onMouseLeave=${() => { model.hover = null; model.changed(); }}
      aria-label=${`${title} over steps: ${text}. Arrow keys move through steps.`}></div>
  </figure>`;
}
