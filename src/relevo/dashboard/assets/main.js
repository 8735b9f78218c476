// @ts-check
/** What all pages do with scripts: times, live parts, copying, selecting. Without them they read. */

import { completion } from "./completion.js";
import { copyButtons } from "./copy.js";
import { live } from "./live.js";
import { palette } from "./palette.js";
import { selection } from "./selection.js";
import { times } from "./times.js";

times();
selection();
copyButtons();
completion();
palette();
live();

// On a narrow window the navigation is one row, which scrolls to the page that is shown.
const current = document.querySelector(".side nav [aria-current]");
const row = current?.closest("nav");
if (current instanceof HTMLElement && row && row.scrollWidth > row.clientWidth) {
  row.scrollLeft = current.offsetLeft - row.offsetLeft - row.clientWidth / 3;
}
