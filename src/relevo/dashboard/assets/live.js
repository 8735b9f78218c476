// @ts-check
/** Keeps a page up to date: the host sends the parts that changed, and they are merged in place. */

import { morph } from "./morph.js";
import { showTimes } from "./times.js";

export function live() {
  const bar = /** @type {HTMLElement | null} */ (document.getElementById("live"));
  if (bar === null) return;
  const text = /** @type {HTMLElement} */ (bar.querySelector("[data-age-text]"));
  const button = /** @type {HTMLButtonElement} */ (bar.querySelector("[data-pause]"));
  const [pauseText, resumeText] = [button.textContent, button.dataset.resumeText ?? ""];
  /** @type {EventSource | null} */
  let source = null;
  let shown = Date.now();

  /** @param {MessageEvent<string>} event */
  function receive(event) {
    const parts = /** @type {Record<string, string>} */ (JSON.parse(event.data));
    for (const [id, html] of Object.entries(parts)) {
      const element = document.getElementById(id);
      if (element === null) continue;
      morph(element, html);
      showTimes(element);
      element.dispatchEvent(new CustomEvent("updated", { bubbles: true }));
    }
    shown = Date.now();
    tick();
  }

  function open() {
    source = new EventSource(location.href);
    source.addEventListener("parts", receive);
    source.onerror = tick;
    source.onopen = tick;
  }

  function tick() {
    const state = source === null ? "paused" : source.readyState === EventSource.OPEN ? "live" : "lost";
    if (bar === null) return;
    bar.dataset.state = state;
    const age = `${Math.max(0, Math.round((Date.now() - shown) / 1_000))} s`;
    const aged = (bar.dataset.age ?? "{age}").replace("{age}", age);
    text.textContent = state === "live" ? aged : `${bar.dataset[state] ?? ""} · ${aged}`;
  }

  button.addEventListener("click", () => {
    if (source === null) open();
    else {
      source.close();
      source = null;
    }
    button.textContent = source === null ? resumeText : pauseText;
    tick();
  });
  document.addEventListener("visibilitychange", () => {
    if (source !== null && document.hidden) source.close();
    else if (source !== null && source.readyState === EventSource.CLOSED) open();
  });
  bar.hidden = false;
  open();
  setInterval(tick, 1_000);
}
