// Reads api/status.json once a second and shows what changed. Numbers that grow are shown as their growth per second:
// the difference of two answers over the difference of their times.
"use strict";

const HISTORY = 120; // seconds in a plot
const WINDOW = 10; // seconds of the latency table
const answers = []; // the last WINDOW + 1 answers
const history = { requests: [], ratio: [], items: [], connections: [] };
const headed = ["lookups", "request_duration", "memory", "memory_limit", "items", "connections", "evictions", "uptime"];

const at = (id) => document.getElementById(id);
const show = (id, text) => { at(id).textContent = text; };

// ---- reading an answer ----

const family = (answer, name) => answer?.families.find((each) => each.name === name);
const key = (sample) => JSON.stringify(sample.labels);
const single = (answer, name) => family(answer, name)?.samples[0]?.value;
const sampleOf = (answer, name, labels) => family(answer, name)?.samples.find((each) => key(each) === key({ labels }));
const seconds = (then, now) => Math.max((now.time_ms - then.time_ms) / 1000, 0.001);

// A restarted server counts from zero again: that is no negative rate.
const growth = (then, now, read) => Math.max((read(now) ?? 0) - (read(then) ?? 0), 0);

// Buckets counted after `then`, as [end in ns, count].
function since(then, now) {
  const before = new Map(then?.buckets ?? []);
  return now.buckets.map(([end, count]) => [end, count - (before.get(end) ?? 0)]).filter(([, count]) => count > 0);
}

function quantile(buckets, q) {
  const all = buckets.reduce((sum, [, count]) => sum + count, 0);
  let seen = 0;
  for (const [end, count] of buckets) {
    seen += count;
    if (seen >= all * q) return end / 1e9;
  }
  return undefined;
}

// ---- writing numbers ----

function scaled(value, step, units, digits = 3) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) { value /= step; unit += 1; }
  const whole = Math.abs(value) >= 100 || Number.isInteger(value);
  const text = whole ? Math.round(value).toString() : value.toPrecision(digits);
  return units[unit] ? `${text} ${units[unit]}` : text;
}
const plain = (value) => scaled(value, 1000, ["", "k", "M", "G", "T"]);
const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const time = (value) => {
  if (value === undefined || value === null) return "–";
  return value < 1 ? scaled(value * 1e9, 1000, ["ns", "µs", "ms", "s"]) : `${value.toPrecision(3)} s`;
};
const percent = (part, whole) => (whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "–");
function span(value) {
  if (value === undefined) return "";
  const [d, h, m] = [value / 86400, value / 3600 % 24, value / 60 % 60].map(Math.floor);
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min` : `${Math.floor(value)} s`;
}
const inUnit = (value, unit) => (unit === "bytes" ? bytes(value) : unit === "seconds" ? time(value) : plain(value));

// ---- drawing ----

function plot(id, points) {
  const canvas = at(id);
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth * ratio, canvas.clientHeight * ratio];
  canvas.width = width; canvas.height = height;
  const brush = canvas.getContext("2d");
  const top = Math.max(...points.filter((each) => each !== undefined), 1e-9);
  brush.strokeStyle = getComputedStyle(document.body).getPropertyValue("--plot");
  brush.lineWidth = 1.5 * ratio;
  brush.beginPath();
  let drawing = false;
  points.forEach((value, index) => {
    if (value === undefined) { drawing = false; return; }
    const x = (index + HISTORY - points.length) / (HISTORY - 1) * width;
    const y = height - 2 * ratio - value / top * (height - 4 * ratio);
    if (drawing) brush.lineTo(x, y); else brush.moveTo(x, y);
    drawing = true;
  });
  brush.stroke();
}

function shape(name, values, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The path through points, [x, y] each; undefined = a gap.
function path(points) {
  let drawing = false;
  return points.map((point) => {
    if (point === undefined) { drawing = false; return ""; }
    const step = `${drawing ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    drawing = true;
    return step;
  }).join("");
}

function remember(name, value) {
  history[name].push(value);
  if (history[name].length > HISTORY) history[name].shift();
  plot(`${name}-plot`, history[name]);
}

function rows(table, lines) {
  const body = at(table).tBodies[0];
  body.replaceChildren(...lines.map((cells) => {
    const row = document.createElement("tr");
    for (const text of cells) row.insertCell().textContent = text;
    return row;
  }));
}

// ---- the parts of the page ----

function cards(then, now) {
  const requests = (answer) => family(answer, "request_duration")?.samples.reduce((sum, each) => sum + each.count, 0);
  const lookups = (result) => (answer) => sampleOf(answer, "lookups", { result })?.value;
  const [hits, misses] = [lookups("hit"), lookups("miss")];
  if (then) {
    const rate = growth(then, now, requests) / seconds(then, now);
    const [hit, miss] = [growth(then, now, hits), growth(then, now, misses)];
    show("requests", `${plain(Math.round(rate))}/s`);
    show("ratio", percent(hit, hit + miss));
    remember("requests", rate);
    remember("ratio", hit + miss > 0 ? hit / (hit + miss) : undefined);
  }
  show("requests-all", `${plain(requests(now))} since start`);
  show("ratio-all", `${plain(hits(now))} hits, ${plain(misses(now))} misses`);
  show("items", plain(single(now, "items")));
  show("evictions", `${plain(single(now, "evictions"))} evicted`);
  show("connections", plain(single(now, "connections")));
  show("uptime", single(now, "uptime") === undefined ? "" : `up for ${span(single(now, "uptime"))}`);
  remember("items", single(now, "items"));
  remember("connections", single(now, "connections"));
}

function memory(now) {
  const parts = family(now, "memory")?.samples ?? [];
  at("memory-section").hidden = parts.length === 0;
  const used = parts.reduce((sum, each) => sum + each.value, 0);
  const limit = Math.max(single(now, "memory_limit") ?? used, used, 1);
  show("memory-sum", `${bytes(used)} of ${bytes(limit)}`);
  let left = 0;
  at("memory-bar").replaceChildren(...parts.map((part, index) => {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const width = part.value / limit * 1000;
    const attributes = [["x", left], ["y", 0], ["width", width], ["height", 20], ["class", `k${index % 8}`]];
    for (const [name, value] of attributes) bar.setAttribute(name, value);
    left += width;
    return bar;
  }));
  at("memory-key").replaceChildren(...parts.map((part, index) => {
    const line = document.createElement("li");
    line.className = `k${index % 8}`;
    const text = document.createElement("span");
    text.textContent = `${Object.values(part.labels).join(" ")}: ${bytes(part.value)}`;
    line.append(text);
    return line;
  }));
}

// A cell is a zone: its colour says what it is used for, its height how much of what was written is still wanted.
const CELL = 14;
async function zones(now) {
  const there = family(now, "flash_zones") !== undefined;
  at("flash-section").hidden = !there;
  if (!there) return;
  const cells = await (await fetch("api/zones.json", { cache: "no-store", signal: AbortSignal.timeout(5000) })).json();
  const across = Math.max(Math.floor(at("zones").clientWidth / CELL), 16);
  at("zones").setAttribute("viewBox", `0 0 ${across * CELL} ${Math.ceil(cells.length / across) * CELL}`);
  const counts = new Map();
  at("zones").replaceChildren(...cells.map(([used, written, live, resets], index) => {
    counts.set(used, (counts.get(used) ?? 0) + 1);
    const [x, y] = [index % across * CELL, Math.floor(index / across) * CELL];
    const share = written > 0 ? Math.min(live / written, 1) : 1;
    const group = shape("g", {});
    group.append(shape("rect", { x, y, width: CELL - 2, height: CELL - 2, class: "zfree" }));
    const height = Math.max((CELL - 2) * share, 1);
    group.append(shape("rect", { x, y: y + CELL - 2 - height, width: CELL - 2, height, class: `z${used}` }));
    const title = shape("title", {});
    title.textContent = `zone ${index}: ${used}, ${bytes(live)} of ${bytes(written)} wanted, erased ${resets} times`;
    group.append(title);
    return group;
  }));
  at("zones-key").replaceChildren(...[...counts].map(([used, count]) => {
    const line = document.createElement("li");
    const mark = shape("svg", { viewBox: "0 0 10 10" });
    mark.append(shape("rect", { width: 10, height: 10, class: `z${used}` }));
    line.append(mark, `${used}: ${count}`);
    return line;
  }));
  const read = (name) => single(now, name);
  show("flash-sum", `${plain(read("flash_items"))} records, ${bytes(read("flash_live"))} wanted`);
  const ratio = (name) => (read(name) === undefined ? "–" : read(name).toFixed(2));
  show("flash-facts", `write amplification ${ratio("flash_alwa")}, reads for a hit ${ratio("flash_reads_per_hit")}, ` +
    `for a miss ${ratio("flash_reads_per_miss")}, ${ratio("flash_index_bytes_per_item")} bytes of memory for a record`);
}

// One line for each group of items.
const VALUES = { us: (value) => time(value / 1e6), misses: plain, bytes };
async function groups(now) {
  const there = family(now, "group_items") !== undefined;
  at("worth-section").hidden = !there;
  if (!there) return;
  const labels = family(now, "worth_options")?.samples[0]?.labels ?? {};
  const { mode, mode_now: present, objective, value_unit: unit } = labels;
  show("worth-sum", `mode ${mode === present ? mode : `${mode} (now ${present})`}, objective ${objective}; estimates`);
  const value = VALUES[unit] ?? plain;
  const got = await fetch("api/groups.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
  rows("groups", (await got.json()).map((each) => [each.size, each.penalty, plain(each.items), bytes(each.bytes),
    each.columns.toFixed(1), value(each.outgoing), value(each.incoming), each.columns_received.toFixed(1),
    each.columns_given.toFixed(1), each.why ?? "–"]));
}

// The keys that are asked for most, and the largest items, where the server shows keys.
async function keys() {
  const got = await fetch("api/keys.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
  const there = await got.json();
  at("keys-section").hidden = !there?.hot.length && !there?.large.length;
  if (!there) return;
  const percent = (part) => `${(100 * part).toFixed(2)} %`;
  rows("hot-keys", there.hot.map((each) => [each.key, percent(each.share), percent(each.error),
    plain(Math.round(each.per_second))]));
  rows("large-keys", there.large.map((each) => [each.key, bytes(each.bytes)]));
}

// Who leaves memory, and why.
const LEAVING = [["evicted at the end of their probation", "evicted_probation"],
  ["evicted from the main columns", "evicted_main"], ["evicted, never read", "evicted_unfetched"],
  ["evicted, though read within a minute", "evicted_active"], ["expired, never read", "expired_unfetched"],
  ["expired or flushed, brought back by the keeper", "reclaimed"],
  ["not stored for lack of memory", "store_no_memory"]];
function leaving(then, now) {
  const there = LEAVING.filter(([, name]) => family(now, name) !== undefined);
  const rate = (name) => (then ? growth(then, now, (answer) => single(answer, name)) / seconds(then, now) : 0);
  show("eviction-sum", `${plain(single(now, "evictions"))} since start`);
  rows("leaving", there.map(([text, name]) => [text, plain(single(now, name)), `${plain(rate(name))}/s`]));
}

// What each tenant has, and how it fares.
function namespaces(then, now) {
  const names = (family(now, "namespace_items")?.samples ?? []).map((each) => each.labels.namespace);
  at("namespaces-section").hidden = names.length === 0;
  rows("namespaces", names.map((namespace) => {
    const read = (name) => (answer) => sampleOf(answer, `namespace_${name}`, { namespace })?.value;
    const grown = (name) => (then ? growth(then, now, read(name)) : 0);
    const rate = (name) => (then ? `${plain(grown(name) / seconds(then, now))}/s` : "–");
    const shown = (name) => bytes(read(name)(now));
    return [namespace, plain(read("items")(now)), shown("memory"), shown("least"), shown("most"), rate("gets"),
      percent(grown("hits"), grown("gets")), percent(read("hits")(now), read("gets")(now)), rate("sets"),
      rate("evictions")];
  }));
}

// Lets the reader choose between the curve of the whole server and those of its namespaces.
function chooseCurve(answer) {
  const names = Object.keys(answer.namespaces ?? {});
  const picker = at("curve-of");
  picker.hidden = names.length === 0;
  const there = [...picker.options].slice(1).map((each) => each.value);
  if (JSON.stringify(there) !== JSON.stringify(names)) {
    const chosen = picker.value;
    picker.replaceChildren(new Option("the whole server", ""), ...names.map((name) => new Option(name, name)));
    picker.value = names.includes(chosen) ? chosen : "";
  }
  return picker.value;
}

// The miss ratio by memory. The axis of memory is logarithmic.
async function curve(now) {
  const got = await fetch("api/curve.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
  const answer = await got.json();
  const namespace = chooseCurve(answer);
  const chosen = namespace ? answer.namespaces[namespace] : answer;
  const { young, limit_bytes: limit, capacity_bytes: capacity, points } = chosen;
  show("curve-sum", young ? "too few reads were sampled so far" : "expected by a model of LRU, from recent reads");
  if (!(capacity > 0)) {
    at("curve").replaceChildren();
    rows("sizes", []);
    return;
  }
  const [width, height, left, low] = [640, 220, 40, 190];
  const [least, most] = [Math.log(capacity / 32), Math.log(capacity * 8)];
  const x = (items) => left + (Math.log(items) - least) / (most - least) * (width - left - 10);
  const y = (ratio) => 10 + (1 - ratio) * (low - 10);
  const parts = [];
  for (const ratio of [0, 0.25, 0.5, 0.75, 1]) {
    parts.push(shape("line", { x1: left, x2: width - 10, y1: y(ratio), y2: y(ratio), class: "axis" }));
    parts.push(shape("text", { x: 2, y: y(ratio) + 4 }, `${100 * ratio} %`));
  }
  for (const times of [0.125, 0.5, 1, 2, 4]) {
    const at = x(capacity * times);
    parts.push(shape("line", { x1: at, x2: at, y1: 10, y2: low, class: "mark" }));
    parts.push(shape("text", { x: at - 18, y: height - 12 }, bytes(limit * times)));
  }
  const shown = points.filter(([items]) => items >= capacity / 32 && items <= capacity * 8);
  const last = points.at(-1);
  if (last && last[0] < capacity * 8) shown.push([capacity * 8, last[1]]);
  parts.push(shape("path", { d: path(shown.map(([items, ratio]) => [x(items), y(ratio)])), class: "line" }));
  at("curve").replaceChildren(...parts);
  const samples = (name) => (family(now, name)?.samples ?? []).filter((each) => !namespace ||
    each.labels.namespace === namespace);
  const ratios = samples(namespace ? "namespace_expected_miss_ratio" : "expected_miss_ratio");
  const times = namespace ? [] : samples("expected_service_time");
  rows("sizes", ratios.map((each, index) => [each.labels.memory, bytes(limit * parseFloat(each.labels.memory)),
    percent(each.value, 1), time(times[index]?.value)]));
}

// Small curves of the last hour, each from 0 to its largest value.
const SHOWN = [["requests_per_s", "requests/s", plain], ["hit_ratio", "hit ratio", (value) => percent(value, 1)],
  ["p99_us", "p99 of all requests", (value) => time(value / 1e6)], ["evictions_per_s", "evictions/s", plain],
  ["items", "items", plain], ["memory_bytes", "memory", bytes], ["connections", "connections", plain],
  ["bytes_per_s", "bytes/s", bytes], ["flash_items", "items on flash", plain]];
let historyDue = 0;
async function lastHour() {
  if (Date.now() < historyDue) return;
  historyDue = Date.now() + 10000;
  const got = await fetch("history", { cache: "no-store", signal: AbortSignal.timeout(5000) });
  const { period_s: period, columns, rows: lines } = await got.json();
  show("history-sum", lines.length ? `${span(lines.length * period)}` : "the first value comes after ten seconds");
  const figures = SHOWN.map(([name, title, write]) => {
    const column = columns.indexOf(name);
    const values = lines.map((line) => line[column]);
    const top = Math.max(...values.filter((value) => value !== null), 1e-9);
    if (name === "flash_items" && top < 1) return undefined;
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const newest = values.at(-1);
    const known = newest !== undefined && newest !== null;
    caption.textContent = `${title}: ${known ? write(newest) : "–"}, most ${values.length ? write(top) : "–"}`;
    const attributes = { viewBox: "0 0 360 48", preserveAspectRatio: "none", role: "img", "aria-label": title };
    const drawn = shape("svg", attributes);
    const points = values.map((value, index) => (value === null ? undefined :
      [360 - values.length + index, 46 - value / top * 44]));
    drawn.append(shape("path", { d: path(points), class: "line" }));
    figure.append(caption, drawn);
    return figure;
  });
  at("history").replaceChildren(...figures.filter((figure) => figure !== undefined));
}

function latency(then, now) {
  const lines = (family(now, "request_duration")?.samples ?? []).filter((each) => each.count > 0).map((each) => {
    const before = sampleOf(then, "request_duration", each.labels);
    const recent = before && before.count <= each.count ? since(before, each) : [];
    const count = recent.reduce((sum, [, more]) => sum + more, 0);
    const rate = then ? plain(Math.round(count / seconds(then, now))) : "–";
    const quantiles = [0.5, 0.9, 0.99, 0.999].map((q) => time(quantile(recent, q)));
    return [Object.values(each.labels).join(" "), rate, ...quantiles, plain(each.count), time(each.sum / each.count),
      time(each.quantiles["0.99"])];
  });
  rows("latency", lines);
}

function rest(then, now) {
  const isShown = (name) => headed.includes(name) || /^(group|expected|namespace)_/.test(name);
  const others = now.families.filter((each) => !isShown(each.name));
  const lines = others.flatMap((each) => each.samples.map((sample) => {
    const labels = Object.entries(sample.labels).map(([name, value]) => `${name}=${value}`).join(" ");
    const before = sampleOf(then, each.name, sample.labels);
    const read = (one) => one?.value ?? one?.count;
    const grown = each.kind !== "gauge" && before ? Math.max(read(sample) - read(before), 0) : null;
    const rate = grown === null ? "" : `${plain(grown / seconds(then, now))}/s`;
    const value = each.kind === "histogram" ?
      `${plain(sample.count)}, p99 ${time(sample.quantiles["0.99"])}` : inUnit(sample.value, each.unit);
    return [labels ? `${each.name} ${labels}` : each.name, value, rate, each.help];
  }));
  rows("rest", lines);
}

// ---- the beat ----

function state(good, text) {
  show("state", text);
  at("state").className = `state ${good ? "good" : "bad"}`;
}

async function beat() {
  try {
    const answer = await fetch("api/status.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    const now = await answer.json();
    const then = answers.at(-1);
    answers.push(now);
    if (answers.length > WINDOW + 1) answers.shift();
    state(now.healthy, now.healthy ? "healthy" : now.reason);
    show("about", `version ${now.version}`);
    cards(then, now);
    memory(now);
    latency(answers.length > 1 ? answers[0] : undefined, now);
    rest(then, now);
    leaving(then, now);
    namespaces(answers[0] === now ? undefined : answers[0], now);
    await lastHour();
    await curve(now);
    await groups(now);
    await keys();
    await zones(now);
  } catch (error) {
    state(false, "no answer");
  }
  setTimeout(beat, 1000);
}

beat();
