// Draws the values of a run. Names from the program become text nodes, never HTML.
const values = JSON.parse(document.getElementById("values").textContent);
const find = (selector) => document.querySelector(selector);
const NAME = 0, FILE = 1, IS_USERS = 2;  // of a place

function make(tag, className = "", text = "") {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}

function formatTime(ns) {
  if (ns >= 1e9) return `${(ns / 1e9).toFixed(2)} s`;
  if (ns >= 1e6) return `${(ns / 1e6).toFixed(2)} ms`;
  return `${(ns / 1e3).toFixed(ns && ns < 1e4 ? 1 : 0)} \u00b5s`;
}
const formatShare = (part, whole) => `${(100 * part / (whole || 1)).toFixed(part < 0.1 * whole ? 1 : 0)} %`;
const formatCount = (count) => count.toFixed(1).replace(/\.0$/, "");
const typeset = (text) => text.replace(/(\d) us\b/g, "$1 \u00b5s");
const namePlace = (place) => values.places[place][NAME];
