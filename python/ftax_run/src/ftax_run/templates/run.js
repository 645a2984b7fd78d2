// ---- bars and tables -------------------------------------------------------------------------------

function drawBar(name, time, start, wall, kind) {
  const bar = make("div", "bar"), track = make("span", "track"), part = make("i", kind);
  part.style.left = `${100 * start / (wall || 1)}%`;
  part.style.width = `${100 * time / (wall || 1)}%`;
  track.append(part);
  bar.append(make("span", "name", name), track, make("span", "value", `${formatTime(time)} (${formatShare(time, wall)})`));
  return bar;
}

function drawCauses({ wall, busy, causes, unit, notes }) {
  const hasDevice = busy !== null;
  const bars = hasDevice ? [drawBar("device busy", busy, 0, wall, "busy")] : [];
  let start = busy ?? 0;
  for (const [cause, time] of causes) {
    bars.push(drawBar(hasDevice ? `idle: ${cause}` : cause, time, start, wall, "idle"));
    start += time;
  }
  const counted = make("p", "note", typeset([`${formatTime(wall)} ${unit}.`, ...notes.map((note) => `${note}.`)].join(" ")));
  find("#causes").replaceChildren(...bars, counted);
}

// A column whose name begins with "#" has numbers.
function drawTable(id, title, columns, rows) {
  const section = find(id);
  section.hidden = !rows.length;
  section.querySelector("h2").textContent = title;
  const draw = (cells, tag) => {
    const row = make("tr");
    row.append(...cells.map((cell, place) => make(tag, columns[place][0] === "#" ? "n" : "", cell)));
    if (tag === "th") for (const cell of row.children) cell.scope = "col";
    return row;
  };
  const head = make("thead"), body = make("tbody");
  head.append(draw(columns.map((name) => name.replace("#", "")), "th"));
  body.append(...rows.map((row) => draw(row, "td")));
  section.querySelector("table").replaceChildren(head, body);
}

function drawLines({ lines, busy, unit, stacks }) {
  const whole = busy === null ? "the main thread's time" : "exposed idle";
  const rows = lines.map(({ place, time, cause, leaf, leaf_share }) => [
    formatTime(time), formatShare(time, stacks[0][2]), namePlace(place), cause,
    leaf === place ? "" : namePlace(leaf), leaf === place ? "" : formatShare(leaf_share, 1)]);
  const title = `${whole[0].toUpperCase()}${whole.slice(1)} by line of the program, ${unit}`;
  drawTable("#lines", title, ["#time", "#share", "line", "most for", "most of it in", "#share of the line"], rows);
}

function drawProcess(process) {
  const hasDevice = process.busy !== null;
  find("#sentence").hidden = process.sentence === values.headline;
  find("#sentence").textContent = process.sentence;
  drawCauses(process);
  find("#flame").hidden = !process.stacks[0][2];
  find("#flame .gaps").hidden = !hasDevice;
  find("#flame h2").textContent = `Flame graph of ${hasDevice ? "exposed idle" : "the main thread's time"}, ${process.unit}`;
  setFlame(process);
  find("#timeline").hidden = !process.timeline;
  const rows = process.timeline?.rows.map(([row]) => row) ?? [];
  find("#timeline h2").textContent = rows.includes("iterations") ? "The last two iterations" : "A stretch of what was recorded";
  setTimeline(process);
  drawLines(process);
  drawTable("#syncs", `Synchronisations, ${process.unit}`, ["#count", "line", "#idle that begins in it"],
    process.syncs.map(([place, count, exposed, isNear]) => [
      formatCount(count), `${isNear ? "near " : ""}${namePlace(place)}`, formatTime(exposed)]));
  drawTable("#work", `Work, ${process.unit}`, ["what", "#count"],
    process.work.map(([name, count]) => [name, formatCount(count)]));
  find("#limits ul").replaceChildren(...process.limits.map((text) => make("li", "", typeset(text))));
}

// ---- the whole page ----------------------------------------------------------------------------------

const select = find("#process");
select.append(...values.processes.map(({ name }) => make("option", "", name)));
find("#choice").hidden = values.processes.length < 2;
select.addEventListener("change", () => drawProcess(values.processes[select.selectedIndex]));
find("#limits").hidden = !values.processes.length;
if (values.processes.length) drawProcess(values.processes[0]);

const showAll = { "#flame button": () => focusOn(flame.frames[0]), "#timeline button": () => showSpan(0, view.timeline.end) };
for (const [button, act] of Object.entries(showAll)) find(button).addEventListener("click", act);
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !values.processes.length) return;
  if (flame.focus.caller >= 0) showAll["#flame button"]();
  if (view.timeline) showAll["#timeline button"]();
});
themeButton.addEventListener("click", drawTimeline);  // after the theme has changed
system.addEventListener("change", drawTimeline);
