"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  // Tables: a click on a column's name sorts by it, a second click turns the order round.
  const valueOf = (cell) => {
    if (!cell) return null;
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    return cell.textContent === "" || cell.textContent === "-" ? null : cell.textContent;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const sort = (header) => {
    const table = header.closest("table");
    const column = header.cellIndex;
    const before = header.getAttribute("aria-sort");
    const first = header.classList.contains("number") ? "descending" : "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    const order = before === first ? second : first;
    const sign = order === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => [valueOf(row.cells[column]), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * compare(a, b);
    });
    body.append(...rows.map(([, row]) => row));
    for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", order);
  };
  for (const header of document.querySelectorAll("th")) {
    header.querySelector("button").addEventListener("click", () => sort(header));
  }

  // Numbers as on the axes, with five digits; bytes in powers of 1024.
  const shown = (value, isBytes) => {
    const size = Math.abs(value);
    if (isBytes) {
      const power = size < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(size) / 10));
      const digits = { maximumSignificantDigits: power ? 3 : 15 };
      return `${(value / 1024 ** power).toLocaleString("en", digits)} ${["bytes", "KiB", "MiB", "GiB", "TiB"][power]}`;
    }
    if (size !== 0 && (size < 1e-4 || size >= 1e15)) return value.toExponential(3);
    return value.toLocaleString("en", { maximumSignificantDigits: size >= 1e5 ? 15 : 5, maximumFractionDigits: 6 });
  };

  // Where a value lies on an axis [logarithmic, from, to], from 0 to 1.
  const position = ([log, from, to], value) => {
    const inner = log ? Math.log10 : (v) => v;
    return (inner(value) - inner(from)) / (inner(to) - inner(from));
  };

  const element = (name, attributes) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  // Moves rising heights apart by a row at least, by as little as can be, as look.rs does.
  const ROW = 14;
  const spread = (wanted, top, bottom) => {
    const groups = [];
    wanted.forEach((height, at) => {
      let [mean, count] = [height - at * ROW, 1];
      while (groups.length && groups.at(-1)[0] > mean) {
        const [before, more] = groups.pop();
        [mean, count] = [(mean * count + before * more) / (count + more), count + more];
      }
      groups.push([mean, count]);
    });
    const most = Math.max(top, bottom - (wanted.length - 1) * ROW);
    const starts = groups.flatMap(([mean, count]) => Array(count).fill(Math.min(Math.max(mean, top), most)));
    return starts.map((start, at) => start + at * ROW);
  };
  // Places the names of the curves that are shown, as far as there is room.
  const placeNames = (plot) => {
    const [, top, right, bottom] = plot.dataset.frame.split(" ").map(Number);
    const all = Array.from(plot.querySelectorAll(".series:not(.off) .end"), (name) => {
      const [x, y] = name.dataset.end.split(" ").map(Number);
      return { name, x, y };
    });
    const room = Math.floor((bottom - top) / ROW) + 1;
    all.forEach(({ name }, at) => name.classList.toggle("off", at >= room));
    const named = all.slice(0, room).sort((a, b) => a.y - b.y);
    spread(named.map(({ y }) => y), top, bottom).forEach((height, at) => {
      const { name, x, y } = named[at];
      name.querySelector(".lead").setAttribute("d", `M${x} ${y}L${right + 10} ${height}`);
      name.querySelector("g").setAttribute("transform", `translate(${right + 10} ${height})`);
    });
  };

  const chart = (section) => {
    const tip = section.querySelector(".tip");
    const plots = Array.from(section.querySelectorAll(".plot"));
    const data = JSON.parse(tip.dataset.chart);
    const off = new Set();

    for (const button of section.querySelectorAll(".legend button")) {
      const series = Number(button.dataset.series);
      if (button.getAttribute("aria-pressed") === "false") off.add(series);
      button.addEventListener("click", () => {
        const hide = !off.has(series);
        if (hide) off.add(series); else off.delete(series);
        button.setAttribute("aria-pressed", String(!hide));
        for (const group of section.querySelectorAll(`.series[data-series="${series}"]`)) {
          group.classList.toggle("off", hide);
        }
        plots.forEach(placeNames);
      });
    }

    plots.forEach((plot, which) => {
      const [left, top, right, bottom] = plot.dataset.frame.split(" ").map(Number);
      const [xAxis, yAxis] = data.axes[which];
      const guide = element("path", { class: "guide", visibility: "hidden" });
      const ring = element("circle", { class: "near", r: 6, visibility: "hidden" });
      plot.append(guide, ring);

      const hide = () => {
        tip.hidden = true;
        for (const mark of [guide, ring]) mark.setAttribute("visibility", "hidden");
      };
      // The nearest point; an area's point counts at the height where it was stacked only by its x.
      const nearest = (px, py) => {
        let best = null;
        data.series.forEach((series, at) => {
          if (off.has(at)) return;
          for (const [x, y] of series.points) {
            const cx = left + position(xAxis, x) * (right - left);
            const cy = bottom - position(yAxis, y) * (bottom - top);
            const distance = Math.hypot(cx - px, series.stacked ? 0 : (cy - py) / 2);
            if (!best || distance < best.distance) best = { series, x, y, cx, cy, distance };
          }
        });
        return best;
      };
      const place = (cx, cy) => {
        const box = plot.getBoundingClientRect();
        const outer = tip.parentNode.getBoundingClientRect();
        const scale = box.width / plot.viewBox.baseVal.width;
        const beside = cx * scale + 14;
        const fits = beside + tip.offsetWidth < outer.width;
        tip.style.left = `${Math.max(0, fits ? beside : cx * scale - 14 - tip.offsetWidth)}px`;
        tip.style.top = `${Math.max(0, cy * scale - tip.offsetHeight / 2)}px`;
      };
      const show = (event) => {
        const box = plot.getBoundingClientRect();
        const scale = plot.viewBox.baseVal.width / box.width;
        const px = (event.clientX - box.left) * scale;
        const py = (event.clientY - box.top) * scale;
        const found = px >= left - 8 && px <= right + 8 && py <= bottom + 8 ? nearest(px, py) : null;
        if (!found) return hide();
        const name = document.createElement("b");
        name.textContent = found.series.name;
        const line = (label, value, isBytes) => {
          const row = document.createElement("div");
          row.textContent = `${label}: ${shown(value, isBytes)}`;
          return row;
        };
        const rows = found.series.stacked
          ? data.series.map((series, at) => [series, at]).filter(([series, at]) => series.stacked && !off.has(at))
            .map(([series]) => [series.name, series.points.find(([x]) => x === found.x)])
            .filter(([, point]) => point).map(([label, point]) => line(label, point[1]))
          : [line(data.y, found.y)];
        tip.replaceChildren(...(found.series.stacked ? [] : [name]), line(data.x, found.x, data.bytes), ...rows);
        tip.hidden = false;
        place(found.cx, found.series.stacked ? py : found.cy);
        guide.setAttribute("d", `M${found.cx} ${top}V${bottom}`);
        guide.setAttribute("visibility", "visible");
        ring.setAttribute("cx", found.cx);
        ring.setAttribute("cy", found.cy);
        ring.setAttribute("visibility", found.series.stacked ? "hidden" : "visible");
      };
      plot.addEventListener("pointermove", show);
      plot.addEventListener("pointerdown", show);
      plot.addEventListener("pointerleave", hide);
    });
  };
  for (const section of document.querySelectorAll("section.chart")) chart(section);
})();
