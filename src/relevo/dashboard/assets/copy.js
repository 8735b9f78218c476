// @ts-check
/** Buttons that copy the text beside them. */

export function copyButtons() {
  for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("[data-copy]"))) {
    button.hidden = false;
  }
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy]") : null;
    const text = button?.parentElement?.querySelector("code")?.textContent;
    if (button === null || text === null || text === undefined) return;
    await navigator.clipboard.writeText(text);
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1_500);
  });
}
