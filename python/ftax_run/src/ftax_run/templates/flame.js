// ---- flame graph: a list of frames, each after its caller -------------------------------------------

const FRAME_REM = 1.25, LEAST_SHARE = 0.0008;
const flame = { box: find("#flame .frames"), frames: [], focus: null };

function setFlame(process) {
  flame.process = process;
  flame.frames = process.stacks.map(([caller, place, time, own]) => ({ caller, place, time, own, callees: [] }));
  for (const frame of flame.frames) {
    frame.depth = frame.caller < 0 ? 0 : flame.frames[frame.caller].depth + 1;
    flame.frames[frame.caller]?.callees.push(frame);
  }
  for (const frame of flame.frames) frame.callees.sort((a, b) => b.time - a.time);
  focusOn(flame.frames[0]);
}

function describeFrame(frame) {
  const { process } = flame;
  const what = process.busy === null ? "the main thread's time" : "exposed idle";
  const time = `${formatTime(frame.time)} ${process.unit}, ${formatShare(frame.time, flame.frames[0].time)} of ${what}`;
  if (frame.place < 0) return time;
  const own = frame.callees.length ? `\n${formatTime(frame.own)} in the line itself` : "";
  return `${namePlace(frame.place)}\n${time}${own}\n${values.places[frame.place][FILE]}`;
}

function drawFrame(frame, left, width, isCaller) {
  const isUsers = frame.place >= 0 && values.places[frame.place][IS_USERS];
  const node = make("button", `frame ${isUsers ? "users" : "package"}${isCaller ? " caller" : ""}`);
  const words = describeFrame(frame);
  node.type = "button";
  node.tabIndex = isUsers || frame === flame.focus ? 0 : -1;  // keys reach the program's own lines
  node.setAttribute("aria-label", words);
  if (width > 0.02) node.textContent = frame.place < 0 ? `all: ${formatTime(frame.time)}` : namePlace(frame.place);
  node.style.left = `${100 * left}%`;
  node.style.width = `${100 * width}%`;
  node.style.top = `${FRAME_REM * frame.depth}rem`;
  node.addEventListener("click", () => focusOn(frame, true));
  node.addEventListener("pointermove", (event) => showTip(words, event.clientX, event.clientY));
  node.addEventListener("pointerleave", hideTip);
  return node;
}

// That frame as wide as the page, its callers above it, its callees below.
function focusOn(frame, isMoved = false) {
  const nodes = [];
  flame.focus = frame;
  for (let at = flame.frames[frame.caller]; at; at = flame.frames[at.caller]) nodes.unshift(drawFrame(at, 0, 1, true));
  const place = nodes.length;
  let depth = frame.depth;
  const waiting = [[frame, 0]];
  while (waiting.length) {
    const [at, left] = waiting.pop();
    const width = at.time / (frame.time || 1);
    if (width < LEAST_SHARE) continue;
    depth = Math.max(depth, at.depth);
    nodes.push(drawFrame(at, left, Math.min(1, width), false));
    const callees = [];
    let start = left;
    for (const callee of at.callees) {
      callees.push([callee, start]);
      start += callee.time / frame.time;
    }
    waiting.push(...callees.reverse());  // the keys go from left to right
  }
  flame.box.replaceChildren(...nodes);
  flame.box.style.height = `${FRAME_REM * (depth + 1)}rem`;
  find("#flame button").disabled = frame.caller < 0;
  hideTip();
  if (isMoved) nodes[place].focus({ preventScroll: true });
}
