// ---- timeline: rows of events on a canvas ------------------------------------------------------------

const AXIS = 22, ROW = 20, STEP = 25, LEAST_NS = 200;
const canvas = find("#timeline canvas");
const brush = canvas.getContext("2d");
const view = { timeline: null, labels: [], start: 0, end: 1, gutter: 150 };

function setTimeline(process) {
  view.timeline = process.timeline;
  if (!view.timeline) return;
  view.labels = view.timeline.names.map(shorten);
  const idle = view.timeline.idle.reduce((sum, [start, end]) => sum + end - start, 0);
  canvas.setAttribute("aria-label", `${formatTime(view.timeline.end)}, in which the device is idle for ${formatTime(idle)}`);
  canvas.style.height = `${AXIS + STEP * view.timeline.rows.length + 6}px`;
  showSpan(0, view.timeline.end);
}

// Of a mangled name of C++ the function, without namespaces and parameters.
function shorten(name) {
  let rest = name.replace(/^_ZN?K?/, ""), found = "";
  if (rest === name) return name;
  for (let digits = /^\d+/.exec(rest)?.[0]; digits; digits = /^\d+/.exec(rest)?.[0]) {
    found = rest.slice(digits.length, digits.length + Number(digits));
    rest = rest.slice(digits.length + Number(digits));
  }
  return found || name;
}

// Times within all of it.
function showSpan(start, end) {
  const all = view.timeline.end;
  const length = Math.min(all, Math.max(LEAST_NS, end - start));
  view.start = Math.max(0, Math.min(start, all - length));
  view.end = view.start + length;
  find("#timeline button").disabled = length >= all;
  drawTimeline();
}

const zoom = (factor, at) => showSpan(at - (at - view.start) * factor, at + (view.end - at) * factor);
const move = (ns) => showSpan(view.start + ns, view.end + ns);
const getPixelNs = () => (view.end - view.start) / Math.max(1, canvas.clientWidth - view.gutter);
const getX = (ns) => view.gutter + (ns - view.start) / getPixelNs();
const getNs = (x) => view.start + (x - view.gutter) * getPixelNs();

// What a colour of the style sheet is in this theme.
function readColours() {
  const probe = document.body.appendChild(make("i"));
  const colours = {};
  for (const name of ["paper", "ink", "faint", "rule", "accent-fill", "quiet-fill", "series-2", "series-3", "series-4", "series-5"]) {
    probe.style.color = `var(--${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return colours;
}

function chooseColour(row, name) {
  if (row.startsWith("Python")) return ["series-3", "series-5", "series-4"][view.timeline.names.indexOf(name) % 3];
  if (row.startsWith("calls") && name.includes("Synchronize")) return "series-2";
  return row.startsWith("device") ? "faint" : "quiet-fill";
}

function drawText(text, x, y, width) {
  if (width < 24) return;
  brush.save();
  brush.beginPath();
  brush.rect(x, y - ROW / 2, width, ROW);
  brush.clip();
  brush.fillText(text, x + 3, y);
  brush.restore();
}

function drawTimeline() {
  const { timeline } = view;
  if (!timeline || !canvas.clientWidth) return;
  const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
  view.gutter = width < 600 ? 90 : 150;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  brush.setTransform(ratio, 0, 0, ratio, 0, 0);
  const colours = readColours();
  brush.font = `12px ${getComputedStyle(tip).fontFamily}`;
  brush.textBaseline = "middle";
  brush.fillStyle = colours["accent-fill"];
  brush.globalAlpha = 0.6;
  for (const [start, end] of timeline.idle) drawBox(start, end, AXIS, height - AXIS);
  brush.globalAlpha = 1;
  drawAxis(colours, height);
  timeline.rows.forEach(([row, events], place) => drawRow(row, events, AXIS + 4 + STEP * place, colours));
}

// Cut off at the edges; at least as wide as can be seen. Its left end and width, or null outside.
function drawBox(start, end, top, height) {
  if (end < view.start || start > view.end) return null;
  const left = Math.max(view.gutter, getX(start));
  const width = Math.min(canvas.clientWidth, getX(end)) - left;
  brush.fillRect(left, top, Math.max(0.7, width), height);
  return [left, width];
}

function drawAxis(colours, height) {
  const wanted = (view.end - view.start) / Math.max(2, (canvas.clientWidth - view.gutter) / 110);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= wanted);
  const digits = Math.max(0, 6 - Math.floor(Math.log10(step)));
  for (let ns = Math.ceil(view.start / step) * step; ns <= view.end; ns += step) {
    brush.fillStyle = colours.rule;
    brush.fillRect(getX(ns), AXIS - 6, 1, height - AXIS + 6);
    brush.fillStyle = colours.faint;
    const words = `${(ns / 1e6).toFixed(digits)} ms`;
    const isCut = getX(ns) + 3 + brush.measureText(words).width > canvas.clientWidth;
    if (!isCut) brush.fillText(words, getX(ns) + 3, AXIS / 2);
  }
}

function drawRow(row, events, top, colours) {
  brush.fillStyle = colours.faint;
  drawText(row, 0, top + ROW / 2, view.gutter - 6);
  for (const [number, start, end] of events) {
    const name = view.timeline.names[number], colour = chooseColour(row, name);
    brush.fillStyle = colours[colour];
    brush.globalAlpha = colour.startsWith("series") ? 0.5 : 1;
    const box = drawBox(start, end, top, ROW);
    brush.globalAlpha = 1;
    if (!box || box[1] < 3) continue;
    brush.fillStyle = colours.paper;
    brush.fillRect(box[0] + box[1] - 1, top, 1, ROW);
    brush.fillStyle = colours[colour === "faint" ? "paper" : "ink"];
    drawText(view.labels[number], box[0], top + ROW / 2, box[1]);
  }
}

function describeAt(x, y) {
  const { timeline } = view;
  const ns = getNs(x), near = 2 * getPixelNs();
  if (x < view.gutter) return "";
  const [row, events] = timeline.rows[Math.floor((y - AXIS - 4) / STEP)] ?? ["", []];
  const event = events.findLast(([, start, end]) => start <= ns && ns <= end) ??
    events.find(([, start, end]) => start - near <= ns && ns <= end + near);
  if (event) {
    const words = new Set([view.labels[event[0]], timeline.names[event[0]]]);
    return `${[...words].join("\n")}\n${formatTime(event[2] - event[1])} from ${formatTime(event[1])}\n${row}`;
  }
  const idle = timeline.idle.find(([start, end]) => start <= ns && ns <= end);
  return idle ? `The device is idle: ${formatTime(idle[1] - idle[0])}` : "";
}

canvas.addEventListener("wheel", (event) => {
  const isWhole = view.end - view.start >= view.timeline.end;
  if (isWhole && event.deltaY > 0) return;  // the page scrolls on
  event.preventDefault();
  hideTip();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX * getPixelNs());
  else zoom(Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY * 0.003))), getNs(Math.max(view.gutter, event.offsetX)));
}, { passive: false });
canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
canvas.addEventListener("pointermove", (event) => {
  if (event.buttons & 1) move(-event.movementX * getPixelNs());
  showTip(event.buttons & 1 ? "" : describeAt(event.offsetX, event.offsetY), event.clientX, event.clientY);
});
canvas.addEventListener("pointerleave", hideTip);
canvas.addEventListener("keydown", (event) => {
  const length = view.end - view.start, middle = (view.start + view.end) / 2;
  const act = { ArrowLeft: () => move(-length / 10), ArrowRight: () => move(length / 10),
    "+": () => zoom(0.7, middle), "-": () => zoom(1 / 0.7, middle) }[event.key];
  if (!act) return;
  act();
  event.preventDefault();
});
addEventListener("resize", drawTimeline);
