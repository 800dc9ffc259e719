// Says what is under the pointer, in all pictures of a run at once; arrow keys do the same.
// The page is whole without it.
"use strict";
(() => {
  const short = (value) => {
    if (!Number.isFinite(value)) return "not finite";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(3).replace(/\.?0+e\+?/, "e");
    return String(Number(value.toPrecision(5)));
  };
  const place = (element, share) => { element.style.left = `${100 * Math.min(1, Math.max(0, share))}%`; };

  // Each picture: at(step) shows the step (undefined: nothing), key(event) moves, and pointed(x share, y share) tells
  // which step lies there.
  class Chart {
    constructor(figure) {
      this.first = Number(figure.dataset.first);
      this.last = Number(figure.dataset.last);
      this.plot = figure.querySelector(".plot");
      this.cursor = figure.querySelector(".cursor");
      this.bands = [...figure.querySelectorAll(".band")];
      this.raw = figure.dataset.points;
    }
    points() {
      return this.parsed ??= this.raw.split(" ").map((each) => {
        const [, first, last, low, high, nonfinite] =
          /^(-?\d+)(?:-(-?\d+))?:([^/!]*)(?:\/([^!]*))?(?:!(\d+))?$/.exec(each);
        return {first: Number(first), last: Number(last ?? first), low, high, nonfinite: Number(nonfinite ?? 0)};
      });
    }
    // The nearest point; of several at one step, after a restart, the newest.
    index(step) {
      let best = 0, distance = Infinity;
      this.points().forEach((each, i) => {
        const away = step < each.first ? each.first - step : step > each.last ? step - each.last : 0;
        if (away <= distance) [best, distance] = [i, away];
      });
      return best;
    }
    at(step) {
      const point = this.points()[this.index(step)];
      place(this.cursor, ((point.first + point.last) / 2 - this.first) / Math.max(1, this.last - this.first));
      let text = point.last > point.first ? `steps ${point.first} to ${point.last}: ` : `step ${point.first}: `;
      if (point.low) text += short(Number(point.low));
      if (point.high) text += ` to ${short(Number(point.high))}`;
      if (point.nonfinite) text += `${point.low ? ", and " : ""}${point.nonfinite} not finite`;
      const inside = this.bands.filter((band) => band.dataset.first <= point.last && band.dataset.last >= point.first);
      if (inside.length) text += ` \u00b7 in finding ${inside.map((band) => band.dataset.number).join(", ")}`;
      return text;
    }
    pointed(x) { return Math.round(this.first + x * (this.last - this.first)); }
    moved(step, by) {
      const points = this.points();
      return points[Math.min(points.length - 1, Math.max(0, this.index(step) + by))].first;
    }
  }

  class HeatMap {
    constructor(figure) {
      const data = figure.dataset;
      this.columns = Number(data.columns);
      this.rows = Number(data.rows);
      this.low = Number(data.low);
      this.high = Number(data.high);
      this.log = data.log === "1";
      this.row = data.row;
      this.steps = data.steps?.split(" ").map(Number);  // Of the columns; without: columns are heads.
      this.peaks = data.peaks?.split(" ").map(Number);
      this.plot = figure.querySelector(".plot");
      this.image = figure.querySelector("img");
      this.cursor = figure.querySelector(".cursor");
      this.cursor.classList.add("cell");
      this.column = this.line = 0;
    }
    // The bitmap's bytes are the values: headers of 14 and 40 bytes, 256 colours, then rows of a multiple of 4 bytes.
    value(column, row) {
      this.bytes ??= atob(this.image.src.slice(this.image.src.indexOf(",") + 1));
      const level = this.bytes.charCodeAt(14 + 40 + 1024 + row * Math.ceil(this.columns / 4) * 4 + column);
      if (level === 255) return "not measured";
      if (level === 254) return "not finite";
      const share = level / 253;
      const value = this.log ? this.low * (this.high / this.low) ** share : this.low + share * (this.high - this.low);
      return `about ${Number(value.toPrecision(3))}`;
    }
    nearest(step) {
      let best = 0;
      this.steps.forEach((each, i) => { if (each <= step) best = i; });
      return best;
    }
    show() {
      const {style} = this.cursor, {column, line} = this;
      style.left = `${100 * column / this.columns}%`;
      style.width = `${100 / this.columns}%`;
      style.top = `${this.image.height * (this.rows - 1 - line) / this.rows}px`;
      style.height = `${this.image.height / this.rows}px`;
      const where = this.steps ? `step ${this.steps[column]}, ${this.row} ${line}`
                               : `${this.row} ${line}, head ${column}`;
      const peak = this.peaks?.length > 1 ? ` at step ${this.peaks[line * this.columns + column]}` : "";
      return `${where}: ${this.value(column, line)}${peak}`;
    }
    at(step) {
      if (this.steps) this.column = this.nearest(step);
      return this.show();
    }
    pointed(x, y) {
      this.column = Math.min(this.columns - 1, Math.max(0, Math.floor(x * this.columns)));
      this.line = Math.min(this.rows - 1, Math.max(0, this.rows - 1 - Math.floor(y * this.rows)));
      return this.steps?.[this.column];
    }
    moved(step, by) {
      this.column = Math.min(this.columns - 1, Math.max(0, this.column + by));
      return this.steps?.[this.column];
    }
  }

  const runs = [...document.querySelectorAll("section.run")].map((section) => {
    const views = [...section.querySelectorAll("figure.chart, figure.map")].map((figure) => {
      const view = figure.matches(".chart") ? new Chart(figure) : new HeatMap(figure);
      view.output = figure.querySelector("output");
      view.rest = view.output.textContent;
      return view;
    });
    const run = {section, views, step: undefined, drawn: false};
    run.say = (view, text) => {
      view.output.textContent = text ?? view.rest;
      view.output.classList.toggle("live", text !== undefined);
      view.cursor.classList.toggle("live", text !== undefined);
    };
    // Pictures of time follow one step; a map of heads speaks only when it is itself pointed at.
    run.draw = (active) => {
      for (const view of views) {
        // One layer in all maps, so that they can be compared.
        if (active?.steps && view.steps && view.rows === active.rows) view.line = active.line;
        if (view === active && !(view instanceof Chart)) run.say(view, view.show());
        else if (run.step !== undefined && (view instanceof Chart || view.steps)) run.say(view, view.at(run.step));
        else run.say(view);
      }
    };
    run.set = (step, active) => {
      run.step = step;
      cancelAnimationFrame(run.frame);
      run.frame = requestAnimationFrame(() => run.draw(active));
    };
    for (const view of views) listen(run, view);
    return run;
  });

  function listen(run, view) {
    const {plot} = view;
    const pointer = (event) => {
      const box = (view.image ?? plot).getBoundingClientRect();
      run.set(view.pointed((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height), view);
    };
    plot.addEventListener("pointermove", pointer);
    plot.addEventListener("pointerdown", pointer);
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") run.set(undefined); });
    plot.addEventListener("blur", () => run.set(undefined));
    plot.addEventListener("focus", () => {
      if (run.step === undefined && plot.matches(":focus-visible"))
        run.set(view instanceof Chart ? view.first : view.steps?.[0], view);
    });
    plot.addEventListener("keydown", (event) => {
      const stride = event.shiftKey ? 10 : 1;
      const along = {ArrowLeft: -stride, ArrowRight: stride, Home: -Infinity, End: Infinity}[event.key];
      const up = {ArrowUp: 1, ArrowDown: -1}[event.key];
      if (along !== undefined) run.set(view.moved(run.step ?? view.first, along), view);
      else if (up !== undefined && view instanceof HeatMap) {
        view.line = Math.min(view.rows - 1, Math.max(0, view.line + up));
        run.set(view.steps?.[view.column], view);
      } else if (event.key === "Escape") run.set(undefined);
      else return;
      event.preventDefault();
    });
  }

  // A step in a table is a link to its place in the curves.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.step");
    if (!link) return;
    event.preventDefault();
    const run = runs.find((each) => each.section.contains(link));
    document.getElementById(link.hash.slice(1))?.scrollIntoView({block: "center"});
    run.set(Number(link.dataset.step));
  });

  // What is linked to must be seen, and what is printed too.
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let each = target; each; each = each.parentElement) if (each.matches("details")) each.open = true;
    target.querySelector(":scope > details")?.setAttribute("open", "");
    target.scrollIntoView({block: target.matches("tr") ? "center" : "start"});
  };
  addEventListener("hashchange", unfold);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
  unfold();
})();
