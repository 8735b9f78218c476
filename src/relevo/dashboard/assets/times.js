// @ts-check
/**
 * Shows times as how long ago they were, and exactly, in the viewer's zone, on hover; those with
 * `data-exact` the other way round.
 */

const STEPS = /** @type {[number, Intl.RelativeTimeFormatUnit][]} */ ([
  [60, "second"], [3_600, "minute"], [86_400, "hour"], [2_592_000, "day"], [Infinity, "month"],
]);
const SIZES = { second: 1, minute: 60, hour: 3_600, day: 86_400, month: 2_592_000 };

const language = document.documentElement.lang;
const relative = new Intl.RelativeTimeFormat(language, { style: "short" });
const exact = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "long" });

/** @param {Element} root */
export function showTimes(root) {
  for (const each of root.querySelectorAll("time[datetime]")) {
    const at = new Date(/** @type {HTMLTimeElement} */ (each).dateTime);
    const seconds = (at.getTime() - Date.now()) / 1_000;
    const [, unit] = /** @type {[number, Intl.RelativeTimeFormatUnit]} */ (
      STEPS.find(([most]) => Math.abs(seconds) < most)
    );
    const size = SIZES[/** @type {keyof typeof SIZES} */ (unit)];
    const shown = [relative.format(Math.trunc(seconds / size), unit), exact.format(at)];
    if (each.hasAttribute("data-exact")) shown.reverse();
    if (each.textContent !== shown[0]) each.textContent = shown[0] ?? "";
    /** @type {HTMLElement} */ (each).title = shown[1] ?? "";
  }
}

export function times() {
  showTimes(document.body);
  setInterval(() => showTimes(document.body), 1_000);
}
