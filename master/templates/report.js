"use strict";
// Values of the plots under the pointer, and zoom. A page without this script has the same plots.
(() => {
  const SVG = "http://www.w3.org/2000/svg", DRAG = 8, STEPS = 1000;
  const SCALES = {
    linear: [(v) => v, (p) => p],
    log: [(v) => Math.log10(Math.max(v, 1e-12)), (p) => 10 ** p],
    nines: [(v) => -Math.log10(Math.max(1e-12, 1 - v / 100)), (p) => 100 * (1 - 10 ** -p)],
  };
  const text = (value) => value.toLocaleString("en", {maximumSignificantDigits: 5});

  // Ticks between two positions of a scale, as values.
  function ticks(scale, low, high) {
    const [position, value] = SCALES[scale], from = value(low), to = value(high), found = [];
    if (scale === "log" && to / from > 4) {
      const factors = to / from > 1000 ? [1] : [1, 2, 5];
      for (let decade = Math.floor(low); decade <= high; decade += 1)
        for (const factor of factors) found.push(factor * 10 ** decade);
    } else if (scale === "nines" && high - low > 0.7) {
      found.push(0, 50);
      for (let nines = 1; nines <= high; nines += 1) found.push(100 - 10 ** (2 - nines));
    } else {
      const rough = (to - from) / 5, size = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].find((factor) => factor * size >= rough) * size;
      for (let n = Math.ceil(from / step); n * step <= to; n += 1) found.push(n * step);
    }
    return found.filter((one) => position(one) >= low - 1e-9 && position(one) <= high + 1e-9);
  }

  class Axis {
    // `start`, `end`: where its limits are in the picture.
    constructor(data, start, end) {
      [this.position, this.value] = SCALES[data.scale];
      Object.assign(this, {scale: data.scale, label: data.label, start, end});
      this.all = data.limits.map(this.position);
      this.limits = this.all;
    }
    // All of the nines is at the end of the axis: its position would be infinite.
    place(value) {
      const position = this.position(value);
      return this.placed(this.scale === "nines" ? Math.min(position, this.all[1]) : position);
    }
    placed(position) {
      const [low, high] = this.limits;
      return this.start + ((position - low) / (high - low)) * (this.end - this.start);
    }
    at(place) {
      const [low, high] = this.limits;
      return low + ((place - this.start) / (this.end - this.start)) * (high - low);
    }
    zoom(low, high) {
      const least = (this.all[1] - this.all[0]) / 1e5;
      const [from, to] = [Math.max(low, this.all[0]), Math.min(high, this.all[1])];
      if (to - from > least) this.limits = [from, to];
    }
  }

  class Picture {
    constructor(svg, number) {
      const data = JSON.parse(svg.dataset.plot), [left, top, right, bottom] = data.box;
      this.svg = svg;
      this.box = {left, top, right, bottom};
      this.figure = svg.closest("figure");
      this.plot = svg.closest(".plot");
      this.x = new Axis(data.x, left, right);
      this.y = new Axis(data.y, bottom, top);
      this.series = data.series.map((one) => ({...one, group: document.getElementById(one.id)}));
      this.drawn = this.add(svg, "g", {});
      this.cursor = this.add(svg, "line", {y1: top, y2: bottom, stroke: "var(--dim)", visibility: "hidden"});
      this.frame = this.add(svg, "rect", {fill: "var(--link)", "fill-opacity": 0.15, visibility: "hidden"});
      const clip = this.add(this.add(svg, "clipPath", {id: `clip-${number}`}), "rect", {});
      this.set(clip, {x: left, y: top, width: right - left, height: bottom - top});
      this.clip = `url(#clip-${number})`;
      this.controls();
      this.listen();
    }

    add(parent, name, attributes) {
      const made = document.createElementNS(SVG, name);
      this.set(made, attributes);
      parent.append(made);
      return made;
    }
    set(element, attributes) {
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    }

    controls() {
      const title = this.figure.querySelector("h3").textContent;
      this.values = document.createElement("div");
      this.values.className = "values";
      this.values.hidden = true;
      this.values.setAttribute("aria-hidden", "true");
      this.slider = document.createElement("input");
      Object.assign(this.slider, {type: "range", min: 0, max: STEPS, value: 0});
      this.slider.setAttribute("aria-label", `Values of: ${title}. Plus and minus zoom, 0 shows all.`);
      this.button = document.createElement("button");
      Object.assign(this.button, {type: "button", textContent: "Show all", hidden: true});
      this.button.setAttribute("aria-label", `Show all of: ${title}`);
      const bar = document.createElement("div");
      bar.className = "controls";
      bar.append(this.slider, this.button);
      this.plot.after(this.values, bar);
    }

    listen() {
      this.svg.addEventListener("pointermove", (event) => this.move(event));
      this.svg.addEventListener("pointerleave", () => { if (!this.from) this.hide(); });
      this.svg.addEventListener("pointerdown", (event) => {
        if (event.button) return;
        this.from = this.point(event);
        this.svg.setPointerCapture(event.pointerId);
        event.preventDefault();
      });
      this.svg.addEventListener("pointerup", (event) => this.end(this.point(event)));
      this.svg.addEventListener("pointercancel", () => this.end(null));
      this.svg.addEventListener("dblclick", () => this.reset());
      this.button.addEventListener("click", () => { this.reset(); this.slider.focus(); });
      this.slider.addEventListener("input", () => this.slide());
      this.slider.addEventListener("focus", () => this.slide());
      this.slider.addEventListener("blur", () => this.hide());
      this.slider.addEventListener("keydown", (event) => this.key(event));
      window.addEventListener("beforeprint", () => { this.reset(); this.hide(); });
    }

    // The place of the pointer in the picture, inside the axes.
    point(event) {
      const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
      const {left, top, right, bottom} = this.box;
      return {x: Math.min(right, Math.max(left, place.x)), y: Math.min(bottom, Math.max(top, place.y))};
    }

    move(event) {
      const to = this.point(event);
      this.show(to.x);
      if (!this.from) return;
      const part = this.part(this.from, to);
      this.set(this.frame, {x: part.left, y: part.top, width: part.right - part.left, height: part.bottom - part.top});
      this.frame.setAttribute("visibility", part.right - part.left < DRAG ? "hidden" : "visible");
    }

    // The part of the axes between two points: with its full height if hardly any was marked.
    part(from, to) {
      const high = Math.abs(to.y - from.y) >= 3 * DRAG;
      return {
        left: Math.min(from.x, to.x), right: Math.max(from.x, to.x), high,
        top: high ? Math.min(from.y, to.y) : this.box.top, bottom: high ? Math.max(from.y, to.y) : this.box.bottom,
      };
    }

    end(to) {
      const from = this.from;
      this.from = null;
      this.frame.setAttribute("visibility", "hidden");
      if (!from || !to) return;
      const part = this.part(from, to);
      if (part.right - part.left < DRAG) return;
      const high = part.high ? [this.y.at(part.bottom), this.y.at(part.top)] : null;
      this.x.zoom(this.x.at(part.left), this.x.at(part.right));
      if (high) this.y.zoom(...high);
      this.draw();
    }

    key(event) {
      if (event.key === "+" || event.key === "=") this.scale(0.5);
      else if (event.key === "-") this.scale(2);
      else if (event.key === "0" || event.key === "Escape") this.reset();
      else return;
      event.preventDefault();
      this.slide();
    }
    scale(factor) {
      const [low, high] = this.x.limits, at = low + (high - low) * (this.slider.value / STEPS);
      const from = at - (at - low) * factor, to = at + (high - at) * factor;
      if (from <= this.x.all[0] && to >= this.x.all[1]) { this.reset(); return; }
      this.x.zoom(from, to);
      this.draw();
    }
    slide() {
      const {left, right} = this.box;
      this.slider.setAttribute("aria-valuetext", this.show(left + (right - left) * (this.slider.value / STEPS)).join("; "));
    }
    hide() {
      this.values.hidden = true;
      this.cursor.setAttribute("visibility", "hidden");
    }

    // The number of the point whose value holds at a position of the x axis, or -1.
    index(one, position) {
      let low = 0, high = one.x.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.x.position(one.x[middle]) <= position + 1e-12) low = middle + 1; else high = middle;
      }
      const last = one.x.length - 1;
      if (one.steps) return position > this.x.position(one.x[last]) + 1e-9 ? -1 : Math.min(low - 1, last);
      const distance = (n) => (n < 0 || n > last ? Infinity : Math.abs(this.x.position(one.x[n]) - position));
      return distance(low - 1) <= distance(low) ? low - 1 : low;
    }

    // Shows and returns the values at a place: a line for each series.
    show(place) {
      const position = this.x.at(place);
      const lines = [`${this.x.label}: ${text(Number(this.x.value(position).toPrecision(4)))}`];
      for (const one of this.series) {
        const n = this.index(one, position);
        if (n < 0) continue;
        const to = one.steps && n + 1 < one.x.length ? ` to ${text(one.x[n + 1])}` : "";
        lines.push(`${one.name}: ${text(one.y[n])} (${text(one.x[n])}${to})`);
      }
      lines.push(this.y.label);
      this.values.replaceChildren(...lines.map((words) => {
        const line = document.createElement("div");
        line.textContent = words;
        return line;
      }));
      this.set(this.cursor, {x1: place, x2: place, visibility: "visible"});
      this.values.hidden = false;
      this.beside(place);
      return lines;
    }

    // Puts the values beside the cursor, on its side with more room.
    beside(place) {
      const shown = this.svg.getBoundingClientRect().width, scale = shown / this.svg.viewBox.baseVal.width;
      const at = place * scale, left = at < shown / 2 ? at + 12 : at - 12 - this.values.offsetWidth;
      const most = this.figure.clientWidth - this.values.offsetWidth;
      this.values.style.left = `${Math.max(0, Math.min(left, most))}px`;
      this.values.style.top = `${this.plot.offsetTop + this.box.top * scale}px`;
    }

    reset() {
      this.x.limits = this.x.all;
      this.y.limits = this.y.all;
      this.drawn.replaceChildren();
      this.originals(true);
      this.button.hidden = true;
    }
    originals(shown) {
      const hidden = [...this.series.map((one) => one.group), ...this.svg.querySelectorAll('[id*="-xtick_"], [id*="-ytick_"]')];
      for (const one of hidden) if (one) one.style.display = shown ? "" : "none";
    }

    draw() {
      this.originals(false);
      this.drawn.replaceChildren();
      this.button.hidden = false;
      const {left, top, right, bottom} = this.box, line = {stroke: "var(--line)", "stroke-width": 0.5};
      for (const value of ticks(this.x.scale, ...this.x.limits)) {
        const x = this.x.place(value);
        this.add(this.drawn, "line", {x1: x, x2: x, y1: top, y2: bottom, ...line});
        this.label(value, x, bottom + 13, "middle");
      }
      for (const value of ticks(this.y.scale, ...this.y.limits)) {
        const y = this.y.place(value);
        this.add(this.drawn, "line", {x1: left, x2: right, y1: y, y2: y, ...line});
        this.label(value, left - 5, y + 3.5, "end");
      }
      for (const one of this.series) this.path(one);
    }
    label(value, x, y, anchor) {
      const made = this.add(this.drawn, "text", {x, y, "text-anchor": anchor, fill: "var(--ink)", "font-size": 10});
      made.textContent = text(Number(value.toPrecision(8)));
    }
    path(one) {
      let words = "";
      one.x.forEach((value, n) => {
        const x = this.x.place(value).toFixed(2), y = this.y.place(one.y[n]).toFixed(2);
        words += !n ? `M${x} ${y}` : one.steps ? `H${x}V${y}` : `L${x} ${y}`;
      });
      const style = one.group ? (one.group.matches("path") ? one.group : one.group.querySelector("path")).style : {};
      const made = this.add(this.drawn, "path", {d: words, "clip-path": this.clip});
      Object.assign(made.style, {
        fill: "none", stroke: style.stroke, strokeDasharray: style.strokeDasharray, strokeWidth: style.strokeWidth || "1.5",
      });
    }
  }

  document.querySelectorAll("svg[data-plot]").forEach((svg, number) => new Picture(svg, number));
})();
