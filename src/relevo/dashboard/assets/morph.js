// @ts-check
/**
 * Merges new HTML into an element. Nodes that stay are kept, so focus, selected text, checked boxes,
 * open details and scroll positions stay as they are. Rows with `data-key` are found by it.
 */

/** @param {Element} element @param {string} html */
export function morph(element, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  children(element, template.content);
}

/** @param {Node} node */
function keyOf(node) {
  return node instanceof Element ? node.getAttribute("data-key") || node.id || null : null;
}

/** @param {Node} a @param {Node} b */
function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

/** @param {ParentNode & Node} old @param {ParentNode & Node} made */
function children(old, made) {
  /** @type {Map<string, Node[]>} */
  const keyed = new Map();
  for (const each of old.childNodes) {
    const key = keyOf(each);
    if (key === null) continue;
    const same = keyed.get(key);
    if (same === undefined) keyed.set(key, [each]);
    else same.push(each);
  }
  let place = old.firstChild;
  for (const wanted of [...made.childNodes]) {
    const key = keyOf(wanted);
    // Each node is taken once, also where two rows have the same key.
    const known = key === null ? undefined : keyed.get(key)?.shift();
    if (known !== undefined && known !== place && alike(known, wanted)) old.insertBefore(known, place), place = known;
    if (place !== null && (key === null || place === known) && alike(place, wanted)) {
      merge(place, wanted);
      place = place.nextSibling;
    } else {
      old.insertBefore(wanted, place);
    }
  }
  while (place !== null) {
    const next = place.nextSibling;
    old.removeChild(place);
    place = next;
  }
}

/** @param {Node} old @param {Node} made */
function merge(old, made) {
  if (!(old instanceof Element) || !(made instanceof Element)) {
    if (old.nodeValue !== made.nodeValue) old.nodeValue = made.nodeValue;
    return;
  }
  if (old.localName === "time" && old.getAttribute("datetime") === made.getAttribute("datetime")) return;
  for (const { name, value } of [...made.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!made.hasAttribute(name) && !(name === "open" && old.localName === "details") && name !== "hidden") {
      old.removeAttribute(name);
    }
  }
  children(old, made);
}
