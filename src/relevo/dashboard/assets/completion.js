// @ts-check
/** Suggests the words of a query bar: those in its `data-words` that begin with what is typed. */

/** @param {HTMLInputElement} input */
function complete(input) {
  const words = (input.dataset.words ?? "").split(" ");
  const list = document.createElement("ul");
  list.className = "completions";
  list.hidden = true;
  input.after(list);
  /** @type {string[]} */
  let shown = [];
  let chosen = -1;

  function begun() {
    const before = input.value.slice(0, input.selectionStart ?? input.value.length);
    return /[A-Za-z_]+$/.exec(before)?.[0] ?? "";
  }

  function show() {
    const word = begun();
    shown = word === "" ? [] : words.filter((each) => each.startsWith(word) && each !== word).slice(0, 8);
    list.hidden = shown.length === 0;
    list.replaceChildren(
      ...shown.map((text, place) => {
        const item = document.createElement("li");
        item.textContent = text;
        item.setAttribute("aria-selected", String(place === chosen));
        item.addEventListener("pointerdown", (event) => (event.preventDefault(), take(place)));
        return item;
      }),
    );
    list.style.left = `${input.offsetLeft}px`;
    list.style.top = `${input.offsetTop + input.offsetHeight + 2}px`;
  }

  /** @param {number} place */
  function take(place) {
    const at = input.selectionStart ?? input.value.length;
    const text = shown[place];
    if (text === undefined) return;
    input.setRangeText(text + (text.endsWith("(") ? "" : " "), at - begun().length, at, "end");
    chosen = -1;
    show();
  }

  input.addEventListener("input", () => ((chosen = -1), show()));
  input.addEventListener("blur", () => (list.hidden = true));
  input.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "ArrowDown") chosen = (chosen + 1) % shown.length;
    else if (event.key === "ArrowUp") chosen = (chosen - 1 + shown.length) % shown.length;
    else if (event.key === "Escape") return void (list.hidden = true);
    else if ((event.key === "Enter" && chosen >= 0) || (event.key === "Tab" && !event.shiftKey)) {
      event.preventDefault();
      return take(Math.max(0, chosen));
    } else return;
    event.preventDefault();
    show();
  });
}

export function completion() {
  for (const each of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("input[data-words]"))) {
    complete(each);
  }
}
