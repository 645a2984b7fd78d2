// The page itself: draws charts as they come into view, filters them and the tables, changes the
// theme, and prints in the light one.
"use strict";
(() => {
  const { page, root, runtimes, dashes, getMark, getColours } = ftax;
  const places = [...document.querySelectorAll("[data-chart]")];
  const form = document.getElementById("filters");
  root.classList.add("scripted");

  // ---- charts ----------------------------------------------------------------------------------

  const CONFIG = { displayModeBar: false, responsive: true };

  function draw(place) {
    const figure = place.closest("figure");
    if (figure && figure.hidden) return;
    const [traces, layout] = ftax.charts[place.dataset.chart](place, Number(place.dataset.item));
    Plotly.react(place, traces, layout, CONFIG);
    place.dataset.state = "drawn";
  }

  // A page may have hundreds of charts: each is drawn, and drawn anew, a screen before it is seen.
  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting && target.dataset.state !== "drawn") draw(target);
    }
  }, { rootMargin: "100% 0px" });

  function redraw() {
    for (const place of places) {
      place.dataset.state = "stale";
      watcher.unobserve(place);
      watcher.observe(place);  // tells at once whether it is near
    }
  }

  // ---- filters ---------------------------------------------------------------------------------

  let chosen = {};

  function readFilters() {
    chosen = {};
    if (!form) return;
    const select = form.elements.model;
    if (select && select.value) chosen.model = new Set([select.value]);
    for (const box of form.querySelectorAll("input[type=checkbox]")) {
      chosen[box.name] ??= new Set();
      if (box.checked) chosen[box.name].add(box.value);
    }
  }

  ftax.isShown = (keys) => Object.entries(chosen).every(([name, values]) => values.has(keys[name]));

  const CAN_SHOW = {
    latency: (point) => true,
    overhead: (point) => point.overhead !== null,
    work: (point) => point.macs && point.kernels,
  };

  function hasPoints(place) {
    const can = CAN_SHOW[place.dataset.chart];
    if (!can) return true;
    const item = Number(place.dataset.item);
    const isMine = place.dataset.chart === "work"
      ? (point) => point.machine === page.machines[item] : (point) => point.facet === item;
    return page.points.some((point) => isMine(point) && can(point) && ftax.isShown(point));
  }

  function applyFilters() {
    readFilters();
    for (const place of places) place.closest("figure").hidden = !hasPoints(place);
    for (const row of document.querySelectorAll("#measurements tr[data-model]")) {
      row.hidden = !ftax.isShown(row.dataset);
    }
    drawLegends();
    const own = page.points.filter((point) => !point.guest);
    const shown = own.filter(ftax.isShown).length;
    const status = document.getElementById("shown");
    if (status) status.textContent = `${shown} of ${own.length} latencies shown.`;
    redraw();
  }

  // ---- legends ---------------------------------------------------------------------------------

  const OUTLINES = {
    circle: "M14 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z", square: "M14 2h8v8h-8Z", diamond: "M18 1l5 5l-5 5l-5-5Z",
    "triangle-up": "M18 1.5l4.6 8h-9.2Z", "triangle-down": "M18 10.5l4.6-8h-9.2Z",
    cross: "M16.5 1.5h3v3h3v3h-3v3h-3v-3h-3v-3h3Z",
    x: "M14.6 1.2l3.4 3.4l3.4-3.4l1.4 1.4l-3.4 3.4l3.4 3.4l-1.4 1.4l-3.4-3.4l-3.4 3.4l-1.4-1.4l3.4-3.4l-3.4-3.4Z",
    star: "M18 .5l1.5 3.7l4 .3l-3 2.6l1 3.9l-3.5-2.1l-3.5 2.1l1-3.9l-3-2.6l4-.3Z",
  };
  const STROKES = { solid: "", dash: "6 3", dot: "2 2.5" };

  function makeKey(text, colour, symbol, dash) {
    const item = document.createElement("li");
    const open = symbol.endsWith("-open");
    const make = (name, attributes) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      return node;
    };
    const svg = make("svg", { viewBox: "0 0 36 12", "aria-hidden": "true" });
    svg.append(make("line", { x1: 0, x2: 36, y1: 6, y2: 6, stroke: colour, "stroke-width": 1.6,
      "stroke-dasharray": STROKES[dash] }));
    if (symbol) {
      svg.append(make("path", { d: OUTLINES[symbol.replace("-open", "")], stroke: colour, "stroke-width": 1.4,
        fill: open ? getColours().paper : colour }));
    }
    item.append(svg, text);
    return item;
  }

  function drawLegends() {
    const ink = getColours().ink;
    for (const legend of document.querySelectorAll("[data-legend]")) {
      const shown = page.points.filter((point) => CAN_SHOW[legend.dataset.legend](point) && ftax.isShown(point));
      const pairs = new Set(shown.map((point) => `${point.runtime}/${point.host}`));
      const kinds = Object.keys(dashes).filter((dtype) => shown.some((point) => point.dtype === dtype));
      const items = runtimes.flatMap((runtime) => ["python", "cpp"]
        .filter((host) => pairs.has(`${runtime}/${host}`))
        .map((host) => {
          const { colour, symbol } = getMark(runtime, host);
          return makeKey(`${runtime}/${host}`, colour, symbol, "solid");
        }));
      if (kinds.length > 1) items.push(...kinds.map((dtype) => makeKey(dtype, ink, "", dashes[dtype])));
      legend.replaceChildren(...items);
    }
  }

  // ---- theme -----------------------------------------------------------------------------------

  const button = document.getElementById("theme");

  function remember(theme) {
    try {
      if (theme === undefined) return localStorage.getItem("ftax-theme");
      localStorage.setItem("ftax-theme", theme);
    } catch {  // a file, or a browser that keeps nothing: the page forgets
    }
    return null;
  }

  function showTheme() {
    const dark = ftax.isDark();
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(root.dataset.theme === "dark"));
    button.setAttribute("aria-label", dark ? "Change to the light theme" : "Change to the dark theme");
    drawLegends();
    redraw();
  }

  function setTheme(theme) {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    showTheme();
  }

  button.addEventListener("click", () => {
    const theme = ftax.isDark() ? "light" : "dark";
    remember(theme);
    setTheme(theme);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);

  // ---- links to records, and paper ---------------------------------------------------------------

  function openAround(node) {
    for (let at = node; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
    }
  }

  function followHash() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    openAround(target);
    target.scrollIntoView();
  }

  let before = null;
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    showTheme();
    for (const place of places) draw(place);
  });
  window.addEventListener("afterprint", () => setTheme(before));

  window.addEventListener("hashchange", followHash);
  if (form) {
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", applyFilters);
    form.addEventListener("reset", () => setTimeout(applyFilters));
  }
  const kept = remember();
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  applyFilters();
  showTheme();
  followHash();
})();
