// Numbers as text, and charts.
"use strict";

// ---- numbers ----

function scaled(value, step, units) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  let unit = 0;
  while (Math.abs(value) >= step * 0.9995 && unit < units.length - 1) { value /= step; unit += 1; }
  const text = Math.abs(value) >= 100 || Number.isInteger(value) ? Math.round(value).toString() :
    Math.abs(value) < 0.005 ? "0" : Math.abs(value) < 1 ? value.toFixed(2) : value.toPrecision(3);
  return units[unit] ? `${text} ${units[unit]}` : text;
}
const plain = (value) => scaled(value, 1000, ["", "k", "M", "G", "T"]);
const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const time = (value) => scaled(value === undefined || value === null ? value : value * 1e9, 1000,
  ["ns", "µs", "ms", "s"]);
function percent(part, whole) {
  if (!(whole > 0)) return "–";
  return `${(100 * part / whole).toFixed(part === 0 || part === whole ? 0 : 1)} %`;
}
const perSecond = (value, what = "") => `${plain(value)}${what && ` ${what}`}/s`;
function span(value) {
  if (value === undefined) return "";
  const [d, h, m] = [value / 86400, value / 3600 % 24, value / 60 % 60].map(Math.floor);
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min` : `${Math.floor(value)} s`;
}
function inUnit(value, unit) {
  if (unit === "bytes") return bytes(value);
  if (unit !== "seconds") return plain(value);
  // More than thirty years are a moment since 1970.
  return value < 1e9 ? time(value) : new Date(value * 1000).toISOString().slice(0, 19).replace("T", " ");
}

// A key comes with its bytes percent-encoded. What cannot be seen stays so.
function keyText(key) {
  try {
    return decodeURIComponent(key).replace(/[\p{C}\p{Z}]/gu, encodeURIComponent).replaceAll("%20", " ");
  } catch (error) {
    return key;
  }
}

// ---- shapes ----

const at = (id) => document.getElementById(id);
const show = (id, text) => { if (at(id).textContent !== text) at(id).textContent = text; };

function shape(name, values, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The path through points, [x, y] each; undefined = a gap. A point between two gaps is a dot.
function path(points) {
  return points.map((point, index) => {
    if (point === undefined) return "";
    const [x, y] = point.map((each) => each.toFixed(1));
    if (points[index - 1] !== undefined) return `L${x} ${y}`;
    return points[index + 1] === undefined ? `M${x} ${y}h.1` : `M${x} ${y}`;
  }).join("");
}

// Shows rows of texts in a table. What has not changed is left alone: a reader may be in the middle of it.
function rows(table, lines) {
  const body = at(table).tBodies[0];
  while (body.rows.length > lines.length) body.deleteRow(-1);
  lines.forEach((cells, index) => {
    const row = body.rows[index] ?? body.insertRow();
    cells.forEach((text, nth) => {
      const cell = row.cells[nth] ?? row.insertCell();
      if (cell.textContent !== text) cell.textContent = text;
    });
  });
  at(table).hidden = lines.length === 0;
}

// A list of what colours mean: [class of the colour, text] each.
function colourKey(id, entries) {
  at(id).replaceChildren(...entries.map(([colour, text]) => {
    const line = document.createElement("li");
    const mark = shape("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" });
    mark.append(shape("rect", { width: 10, height: 10, class: colour }));
    line.append(mark, text);
    return line;
  }));
}

// ---- charts ----

const CHART_HEIGHT = 130, LEFT = 56, RIGHT = 8, TOP = 8, LOW = 20;

// The least of 1, 2 and 5 times a power of ten that is not below a value; of two for bytes.
function roundUp(value, isBytes) {
  if (isBytes) return 2 ** Math.ceil(Math.log2(Math.max(value, 1)));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999999);
}

// A chart that shows the value under the pointer, or where the arrow keys have gone. `draw` makes its content anew.
class Chart {
  constructor(parent, title) {
    this.title = title;
    this.figure = document.createElement("figure");
    this.caption = document.createElement("figcaption");
    this.caption.setAttribute("aria-live", "off");
    this.svg = shape("svg", { role: "img", tabindex: "0", height: CHART_HEIGHT });
    this.figure.append(this.caption, this.svg);
    parent.append(this.figure);
    this.points = [];
    this.chosen = undefined;
    this.svg.addEventListener("pointermove", (event) => this.choose(this.near(event.offsetX)));
    this.svg.addEventListener("pointerleave", () => this.choose(undefined));
    this.svg.addEventListener("blur", () => this.choose(undefined));
    this.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !this.points.length) return;
      event.preventDefault();
      this.caption.setAttribute("aria-live", "polite");
      const last = this.points.length - 1;
      this.choose(Math.min(Math.max((this.chosen ?? last + (step < 0)) + step, 0), last));
    });
  }

  // `points`: [x, y, what to say of it] each, in the order of x; y undefined = a gap. `x`, `y`: [least, most, the
  // texts of marks as [value, text] each]. `now`: what to say where nothing is chosen. `dots`: points beside the line.
  draw({ points, x, y, now, isLog, dots = [] }) {
    const width = this.svg.clientWidth || 320;
    const along = (value, [least, most]) => (isLog ? (Math.log(value) - Math.log(least)) /
      (Math.log(most) - Math.log(least)) : (value - least) / ((most - least) || 1));
    this.x = (value) => LEFT + along(value, x) * (width - LEFT - RIGHT);
    this.y = (value) => CHART_HEIGHT - LOW - (value - y[0]) / ((y[1] - y[0]) || 1) * (CHART_HEIGHT - LOW - TOP);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${CHART_HEIGHT}`);
    const parts = y[2].flatMap(([value, text]) => [
      shape("line", { x1: LEFT, x2: width - RIGHT, y1: this.y(value), y2: this.y(value), class: "axis" }),
      shape("text", { x: LEFT - 6, y: this.y(value) + 4, class: "right" }, text)]);
    parts.push(...x[2].flatMap(([value, text], index) => [
      ...(isLog ? [shape("line", { x1: this.x(value), x2: this.x(value), y1: TOP, y2: CHART_HEIGHT - LOW,
        class: "mark" })] : []),
      shape("text", { x: this.x(value), y: CHART_HEIGHT - 4,
        class: index === x[2].length - 1 ? "right" : index || isLog ? "middle" : "" }, text)]));
    parts.push(shape("path", { d: path(points.map((each) => (each[1] === undefined ? undefined :
      [this.x(each[0]), this.y(each[1])]))), class: "line" }));
    const dot = ([along, up]) => shape("circle", { cx: this.x(along), cy: this.y(up), r: 3.5, class: "dot" });
    parts.push(...dots.map(dot));
    const stays = this.chosen !== undefined ? this.points[this.chosen]?.[0] : undefined;
    Object.assign(this, { points: points.filter((each) => each[1] !== undefined), now });
    this.cursor = shape("g", { class: "cursor" });
    this.svg.replaceChildren(...parts, this.cursor);
    this.choose(stays === undefined ? undefined : this.near(this.x(stays)));
  }

  // The point nearest to a place.
  near(place) {
    let best;
    this.points.forEach((each, index) => {
      const away = Math.abs(this.x(each[0]) - place);
      if (best === undefined || away < best[1]) best = [index, away];
    });
    return best?.[0];
  }

  choose(index) {
    this.chosen = index;
    const point = this.points[index];
    const text = `${this.title}: ${point ? point[2] : this.now}`;
    if (this.caption.textContent !== text) this.caption.textContent = text;
    this.svg.setAttribute("aria-label", `${this.title}: ${this.now}`);
    this.cursor?.replaceChildren(...(point ? [
      shape("line", { x1: this.x(point[0]), x2: this.x(point[0]), y1: TOP, y2: CHART_HEIGHT - LOW }),
      shape("circle", { cx: this.x(point[0]), cy: this.y(point[1]), r: 3.5 })] : []));
  }
}

// Draws values by their time. `points`: [time in ms, value or null] each; `write`: a value as text; `most`: the end of
// the axis where that is known.
function drawTimes(chart, points, { write, most, isBytes }) {
  const known = points.filter((each) => each[1] !== null && each[1] !== undefined);
  const newest = points.at(-1)?.[0] ?? Date.now();
  const first = points[0]?.[0] ?? newest;
  const values = known.map((each) => each[1]);
  const [least, top] = [Math.min(...values), Math.max(...values)];
  const end = most ?? (top > 0 ? roundUp(top, isBytes) : 1);
  const ago = (when) => (newest - when < 1000 ? "now" : `${span((newest - when) / 1000)} ago`);
  const range = top > least ? `, ${write(least)} to ${write(top)}` : "";
  chart.draw({
    points: points.map(([when, value]) => [when, value ?? undefined, `${write(value)}, ${ago(when)}`]),
    x: [first, newest, newest - first < 2000 ? [[newest, "now"]] : [[first, ago(first)], [newest, "now"]]],
    y: [0, end, (top > 0 ? [0, end / 2, end] : [0]).map((value) => [value, write(value)])],
    now: known.length ? `${write(points.at(-1)[1])} now${range}` : "nothing yet",
  });
}
