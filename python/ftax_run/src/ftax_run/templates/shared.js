// What this page and that of `ftax report` have in common: words beside the pointer, and themes.
"use strict";
const root = document.documentElement;
root.classList.add("scripted");

const tip = document.body.appendChild(document.createElement("div"));
tip.id = "tip";
tip.hidden = true;

function showTip(words, x, y) {
  tip.textContent = words;
  tip.hidden = !words;
  if (!words) return;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, root.clientWidth - width - 4))}px`;
  tip.style.top = `${y + height + 20 > innerHeight ? Math.max(4, y - height - 10) : y + 14}px`;
}
const hideTip = () => showTip("");
addEventListener("scroll", hideTip, { passive: true, capture: true });

const themeButton = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");

function remember(theme) {
  try {
    if (theme) localStorage.setItem("ftax-theme", theme);
    return localStorage.getItem("ftax-theme");
  } catch {  // a file, or a browser that keeps nothing: the page forgets
    return theme;
  }
}

function showTheme(theme) {
  if (["light", "dark"].includes(theme)) root.dataset.theme = theme;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  themeButton.textContent = isDark ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", `Change to the ${isDark ? "light" : "dark"} theme`);
}
themeButton.addEventListener("click", () => showTheme(remember(themeButton.textContent.toLowerCase())));
system.addEventListener("change", () => showTheme());
showTheme(remember());

