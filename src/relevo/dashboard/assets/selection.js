// @ts-check
/** The box in a table's head that selects all rows of the page. */

/** @param {string} name */
function boxes(name) {
  return /** @type {NodeListOf<HTMLInputElement>} */ (
    document.querySelectorAll(`input[type="checkbox"][name="${CSS.escape(name)}"]`)
  );
}

function show() {
  for (const all of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("[data-all]"))) {
    const each = [...boxes(all.dataset.all ?? "")];
    const checked = each.filter((box) => box.checked).length;
    all.hidden = false;
    all.checked = checked > 0 && checked === each.length;
    all.indeterminate = checked > 0 && checked < each.length;
  }
}

export function selection() {
  document.addEventListener("change", (event) => {
    const target = event.target;
    if (target instanceof HTMLInputElement && target.dataset.all !== undefined) {
      for (const box of boxes(target.dataset.all)) box.checked = target.checked;
    }
    show();
  });
  document.addEventListener("updated", show);
  show();
}
