// @ts-check
/**
 * Keyboard: Ctrl+K or Cmd+K opens the palette, in which pages and buttons are found by name; an
 * element with `data-shortcut` is focused or followed by its key; `p` pauses, `?` opens the palette.
 */

/** @typedef {{ text: string, run: () => void }} Command */

/** @returns {Command[]} */
function commands() {
  /** @type {NodeListOf<HTMLAnchorElement>} */
  const links = document.querySelectorAll(".side nav a, main a.button, .facets a");
  /** @type {NodeListOf<HTMLButtonElement>} */
  const buttons = document.querySelectorAll("main button, .preferences button, .who button");
  const named = [...links, ...buttons].map((each) => ({
    text: (each.title || each.textContent || "").trim().replace(/\s+/g, " "),
    run: () => each.click(),
  }));
  const seen = new Set();
  return named.filter(({ text }) => text !== "" && !seen.has(text) && seen.add(text));
}

/** @param {string} wanted @param {string} text */
function matches(wanted, text) {
  let at = 0;
  const low = text.toLocaleLowerCase();
  for (const letter of wanted.toLocaleLowerCase()) {
    at = low.indexOf(letter, at) + 1;
    if (at === 0) return false;
  }
  return true;
}

function open() {
  const dialog = document.createElement("dialog");
  dialog.className = "palette";
  const input = document.createElement("input");
  input.type = "search";
  input.setAttribute("aria-label", document.body.dataset.palette ?? "");
  input.placeholder = document.body.dataset.palette ?? "";
  const list = document.createElement("ul");
  dialog.append(input, list);
  const all = commands();
  let shown = all;
  let chosen = 0;

  function show() {
    shown = all.filter(({ text }) => matches(input.value, text)).slice(0, 40);
    chosen = Math.min(chosen, Math.max(0, shown.length - 1));
    list.replaceChildren(
      ...shown.map((command, place) => {
        const item = document.createElement("li");
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = command.text;
        button.addEventListener("click", () => run(place));
        item.setAttribute("aria-selected", String(place === chosen));
        item.append(button);
        return item;
      }),
    );
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  }

  /** @param {number} place */
  function run(place) {
    dialog.close();
    shown[place]?.run();
  }

  input.addEventListener("input", () => ((chosen = 0), show()));
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") chosen = Math.min(chosen + 1, shown.length - 1);
    else if (event.key === "ArrowUp") chosen = Math.max(chosen - 1, 0);
    else if (event.key === "Enter") return void (event.preventDefault(), run(chosen));
    else return;
    event.preventDefault();
    show();
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  show();
  dialog.showModal();
  input.focus();
}

export function palette() {
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "k") {
      event.preventDefault();
      if (document.querySelector("dialog[open]") === null) open();
      return;
    }
    const target = event.target instanceof Element ? event.target : null;
    const typing = target?.closest("input:not([type=checkbox]), textarea, select, dialog") ?? null;
    if (typing !== null || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "?") return open();
    const wanted = event.key === "p" ? "[data-pause]" : `[data-shortcut="${CSS.escape(event.key)}"]`;
    const found = /** @type {HTMLElement | null} */ (document.querySelector(wanted));
    if (found === null) return;
    event.preventDefault();
    if (found instanceof HTMLInputElement) found.focus();
    else found.click();
  });
}
