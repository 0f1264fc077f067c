"use strict";
// The page: what-if cards, theme, hints on charts. Text enters it as text, never as HTML.

(() => {
  const GB = 1e9;
  const STEPS = 1000;
  const cards = [];

  /** Element with text or children. */
  function make(name, attributes, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function significant(value, digits = 4) {
    if (!Number.isFinite(value)) return "∞";
    if (value === 0) return "0";
    const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
    const options = { minimumFractionDigits: Math.min(places, 20), maximumFractionDigits: Math.min(places, 20) };
    return value.toLocaleString("en-US", options);
  }

  function withUnit(value, units) {
    for (const [size, unit] of units) {
      if (Math.abs(value) >= size) return `${significant(value / size)} ${unit}`;
    }
    const [size, unit] = units[units.length - 1];
    return `${significant(value / size)} ${unit}`;
  }

  const seconds = (t) =>
    Number.isFinite(t) ? withUnit(t, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]) : "no end";
  const dollars = (v) => withUnit(v, [[1e9, "G USD"], [1e6, "M USD"], [1e3, "k USD"], [1, "USD"]]);
  const PRODUCTS = [[1e12, "T s·USD"], [1e9, "G s·USD"], [1e6, "M s·USD"], [1e3, "k s·USD"], [1, "s·USD"]];
  const watts = (v) => withUnit(v, [[1e6, "MW"], [1e3, "kW"], [1, "W"]]);
  const percent = (v, digits = 1) => `${(100 * v).toFixed(digits)} %`;
  const gigabytes = (b) => Number((b / GB).toPrecision(15));
  const joined = (names) =>
    names.length < 2
      ? names[0] ?? "latency"
      : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;

  function difference(value, best, start) {
    if (!Number.isFinite(value)) return "the step never ends";
    const ratio = value / best - 1;
    if (Math.abs(ratio) < 5e-7) return start;
    const size = Math.abs(ratio) < 0.001 ? 4 : 2;
    return `${percent(Math.abs(ratio), size)} ${ratio > 0 ? "longer" : "shorter"}`;
  }

  class WhatIf {
    constructor(root) {
      this.root = root;
      this.key = root.dataset.key;
      this.model = JSON.parse(document.getElementById(root.dataset.model).textContent);
      this.best = this.model.bandwidth;
      this.bandwidth = [...this.best];
      this.start = stepModel.evaluate(this.model, this.best);
      this.rows = this.model.dimensions.map((name, d) => this.addRow(name, d));
      this.part = (name) => root.querySelector(`[data-part="${name}"]`);
      for (const button of root.querySelectorAll("button[data-do]")) {
        button.addEventListener("click", () => this[button.dataset.do]());
      }
      this.show();
    }

    addRow(name, d) {
      const choices = this.model.choices[d];
      const id = `${this.key}-b${d}`;
      const max = choices ? choices.length - 1 : STEPS;
      const slider = make("input", { type: "range", min: 0, max, step: 1, id });
      const label = make("label", { for: id }, name);
      let number;
      if (choices) {
        number = make("select", { "aria-label": `${name}, GB/s` });
        choices.forEach((b, k) => number.append(make("option", { value: k }, `${gigabytes(b)}`)));
        number.addEventListener("change", () => this.set(d, choices[Number(number.value)]));
      } else {
        number = make("input", { type: "number", min: 0, step: "any", "aria-label": `${name}, GB/s` });
        number.addEventListener("change", () => {
          const value = Number(number.value);
          if (number.value.trim() !== "" && Number.isFinite(value) && value >= 0) this.set(d, value * GB);
          else this.show();
        });
      }
      slider.addEventListener("input", () => this.set(d, this.ofSlider(d, Number(slider.value))));
      const busy = make("span", { class: "busy" });
      const fill = make("span", { class: "fill" });
      const bar = make("span", { class: "meter", "aria-hidden": "true" }, fill);
      const cells = [label, slider, make("span", { class: "value" }, number, " GB/s"), bar, busy];
      this.root.querySelector(".sliders").append(make("div", { class: "slider" }, ...cells));
      return { slider, number, busy, fill };
    }

    /** Bandwidth at a position of a slider: a choice, or logarithmic with five digits. */
    ofSlider(d, position) {
      const choices = this.model.choices[d];
      if (choices) return choices[position];
      const [low, high] = this.model.sliders[d];
      const value = low * (high / low) ** (position / STEPS);
      return Number((value / GB).toPrecision(5)) * GB;
    }

    positionOf(d) {
      const choices = this.model.choices[d];
      const b = this.bandwidth[d];
      if (choices) return nearest(choices, b);
      const [low, high] = this.model.sliders[d];
      if (b <= low) return 0;
      return Math.min(STEPS, Math.round((STEPS * Math.log(b / low)) / Math.log(high / low)));
    }

    set(d, value) {
      this.bandwidth[d] = value;
      this.changed();
    }

    setAll(values) {
      this.bandwidth = values.map((b, d) => {
        const choices = this.model.choices[d];
        return choices ? choices[nearest(choices, b)] : b;
      });
      this.changed();
    }

    reset() {
      this.bandwidth = [...this.best];
      this.changed();
    }

    equalise() {
      const total = this.bandwidth.reduce((sum, b) => sum + b, 0);
      this.setAll(this.bandwidth.map(() => total / this.bandwidth.length));
    }

    changed() {
      this.show();
      writeFragment();
    }

    isStart() {
      return this.bandwidth.every((b, d) => b === this.best[d]);
    }

    state() {
      return this.bandwidth.map((b) => gigabytes(b)).join();
    }

    constraints() {
      const lines = this.bandwidth.map(
        (b, d) => `  - ${this.model.constraintNames[d]} == ${gigabytes(b)} GB/s`,
      );
      return ["constraints:", ...lines].join("\n");
    }

    copyConstraints() {
      this.copy(this.constraints(), "Constraints copied.");
    }

    copyLink() {
      writeFragment();
      this.copy(location.href, "Link copied.");
    }

    /** Copy text, and show it for where a page may not copy. */
    copy(text, done) {
      const shown = this.part("copied");
      shown.hidden = false;
      shown.textContent = text;
      const say = (message) => (this.part("message").textContent = message);
      const select = () => {
        const range = document.createRange();
        range.selectNodeContents(shown);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        say("Selected: press Ctrl+C to copy.");
      };
      if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => say(done), select);
      else select();
    }

    show() {
      const found = stepModel.evaluate(this.model, this.bandwidth);
      this.rows.forEach((row, d) => {
        row.slider.value = this.positionOf(d);
        row.slider.setAttribute("aria-valuetext", `${significant(this.bandwidth[d] / GB)} GB/s`);
        row.number.value =
          row.number.tagName === "SELECT" ? this.positionOf(d) : Number((this.bandwidth[d] / GB).toPrecision(7));
        row.number.title = `${gigabytes(this.bandwidth[d])} GB/s`;
        row.number.dataset.bytes = this.bandwidth[d];
        const busy = Math.max(...found.workloads.map((w) => (w.time ? w.busy[d] / w.time : 0)));
        row.fill.style.width = `${Math.min(100, 100 * (busy || 0))}%`;
        row.busy.textContent = Number.isFinite(busy) ? `in use ${percent(busy)}` : "no bandwidth";
      });
      const time = this.part("time");
      time.textContent = `${found.exact ? "" : "at least "}${seconds(found.time)}`;
      time.dataset.seconds = found.time;
      this.part("difference").textContent = difference(
        found.time,
        this.start.time,
        this.isStart() && this.model.optimal ? "at the optimum" : "as at the start",
      );
      this.part("total").textContent = `${significant(found.total / GB, 5)} GB/s`;
      const cost = this.part("cost");
      cost.textContent = dollars(found.cost);
      cost.dataset.usd = found.cost;
      const power = this.part("power");
      power.textContent = found.power === null ? "not known" : watts(found.power);
      if (found.power !== null) power.dataset.watts = found.power;
      this.part("product").textContent =
        withUnit(found.time * (this.model.fixedCost + found.cost), PRODUCTS);
      this.part("bottleneck").textContent = this.bottleneck(found);
      this.part("parts").replaceChildren(...found.workloads.map((w, k) => this.partsOf(w, k)));
      const checks = found.rows.map((row) =>
        make("li", { class: row.met ? "met" : "broken" }, `${row.met ? "✓" : "✗ broken:"} ${row.text}`),
      );
      if (!checks.length) checks.push(make("li", {}, "The design has none."));
      this.part("rows").replaceChildren(...checks);
    }

    bottleneck(found) {
      const lines = found.workloads.map((w, k) => {
        const name = found.workloads.length > 1 ? `${this.model.workloads[k].name}: ` : "";
        if (!Number.isFinite(w.time)) return `${name}a dimension with traffic has no bandwidth.`;
        const largest = w.groups[0];
        const share = w.time ? w.compute / w.time : 1;
        const compute = `${name}compute takes ${percent(share)} of the step`;
        if (!largest) return `${compute}; no communication is exposed.`;
        const names = largest.limits.map((d) => this.model.dimensions[d]);
        return `${compute}; most exposed communication, ${seconds(largest.time)}, is limited by ${joined(names)}.`;
      });
      const text = lines.join(" ");
      return found.workloads.length > 1 ? text : text[0].toUpperCase() + text.slice(1);
    }

    /** Stacked bar of a workload's step, with its legend. */
    partsOf(w, k) {
      const parts = [{ name: "compute", time: w.compute, color: "compute" }];
      w.groups.forEach((group, i) => {
        const names = group.limits.map((d) => this.model.dimensions[d]);
        parts.push({ name: `limited by ${joined(names)}`, time: group.time, color: `c${i % 6}` });
      });
      const bar = make("div", { class: "stack", "aria-hidden": "true" });
      const legend = make("ul", { class: "legend" });
      for (const part of parts) {
        const share = w.time ? part.time / w.time : 0;
        const piece = make("span", { class: part.color });
        piece.style.width = `${100 * (Number.isFinite(share) ? share : 0)}%`;
        bar.append(piece);
        const swatch = make("span", { class: `swatch ${part.color}`, "aria-hidden": "true" });
        const text = `${part.name}: ${seconds(part.time)}${Number.isFinite(share) ? ` (${percent(share)})` : ""}`;
        legend.append(make("li", {}, swatch, text));
      }
      const name = this.model.workloads.length > 1 ? [make("p", {}, this.model.workloads[k].name)] : [];
      return make("div", {}, ...name, bar, legend);
    }
  }

  function nearest(choices, b) {
    let best = 0;
    choices.forEach((c, k) => {
      if (Math.abs(c - b) < Math.abs(choices[best] - b)) best = k;
    });
    return best;
  }

  /** State of all cards that are not at their start, in the address: #r1=600,350&r2=… */
  function writeFragment() {
    const parts = cards.filter((c) => !c.isStart()).map((c) => `${c.key}=${c.state()}`);
    try {
      history.replaceState(null, "", parts.length ? `#${parts.join("&")}` : location.pathname + location.search);
    } catch {
      location.hash = parts.join("&");
    }
  }

  function readFragment() {
    for (const part of location.hash.slice(1).split("&")) {
      const [key, text] = part.split("=");
      const card = cards.find((c) => c.key === key);
      if (!card || !text) continue;
      const values = text.replaceAll(/%2C/gi, ",").split(",").map(Number);
      const fits = values.length === card.best.length && values.every((v) => Number.isFinite(v) && v >= 0);
      if (fits) card.setAll(values.map((v) => v * GB));
    }
  }

  /** Charts say what a mark shows when the pointer rests on it. */
  function addHints() {
    const hint = make("div", { class: "hint", "aria-hidden": "true" });
    hint.hidden = true;
    document.body.append(hint);
    document.addEventListener("pointermove", (event) => {
      const mark = event.target.closest?.("svg [aria-label]:not(g)");
      hint.hidden = !mark;
      if (!mark) return;
      hint.textContent = mark.getAttribute("aria-label").replaceAll("; ", "\n");
      const left = Math.min(event.clientX + 14, innerWidth - hint.offsetWidth - 8);
      hint.style.left = `${Math.max(4, left)}px`;
      hint.style.top = `${event.clientY + 16}px`;
    });
  }

  function addTheme() {
    const button = document.getElementById("theme");
    const dark = () =>
      (document.documentElement.dataset.theme ??
        (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const name = () => (button.textContent = dark() ? "Light mode" : "Dark mode");
    button.hidden = false;
    button.addEventListener("click", () => {
      document.documentElement.dataset.theme = dark() ? "light" : "dark";
      name();
    });
    name();
  }

  for (const root of document.querySelectorAll(".what-if")) cards.push(new WhatIf(root));
  readFragment();
  addEventListener("hashchange", readFragment);
  addHints();
  addTheme();
})();
