// Runs the script of a page in node, where a few lines stand for a browser. Does what the second
// argument names, and prints what is to be seen then.
"use strict";
const fs = require("fs");
const vm = require("vm");
const html = fs.readFileSync(process.argv[2], "utf8");
const ids = new Set([...html.matchAll(/ id="(\w+)"/g)].map(([, id]) => id));

class Element {
  constructor() {
    Object.assign(this, { children: [], style: {}, dataset: {}, listeners: {}, text: "", selectedIndex: 0 });
    this.classList = { add() {} };
    this.clientWidth = 1150;  // of a canvas: 150 for names, and a pixel a nanosecond
    this.clientHeight = 200;
  }
  get textContent() { return this.text + this.children.map((child) => child.textContent).join("|"); }
  set textContent(text) { Object.assign(this, { text, children: [] }); }
  append(...nodes) { this.children.push(...nodes); }
  appendChild(node) { this.append(node); return node; }
  replaceChildren(...nodes) { Object.assign(this, { text: "", children: nodes }); }
  addEventListener(kind, act) { this.listeners[kind] = act; }
  querySelector(selector) { return find(`${this.selector} ${selector}`); }
  getBoundingClientRect() { return { width: 10, height: 10 }; }
  getContext() { return brush; }
  setAttribute(name, value) { this[name] = value; }
  setPointerCapture() {}
  focus() { focused = this; }
  remove() {}
}

let focused = null, boxes = [];  // of the last drawing
const fakes = { setTransform() { boxes = []; }, fillRect(...box) { boxes.push(box); },
  measureText: () => ({ width: 40 }) };
const brush = new Proxy(fakes, { get: (own, name) => own[name] ?? (() => {}) });
const elements = {};
function find(selector) {
  const id = /^#(\w+)/.exec(selector)[1];
  if (!ids.has(id)) throw new Error(`the page has no ${selector}`);
  return elements[selector] ??= Object.assign(new Element(), { selector });
}
const page = new Element();
const document = {
  documentElement: new Element(), body: new Element(), querySelector: find,
  getElementById: (id) => find(`#${id}`), createElement: () => new Element(),
};
find("#values").textContent = /id="values">(.*?)<\/script>/s.exec(html)[1];
vm.runInNewContext(/<script>(.*?)<\/script>/s.exec(html)[1], {
  document, innerHeight: 800, devicePixelRatio: 1,
  addEventListener: (kind, act) => page.addEventListener(kind, act),
  getComputedStyle: () => ({ color: "#000", fontFamily: "serif" }),
  matchMedia: () => ({ matches: false, addEventListener() {} }),
  localStorage: { getItem: () => null, setItem() {} },
});

const frames = () => find("#flame .frames").children;
const tip = document.body.children.find(({ id }) => id === "tip");
const canvas = find("#timeline canvas");
const at = (x, y, more) => ({ offsetX: x, offsetY: y, clientX: x, clientY: y, buttons: 0, preventDefault() {}, ...more });
const actions = {
  nothing() {},
  click: () => frames().at(-1).listeners.click(),
  escape() { actions.click(); actions.wheel(); page.listeners.keydown({ key: "Escape" }); },
  pointFrame: () => frames().at(-1).listeners.pointermove(at(5, 5)),
  pointDevice: () => canvas.listeners.pointermove(at(200, 60)),
  pointIdle: () => canvas.listeners.pointermove(at(900, 60)),
  wheel: () => canvas.listeners.wheel(at(650, 60, { deltaX: 0, deltaY: -100 })),
  drag() { actions.wheel(); canvas.listeners.pointermove(at(650, 60, { buttons: 1, movementX: 50 })); },
  choose() { find("#process").selectedIndex = 1; find("#process").listeners.change(); },
};
actions[process.argv[3]]();
console.log(JSON.stringify({
  frames: frames().map(({ style, className, textContent }) => [style.left, style.width, className, textContent]),
  focused: focused?.textContent, tip: tip.textContent, boxes,
  texts: Object.fromEntries(Object.entries(elements).filter(([, { hidden }]) => !hidden)
    .map(([selector, { textContent }]) => [selector, textContent])),
}));
