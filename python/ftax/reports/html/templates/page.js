// What a page can do beyond being read: filters, words beside the pointer, large charts, themes.
//
// Everything is in the page before this runs; nothing here draws.

// ---- filters: of what the section of a form has -------------------------------------------------

// What a row, a bar or a line is, by the name of a filter; undefined if it does not say.
function read(node, name) {
  return node.closest(`[data-${name}]`)?.dataset[name] ?? node.querySelector(`[data-label="${name}"]`)?.textContent;
}

for (const form of document.querySelectorAll("form.filters")) {
  const scope = form.closest(".study, section");
  const apply = () => {
    const chosen = {};
    for (const box of form.querySelectorAll("input")) (chosen[box.name] ??= []).push(...(box.checked ? [box.value] : []));
    const select = form.querySelector("select");
    if (select?.value) chosen[select.name] = [select.value];
    const isShown = (node) => Object.entries(chosen).every(([name, values]) =>
      read(node, name) === undefined || values.includes(read(node, name)));
    for (const node of scope.querySelectorAll(".verdict, table.filtered tbody tr, g.line, .bar, .legend li")) {
      node.toggleAttribute("hidden", !isShown(node));
    }
    for (const figure of scope.querySelectorAll("figure")) {
      figure.hidden = !figure.querySelector("g.line:not([hidden]), .bar:not([hidden])");
    }
    const all = [...scope.querySelectorAll(form.dataset.counts)];
    const shown = all.filter((node) => !node.hidden).length;
    form.querySelector(".status").textContent = `${shown} of ${all.length} ${form.dataset.noun} shown.`;
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  apply();
}

// ---- words beside the pointer: of the nearest mark of a chart, or of a bar -----------------------

const NEAR = 26;  // pixels

function findNearest(svg, { clientX, clientY }) {
  let best = null, least = NEAR;
  for (const mark of svg.querySelectorAll("g.line:not([hidden]) > use")) {
    const box = mark.getBoundingClientRect();
    const distance = Math.hypot(clientX - box.x - box.width / 2, clientY - box.y - box.height / 2);
    if (distance < least) [best, least] = [mark, distance];
  }
  return best;
}

// The browser's own words would stand beside these.
function takeWords(node) {
  const title = node.querySelector("title");
  node.dataset.words ??= title?.textContent ?? node.getAttribute("title") ?? "";
  title?.remove();
  node.removeAttribute("title");
  return node.dataset.words;
}

function point(event) {
  const svg = event.target.closest("svg.plot[role]");
  const node = svg ? findNearest(svg, event) : event.target.closest(".bar");
  document.querySelector(".pointed")?.classList.remove("pointed");
  const words = node ? takeWords(node) : "";
  if (words) {
    node.classList.add("pointed");
    (node.closest("dialog") ?? document.body).append(tip);
  }
  showTip(words, event.clientX, event.clientY);
}
for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, point);

// ---- a chart as large as the window --------------------------------------------------------------

const dialog = document.body.appendChild(document.createElement("dialog"));
dialog.addEventListener("click", () => dialog.close());
for (const svg of document.querySelectorAll("figure > svg.plot")) {
  const button = document.createElement("button");
  button.className = "enlarge";
  button.textContent = "enlarge";
  button.addEventListener("click", () => {
    const caption = svg.parentElement.querySelector("figcaption");
    const legend = svg.closest(".facets, figure").parentElement.querySelector(":scope > .legend");
    dialog.replaceChildren(...[caption, legend, svg].filter(Boolean).map((node) => node.cloneNode(true)));
    dialog.showModal();
  });
  svg.after(button);
}

// ---- links open what they lead to ------------------------------------------------------------------

function followHash() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  target?.scrollIntoView();
}
window.addEventListener("hashchange", followHash);
followHash();
