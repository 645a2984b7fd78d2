// What all charts share: the page's data, colours of the theme, and marks for runtimes.
//
// A runtime has one colour and one marker on the whole page, filled when Python drives it and open
// when C++ does; a dtype has one dash. No chart depends on colour alone.
"use strict";
window.ftax = (() => {
  const page = JSON.parse(document.getElementById("ftax-data").textContent);
  const root = document.documentElement;
  const shapes = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"];
  const strokes = ["solid", "dash", "dot"];
  const dtypes = ["fp32", "fp16", "bf16"].filter((name) => page.points.some((point) => point.dtype === name));
  const dashes = Object.fromEntries(dtypes.map((name, i) => [name, strokes[i]]));

  const names = new Set();
  for (const point of page.points) names.add(point.runtime);
  for (const group of page.knees) for (const knee of group.knees) names.add(knee.runtime);
  const runtimes = [...names].sort((a, b) => (b === "eager") - (a === "eager") || (a < b ? -1 : 1));

  function isDark() {
    if (root.dataset.theme) return root.dataset.theme === "dark";
    return window.matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function getColours() {
    return page.theme[isDark() ? "dark" : "light"];
  }

  // Chart text knows some tags and entities; what comes from a record is text and nothing else.
  function plain(text) {
    return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  function label(text) {
    return plain(text).split("\n").join("<br>");
  }

  function wrap(text, width) {
    const lines = [""];
    for (const word of String(text).split(" ")) {
      const last = lines[lines.length - 1];
      if (last && last.length + word.length + 1 > width) lines.push(word);
      else lines[lines.length - 1] = last ? `${last} ${word}` : word;
    }
    return lines.map(plain).join("<br>");
  }

  function getMark(runtime, host) {
    const place = Math.max(0, runtimes.indexOf(runtime));
    const colour = getColours()[`series-${(place % page.theme.series) + 1}`];
    const shift = Math.floor(place / page.theme.series);  // the ninth has the colour of the first
    const shape = shapes[(place + shift) % shapes.length];
    return { colour, symbol: host === "cpp" ? `${shape}-open` : shape };
  }

  // Distances from a value to the ends of its interval, as error bars want them. An interval of few rounds may
  // reach below zero, which a logarithm does not: `floor` is the least share of the value to draw then.
  function getWhiskers(items, getValue, scale, colour, floor = null) {
    const measure = (item, end) => (item.interval ? Math.abs(item.interval[end] - getValue(item)) : 0);
    return {
      type: "data", symmetric: false, thickness: 1.2, width: 3, color: colour,
      array: items.map((item) => measure(item, 1) * scale),
      arrayminus: items.map((item) =>
        (floor === null ? measure(item, 0) : Math.min(measure(item, 0), getValue(item) * (1 - floor))) * scale),
    };
  }

  function makeAxis(changes) {
    const colours = getColours();
    return {
      gridcolor: colours.rule, linecolor: colours.ink, tickcolor: colours.ink, zeroline: false, showline: true,
      ticks: "outside", ticklen: 4, automargin: true, title: { font: { size: 12 }, standoff: 8 }, ...changes,
    };
  }

  function makeLayout(changes) {
    const colours = getColours();
    const coarse = window.matchMedia("(pointer: coarse)").matches;  // a finger scrolls
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true, showlegend: false,
      font: { family: page.theme.sans, size: 12, color: colours.ink }, hovermode: "closest",
      margin: { l: 52, r: 14, t: 8, b: 42 }, dragmode: coarse ? false : "zoom",
      hoverlabel: { bgcolor: colours.sheet, bordercolor: colours.quiet, align: "left",
        font: { family: page.theme.sans, size: 12, color: colours.ink } },
      ...changes,
    };
  }

  function formatSeconds(value) {
    const [scale, unit] = value < 0.999e-6 ? [1e9, "ns"] : value < 0.999e-3 ? [1e6, "\u00b5s"]
      : value < 0.999 ? [1e3, "ms"] : [1, "s"];
    return `${Number((value * scale).toPrecision(3))} ${unit}`;
  }

  // Own ticks, since Plotly's between decades lose their unit: of 1, 2, 5, of 1, 3, or of decades as
  // many as there is room for, or even steps in a range too short for any of them.
  function makeTimeAxis(values, most = 6) {
    const low = Math.min(...values), high = Math.max(...values);
    const pad = 0.02 + 0.06 * Math.log10(high / low);
    const count = (ticks) => ticks.filter((tick) => tick >= low && tick <= high).length;
    const decades = [];
    for (let i = Math.floor(Math.log10(low)) - 1; i <= Math.ceil(Math.log10(high)); i += 1) decades.push(i);
    const kinds = [[1, 2, 5], [1, 3], [1]].map((digits) =>
      decades.flatMap((decade) => digits.map((digit) => digit * 10 ** decade)));
    let ticks = kinds.find((kind) => count(kind) <= most) || kinds[2];
    let each = 1;
    if (count(ticks) < 2) {
      ticks = makeEvenTicks(low, high);
      each = count(ticks) >= most ? 2 : 1;  // every second has a label
    }
    return makeAxis({ type: "log", range: [Math.log10(low) - pad, Math.log10(high) + pad], tickvals: ticks,
      ticktext: ticks.map((tick, i) => (i % each === 0 ? formatSeconds(tick) : "")) });
  }

  // The largest round step with at least two multiples between the ends.
  function makeEvenTicks(low, high) {
    const span = Math.max(high - low, low * 0.02);
    const decade = 10 ** Math.floor(Math.log10(span));
    const count = (step) => Math.floor(high / step) - Math.ceil(low / step) + 1;
    const step = [5, 2, 1, 0.5].map((digit) => digit * decade).find((size) => count(size) >= 2) || decade / 4;
    const first = Math.floor(low / step) - 1;
    const ticks = [];
    for (let i = first; i <= Math.ceil(high / step) + 1 && i < first + 30; i += 1) ticks.push(i * step);
    return ticks.filter((tick) => tick > 0);
  }

  function makeTitle(text) {
    return { text: plain(text), font: { size: 12 }, standoff: 8 };
  }

  return { page, root, runtimes, dashes, isDark, getColours, plain, label, wrap, getMark, getWhiskers,
    makeAxis, makeTimeAxis, makeLayout, makeTitle };
})();
