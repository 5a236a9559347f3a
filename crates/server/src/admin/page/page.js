// Reads api/status.json once a second and shows what changed. Numbers that grow are shown as their growth per second:
// the difference of two answers over the difference of their times.
"use strict";

const WINDOW = 10; // seconds of a rate in a table
const LIVE = 120; // seconds of which every one is in the charts
const answers = []; // the last WINDOW + 1 answers

// ---- reading an answer ----

const family = (answer, name) => answer?.families.find((each) => each.name === name);
const single = (answer, name) => family(answer, name)?.samples[0]?.value;
const sampleOf = (answer, name, labels) => family(answer, name)?.samples.find((each) =>
  Object.entries(labels).every(([label, value]) => each.labels[label] === value));
const seconds = (then, now) => Math.max((now.time_ms - then.time_ms) / 1000, 0.001);
const json = async (path) => (await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(5000) })).json();

// A restarted server counts from zero again: that is no negative rate.
const growth = (then, now, read) => Math.max((read(now) ?? 0) - (read(then) ?? 0), 0);
const grown = (then, now, name) => (then ? growth(then, now, (answer) => single(answer, name)) : 0);
const rateOf = (then, now, name) => (then ? grown(then, now, name) / seconds(then, now) : 0);
// Reads that hit, and that missed.
const lookups = (then, now) => ["hit", "miss"].map((result) => (then ? growth(then, now,
  (answer) => sampleOf(answer, "lookups", { result })?.value) : 0));

// Requests counted after `then`, as [end in ns, count].
function since(then, now) {
  const before = new Map(then && then.count <= now.count ? then.buckets : []);
  return now.buckets.map(([end, count]) => [end, count - (before.get(end) ?? 0)]).filter(([, count]) => count > 0);
}
function sinceOfAll(then, now) {
  const sums = new Map();
  for (const each of family(now, "request_duration")?.samples ?? []) {
    for (const [end, count] of since(sampleOf(then, "request_duration", each.labels), each)) {
      sums.set(end, (sums.get(end) ?? 0) + count);
    }
  }
  return [...sums].sort((one, other) => one[0] - other[0]);
}
const total = (buckets) => buckets.reduce((sum, [, count]) => sum + count, 0);

function quantile(buckets, q) {
  const all = total(buckets);
  let seen = 0;
  for (const [end, count] of buckets) {
    seen += count;
    if (seen >= all * q) return end / 1e9;
  }
  return undefined;
}

// ---- charts of the last hour ----

const ratio = (value) => percent(value, value === null || value === undefined ? 0 : 1);
const CHARTS = [["requests_per_s", "Requests", { write: perSecond }],
  ["hit_ratio", "Reads that hit", { write: ratio, most: 1 }],
  ["p99_us", "99 % within", { write: (value) => time(value === null ? value : value / 1e6) }],
  ["evictions_per_s", "Evictions", { write: perSecond }],
  ["items", "Items", { write: plain }],
  ["bytes_per_s", "Network", { write: (value) => `${bytes(value)}/s`, isBytes: true }]];
const FLASH_CHART = ["flash_items", "Items on flash", { write: plain }];
const charts = new Map([...CHARTS.map((each) => [at("charts"), each]), [at("flash-chart"), FLASH_CHART]].map(
  ([parent, [name, title]]) => [name, new Chart(parent, title)]));
let past = []; // rows of the history, as objects
let pastDue = 0;
const live = []; // one a second, likewise

async function remember(then, now) {
  if (then) {
    const buckets = sinceOfAll(then, now);
    const [hit, miss] = lookups(then, now);
    live.push({
      time_ms: now.time_ms,
      requests_per_s: total(buckets) / seconds(then, now),
      hit_ratio: hit + miss > 0 ? hit / (hit + miss) : null,
      p99_us: buckets.length ? quantile(buckets, 0.99) * 1e6 : null,
      evictions_per_s: rateOf(then, now, "evictions"),
      items: single(now, "items"),
      bytes_per_s: rateOf(then, now, "received_bytes") + rateOf(then, now, "sent_bytes"),
      flash_items: single(now, "flash_items"),
    });
    if (live.length > LIVE) live.shift();
  }
  if (Date.now() >= pastDue) {
    pastDue = Date.now() + 10000;
    const { columns, rows: lines } = await json("history");
    past = lines.map((line) => Object.fromEntries(columns.map((name, index) => [name, line[index]])));
  }
}

function lastHour(now) {
  const begin = live[0]?.time_ms ?? now.time_ms;
  const oldest = now.time_ms - 1000 * Number(at("range").value);
  const all = [...past.filter((row) => row.time_ms < begin), ...live].filter((row) => row.time_ms >= oldest);
  for (const [name, , how] of [...CHARTS, FLASH_CHART]) {
    drawTimes(charts.get(name), all.map((row) => [row.time_ms, row[name]]), how);
  }
}

// ---- the parts of the page ----

// The state of the server in sentences: whether it is well, what is asked, who goes, what more memory would bring.
const TROUBLES = [["store_no_memory", "items were not stored for lack of memory"],
  ["demotions_shed", "items were lost between memory and flash: the device is too slow for what is stored"],
  ["connections_rejected", "connections were refused: there are as many as there may be"],
  ["flash_devices_failed", "devices of the flash have failed"],
  ["flash_damaged_pages", "pages of the flash are damaged"],
  ["flash_errors", "requests of the flash have failed"]];
function summary(then, now, curve) {
  if (!then) return;
  const lines = [];
  const add = (bad, text) => lines.push([bad, text]);
  if (!now.healthy) add(true, `Not ready: ${now.reason}.`);
  for (const [name, text] of TROUBLES) {
    const more = grown(then, now, name);
    if (more > 0) add(true, `${plain(more)} ${text}, in the last ten seconds.`);
  }
  if (lines.length === 0) add(false, "Yes: all that was asked in the last ten seconds was done.");
  const buckets = sinceOfAll(then, now);
  const asked = total(buckets);
  const [hit, miss] = lookups(then, now);
  add(false, asked === 0 ? "Nothing is asked at present." : perSecond(asked / seconds(then, now), "requests") +
    (hit + miss > 0 ? `; ${percent(hit, hit + miss)} of the reads hit` : "") +
    `; 99 % take up to ${time(quantile(buckets, 0.99))} within the server.`);
  const [evicted, active, demoted] = ["evictions", "evicted_active", "demoted"].map((name) => rateOf(then, now, name));
  const free = Math.max((single(now, "memory_limit") ?? 0) - used(now), 0);
  add(false, evicted > 0 ? `${perSecond(evicted, "items")} leave memory to make room; ` +
    `${percent(active, evicted)} of them were read within their last minute` +
    (demoted > 0 ? `; ${perSecond(demoted)} go to flash.` : ".") :
    `Nothing has to leave: ${bytes(free)} of memory are free.`);
  const expected = (memory) => sampleOf(now, "expected_miss_ratio", { memory })?.value;
  if (curve && !curve.young && curve.capacity_bytes > 0 && expected("2x") !== undefined) {
    const [once, twice] = [expected("1x"), expected("2x")].map((value) => percent(value, 1));
    add(false, once === twice ? "Twice the memory would change nothing." :
      `With twice the memory ${twice} of the reads would miss, by the model, instead of ${once}.`);
  }
  at("summary").replaceChildren(...lines.map(([bad, text]) => {
    const line = document.createElement("li");
    line.className = bad ? "bad" : "";
    line.textContent = text;
    return line;
  }));
}

const PURPOSES = { items: "items", columns_free: "room for items", columns_dead: "replaced or deleted, soon free",
  index: "index", connection_buffers: "connections", tls_sessions: "TLS", bookkeeping: "bookkeeping",
  temperature: "which items are read" };
const used = (now) => (family(now, "memory")?.samples ?? []).reduce((sum, each) => sum +
  (each.labels.purpose === "columns_free" ? 0 : each.value), 0);
function memory(now) {
  const parts = (family(now, "memory")?.samples ?? []).filter((each) => each.value > 0);
  const taken = parts.reduce((sum, each) => sum + each.value, 0);
  const limit = Math.max(single(now, "memory_limit") ?? taken, taken, 1);
  show("memory-sum", `${bytes(used(now))} of ${bytes(limit)}`);
  let left = 0;
  at("memory-bar").replaceChildren(...parts.map((part, index) => {
    const width = part.value / limit * 1000;
    left += width;
    return shape("rect", { x: left - width, y: 0, width, height: 20, class: `k${index % 8}` });
  }));
  const words = (part) => PURPOSES[part.labels.purpose] ?? part.labels.purpose;
  const entries = parts.map((part, index) => [`k${index % 8}`, `${words(part)}: ${bytes(part.value)}`]);
  if (limit > taken) entries.push(["zfree", `free: ${bytes(limit - taken)}`]);
  colourKey("memory-key", entries);
  const [plainly, compressed] = ["plain", "compressed"].map((form) =>
    sampleOf(now, "compression_items", { form })?.value ?? 0);
  show("compressed", compressed > 0 ? `${percent(compressed, plainly + compressed)} of the items are compressed, ` +
    `their values ${single(now, "compression_ratio").toFixed(1)} to 1.` : "");
}

function commands(then, now) {
  const lines = (family(now, "request_duration")?.samples ?? []).filter((each) => each.count > 0).map((each) => {
    const recent = then ? since(sampleOf(then, "request_duration", each.labels), each) : [];
    const rate = then ? total(recent) / seconds(then, now) : undefined;
    return { name: Object.values(each.labels).join(" "), rate, recent, each };
  });
  const shown = (line, ...qs) => [line.name, then ? perSecond(line.rate) : "–",
    ...qs.map((q) => time(quantile(line.recent, q)))];
  rows("latency", lines.map((line) => [...shown(line, 0.5, 0.9, 0.99, 0.999), plain(line.each.count),
    time(line.each.sum / line.each.count), time(line.each.quantiles["0.99"])]));
  const most = lines.filter((line) => line.rate > 0).sort((one, other) => other.rate - one.rate).slice(0, 5);
  show("asked-sum", most.length ? "the last ten seconds" : "nothing, in the last ten seconds");
  rows("asked", most.map((line) => shown(line, 0.5, 0.99)));
}

// The keys that are asked for most, and the largest items, where the server shows keys.
async function keys() {
  const there = await json("api/keys.json");
  at("keys-section").hidden = !there?.hot.length && !there?.large.length;
  const [hot, large] = [there?.hot ?? [], there?.large ?? []];
  rows("hottest", hot.slice(0, 4).map((each) => [keyText(each.key), percent(each.share, 1)]));
  rows("hot-keys", hot.map((each) => [keyText(each.key), percent(each.share, 1), percent(each.error, 1),
    perSecond(Math.round(each.per_second))]));
  rows("large-keys", large.map((each) => [keyText(each.key), bytes(each.bytes)]));
}

const LEAVING = [["evicted at the end of their probation", "evicted_probation"],
  ["evicted from the main columns", "evicted_main"], ["evicted, never read", "evicted_unfetched"],
  ["evicted, though read within a minute", "evicted_active"], ["evicted to flash", "demoted"],
  ["expired, never read", "expired_unfetched"], ["expired or flushed, room regained", "reclaimed"],
  ["not stored for lack of memory", "store_no_memory"]];
function leaving(then, now) {
  const there = LEAVING.filter(([, name]) => family(now, name) && (name !== "demoted" || family(now, "flash_zones")));
  show("eviction-sum", `${plain(single(now, "evictions"))} evictions since start`);
  rows("leaving", there.map(([text, name]) => [text, perSecond(rateOf(then, now, name)), plain(single(now, name))]));
}

// What each tenant has, and how it fares.
function namespaces(then, now) {
  const names = (family(now, "namespace_items")?.samples ?? []).map((each) => each.labels.namespace);
  offer("namespaces", names.length > 0);
  rows("tenants", names.map((namespace) => {
    const read = (name) => (answer) => sampleOf(answer, `namespace_${name}`, { namespace })?.value;
    const more = (name) => (then ? growth(then, now, read(name)) : 0);
    const rate = (name) => (then ? perSecond(more(name) / seconds(then, now)) : "–");
    const shown = (name) => bytes(read(name)(now));
    return [namespace, plain(read("items")(now)), shown("memory"), shown("least"), shown("most"), rate("gets"),
      percent(more("hits"), more("gets")), percent(read("hits")(now), read("gets")(now)), rate("sets"),
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

// The miss ratio by memory, on a logarithmic axis of memory.
const curveChart = new Chart(at("curve"), "Reads that miss");
function curve(then, now, answer) {
  const namespace = chooseCurve(answer);
  const { young, limit_bytes: limit, capacity_bytes: capacity, points } =
    namespace ? answer.namespaces[namespace] : answer;
  show("curve-sum", young ? "too few reads were sampled so far" : "a model of LRU, from recent reads");
  const isKnown = capacity > 0 && !young;
  at("curve").hidden = !isKnown;
  show("curve-note", "");
  if (!isKnown) {
    rows("sizes", []);
    return;
  }
  const [least, most] = [capacity / 8, capacity * 8];
  const shown = points.filter(([size]) => size >= least && size <= most);
  const last = points.at(-1);
  if (last && last[0] < most) shown.push([most, last[1]]);
  const labels = namespace ? { namespace } : {};
  const value = (name, memory) => sampleOf(now, namespace ? `namespace_${name}` : name, { ...labels, memory })?.value;
  const sizes = ["0.5x", "1x", "1.5x", "2x", "4x"].filter((each) => value("expected_miss_ratio", each) !== undefined);
  const here = value("expected_miss_ratio", "1x");
  curveChart.draw({
    isLog: true,
    points: shown.map(([size, missed]) =>
      [size, missed, `${percent(missed, 1)} with ${bytes(limit * size / capacity)}`]),
    x: [least, most, [0.125, 0.5, 1, 2, 8].map((each) => [capacity * each, bytes(limit * each)])],
    y: [0, 1, [0, 0.5, 1].map((each) => [each, `${100 * each} %`])],
    dots: here === undefined ? [] : [[capacity, here]],
    now: here === undefined ? "" : `${percent(here, 1)} expected at the present limit`,
  });
  rows("sizes", sizes.map((memory) => [memory.replace("x", " ×"), bytes(limit * parseFloat(memory)),
    percent(value("expected_miss_ratio", memory), 1), time(value("expected_service_time", memory))]));
  const [hit, miss] = namespace ? [0, 0] : lookups(then, now);
  if (hit + miss > 0) {
    show("curve-note", `In the last ten seconds ${percent(miss, hit + miss)} of the reads missed. The model may say ` +
      `otherwise: it is LRU's, of the reads of a longer time${family(now, "flash_zones") ? ", without flash" : ""}. ` +
      "What counts is how the curve falls.");
  }
}

// One line for each group of items.
const VALUES = { us: (value) => time(value / 1e6), misses: plain, bytes };
async function groups(now) {
  const labels = family(now, "worth_options")?.samples[0]?.labels ?? {};
  const { mode, mode_now: present, objective, value_unit: unit } = labels;
  show("worth-sum", `mode ${mode}${mode === present ? "" : ` (now ${present})`}, objective ${objective}; estimates`);
  const value = VALUES[unit] ?? plain;
  const size = (text) => text.replace(/^(\d+)([kmg]?)$/, (_, digits, unit) =>
    `${digits} ${unit && `${unit.toUpperCase()}i`}B`);
  rows("groups", (await json("api/groups.json")).map((each) => [size(each.size), each.penalty, plain(each.items),
    bytes(each.bytes), each.columns.toFixed(1), value(each.outgoing), value(each.incoming),
    each.columns_received.toFixed(1), each.columns_given.toFixed(1), each.why ?? "–"]));
}

// A cell is a zone: its colour says what it is used for, its height how much of what was written is still wanted.
const CELL = 14;
async function zones(now) {
  const cells = await json("api/zones.json");
  const across = Math.max(Math.floor(at("zones").clientWidth / CELL), 16);
  at("zones").setAttribute("viewBox", `0 0 ${across * CELL} ${Math.ceil(cells.length / across) * CELL}`);
  const counts = new Map();
  at("zones").replaceChildren(...cells.map(([use, written, wanted, resets], index) => {
    counts.set(use, (counts.get(use) ?? 0) + 1);
    const [x, y] = [index % across * CELL, Math.floor(index / across) * CELL];
    const height = Math.max((CELL - 2) * (written > 0 ? Math.min(wanted / written, 1) : 1), 1);
    const group = shape("g", {});
    group.append(shape("rect", { x, y, width: CELL - 2, height: CELL - 2, class: "zfree" }),
      shape("rect", { x, y: y + CELL - 2 - height, width: CELL - 2, height, class: `z${use}` }),
      shape("title", {}, `zone ${index}: ${use}, ${bytes(wanted)} of ${bytes(written)} wanted, erased ${resets} times`)
    );
    return group;
  }));
  colourKey("zones-key", [...counts].map(([use, count]) => [`z${use}`, `${use}: ${count}`]));
  const read = (name) => single(now, name);
  show("flash-sum", `${plain(read("flash_items"))} records, ${bytes(read("flash_live"))} wanted`);
  // A ratio to nothing says nothing.
  const figure = (name, whole) => (whole > 0 && read(name) !== undefined ? read(name).toFixed(2) : "–");
  show("flash-facts", `bytes written for each byte admitted: ${figure("flash_alwa", read("flash_admitted"))}; ` +
    `reads for a hit: ${figure("flash_reads_per_hit", read("flash_lookup_hits"))}, ` +
    `for a miss: ${figure("flash_reads_per_miss", read("flash_lookup_misses"))}; ` +
    `memory for a record: ${figure("flash_index_bytes_per_item", read("flash_items"))} bytes`);
}

function numbers(then, now) {
  const wanted = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = now.families.flatMap((each) => each.samples.map((sample) => [each, sample]));
  const lines = all.map(([each, sample]) => {
    const labels = Object.entries(sample.labels).map(([name, value]) => `${name}=${value}`).join(" ");
    const before = sampleOf(then, each.name, sample.labels);
    const read = (one) => one?.value ?? one?.count;
    const grows = each.kind !== "gauge" && before;
    const rate = grows ? growth(before, sample, read) / seconds(then, now) : 0;
    const value = each.kind === "histogram" ?
      `${plain(sample.count)}, p99 ${time(sample.quantiles["0.99"])}` : inUnit(sample.value, each.unit);
    const unit = each.kind === "histogram" ? "" : each.unit;
    return [labels ? `${each.name} ${labels}` : each.name, value, grows ? `${inUnit(rate, unit)}/s` : "", each.help];
  }).filter((line) => wanted.every((word) => line.join(" ").toLowerCase().includes(word)));
  show("numbers-sum", `${lines.length} of ${all.length}`);
  rows("all", lines);
}

// ---- tabs: each has an address of its own, and so has a filter of the numbers (#numbers/flash) ----

function offer(tab, isThere) {
  document.querySelector(`#tabs a[href="#${tab}"]`).hidden = !isThere;
}
function tab() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  return { name: at(name)?.classList.contains("tab") ? name : "overview", words: decodeURIComponent(rest.join("/")) };
}
function turn() {
  const { name, words } = tab();
  for (const each of document.querySelectorAll(".tab")) each.hidden = each.id !== name;
  for (const each of document.querySelectorAll("#tabs a")) {
    each.ariaCurrent = each.hash === `#${name}` ? "page" : null;
  }
  if (name === "numbers" && at("filter").value !== words) at("filter").value = words;
  return answers.length ? draw().catch(() => undefined) : undefined;
}
at("filter").addEventListener("input", () => {
  const words = at("filter").value;
  location.replace(words ? `#numbers/${encodeURIComponent(words)}` : "#numbers");
});
at("range").addEventListener("change", turn);
window.addEventListener("hashchange", turn);
window.addEventListener("resize", turn);

// ---- the beat ----

function state(good, text) {
  show("state", text);
  at("state").className = `state ${good ? "good" : "bad"}`;
}

// Shows what the last answers say.
async function draw() {
  const now = answers.at(-1);
  const then = answers.length > 1 ? answers[0] : undefined;
  const shown = tab().name;
  lastHour(now);
  offer("flash", family(now, "flash_zones") !== undefined);
  offer("worth", family(now, "group_items") !== undefined);
  namespaces(then, now);
  commands(then, now);
  if (shown === "overview") {
    memory(now);
    leaving(then, now);
    const curves = await json("api/curve.json");
    curve(then, now, curves);
    summary(then, now, curves);
  }
  if (shown === "overview" || shown === "requests") await keys();
  if (shown === "worth") await groups(now);
  if (shown === "flash") await zones(now);
  if (shown === "numbers") numbers(then, now);
}

async function beat() {
  try {
    const now = await json("api/status.json");
    const then = answers.at(-1);
    answers.push(now);
    if (answers.length > WINDOW + 1) answers.shift();
    state(now.healthy, now.healthy ? "ready" : now.reason);
    const who = [now.host, ...now.serves.slice(0, 3)].filter(Boolean).join(" ");
    show("who", who);
    document.title = `${who || "Larder"} – Larder`;
    const connections = single(now, "connections");
    show("about", `${bytes(single(now, "memory_limit"))} of memory, ` +
      `${plain(connections)} connection${connections === 1 ? "" : "s"}, up for ${span(single(now, "uptime"))}, ` +
      `version ${now.version}`);
    await remember(then, now);
    await draw();
  } catch (error) {
    state(false, "no answer");
  }
  setTimeout(beat, 1000);
}

turn();
beat();
