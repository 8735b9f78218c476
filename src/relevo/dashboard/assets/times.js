// @ts-check
/** Shows times as how long ago they were, and exactly, in the viewer's zone, on hover. */

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
    const text = relative.format(Math.trunc(seconds / size), unit);
    if (each.textContent !== text) each.textContent = text;
    /** @type {HTMLElement} */ (each).title = exact.format(at);
  }
}

export function times() {
  showTimes(document.body);
  setInterval(() => showTimes(document.body), 1_000);
}
