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
