"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const unpack = (text) => (text ? Uint8Array.from(atob(text), (c) => c.charCodeAt(0)) : new Uint8Array(data.bins));
  for (const lane of data.lanes) lane.series = lane.series.map(unpack);
  const ends = [];
  data.order.reduce((at, [, cycles]) => (ends.push(at + cycles), at + cycles), 0);
  const names = data.order.map(([layer]) => data.layers[layer][0]);

  // ---- the timeline: the same steps as the page was written with, for a part of the run
  const COLUMNS = 1100;
  const svg = document.getElementById("timeline");
  const bins = data.bins;
  let from = 0, to = data.cycles;

  const format = (n) => Math.round(n).toLocaleString("en-US");

  function shares(series, columns) {
    const found = new Float64Array(columns);
    const first = (from / data.cycles) * bins, step = ((to - from) / data.cycles) * bins / columns;
    for (let i = 0; i < columns; i++) {
      const begin = Math.floor(first + i * step), end = Math.max(begin + 1, Math.floor(first + (i + 1) * step));
      let sum = 0;
      for (let j = begin; j < end; j++) sum += series[Math.min(j, bins - 1)];
      found[i] = sum / (end - begin) / 255;
    }
    return found;
  }

  function path(below, above, y) {
    const step = data.width / above.length, pieces = [];
    for (let i = 0; i < above.length; ) {
      let j = i + 1;
      while (j < above.length && above[j] === above[i] && below[j] === below[i]) j++;
      const tall = above[i] - below[i];
      if (tall > 0.004) {
        const x = data.left + i * step, wide = (j - i) * step;
        const top = y + data.lane * (1 - above[i]);
        pieces.push(`M${x.toFixed(1)} ${top.toFixed(1)}h${wide.toFixed(1)}v${(data.lane * tall).toFixed(1)}h${(-wide).toFixed(1)}z`);
      }
      i = j;
    }
    return pieces.join("");
  }

  const NS = "http://www.w3.org/2000/svg";
  function make(name, attributes, text) {
    const node = document.createElementNS(NS, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  }
  const tail = (name, letters) => (name.length <= letters ? name : `\u2026${name.slice(1 - letters)}`);
  const place = (cycle) => data.left + ((cycle - from) / (to - from)) * data.width;

  function draw() {
    data.lanes.forEach((lane, row) => {
      const y = data.top + row * (data.lane + data.gap);
      let below = new Float64Array(COLUMNS);
      lane.series.forEach((series, k) => {
        const above = shares(series, COLUMNS).map((share, i) => Math.min(1, share + below[i]));
        const drawn = document.getElementById(`lane-${lane.name}-${data.kinds[k]}`);
        if (drawn) drawn.setAttribute("d", path(below, above, y));
        below = above;
      });
    });
    const bands = document.getElementById("bands"), ticks = document.getElementById("ticks");
    bands.replaceChildren();
    ends.forEach((end, i) => {
      const begin = i ? ends[i - 1] : 0;
      if (end <= from || begin >= to) return;
      const x = Math.max(data.left, place(begin)), wide = Math.min(data.left + data.width, place(end)) - x;
      if (wide < 0.2) return;
      if (i % 2 === 0) bands.append(make("rect", { x, y: 12, width: wide, height: data.bottom - 12, class: "band" }));
      if (wide >= 46) bands.append(make("text", { x: x + 3, y: 24, class: "band-name" }, tail(names[i], Math.floor(wide / 6))));
    });
    ticks.replaceChildren();
    const rough = (to - from) / 8, power = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough) || 1;
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const x = place(at);
      ticks.append(make("line", { x1: x, x2: x, y1: data.top - 4, y2: data.bottom, class: "grid" }));
      ticks.append(make("text", { x, y: data.bottom + 16, "text-anchor": "middle", class: "axis" }, format(at)));
    }
    document.getElementById("where").textContent = `cycles ${format(from)} to ${format(to)}`;
  }

  function show(begin, end) {
    const least = Math.max(8, data.cycles / bins) * 8;
    if (end - begin < least) { const middle = (begin + end) / 2; begin = middle - least / 2; end = middle + least / 2; }
    const wide = Math.min(end - begin, data.cycles);
    from = Math.max(0, Math.min(begin, data.cycles - wide));
    to = from + wide;
    draw();
  }
  function zoom(factor, centre) {
    const at = centre === undefined ? (from + to) / 2 : centre;
    show(at - (at - from) * factor, at + (to - at) * factor);
  }
  function cycleAt(event) {
    const box = svg.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    return from + ((x - data.left) / data.width) * (to - from);
  }
  const kernelAt = (cycle) => Math.max(0, Math.min(ends.length - 1, ends.findIndex((end) => cycle < end)));

  for (const button of document.querySelectorAll("[data-zoom]"))
    button.addEventListener("click", () => {
      const what = button.dataset.zoom;
      if (what === "all") show(0, data.cycles); else zoom(what === "in" ? 0.5 : 2);
    });
  const area = document.getElementById("timeline-area");
  area.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, cycleAt(event));
  }, { passive: false });
  let held = null;
  area.addEventListener("pointerdown", (event) => { held = cycleAt(event); area.setPointerCapture(event.pointerId); });
  area.addEventListener("pointerup", () => { held = null; });
  area.addEventListener("dblclick", () => show(0, data.cycles));
  area.addEventListener("pointermove", (event) => {
    if (held !== null) { const shift = held - cycleAt(event); show(from + shift, to + shift); return; }
    const cycle = cycleAt(event), bin = Math.max(0, Math.min(bins - 1, Math.floor((cycle / data.cycles) * bins)));
    const busy = data.lanes.map((lane) => `${lane.name} ${Math.round(lane.series[0][bin] / 2.55)} %`).join("  ");
    document.getElementById("hover").textContent = `cycle ${format(cycle)}: ${names[kernelAt(cycle)] || ""}  ${busy}`;
  });

  // ---- one layer: the queues of its cores, over its span
  function bars(at) {
    const panel = document.getElementById("layer"), [title, begin, end] = data.layers[at];
    const head = document.createElement("h3");
    head.textContent = `${title}: cycles ${format(begin)} to ${format(end)}`;
    panel.replaceChildren(head);
    data.shares[at].split(";").forEach((shares, row) => {
      const bar = document.createElement("div"), name = document.createElement("span");
      bar.className = "row";
      name.textContent = data.lanes[row].name;
      bar.append(name);
      shares.split(",").forEach((share, k) => {
        const part = document.createElement("i"), reason = data.reasons[k];
        part.className = `r-${reason}`;
        part.style.width = `calc((100% - 64px) * ${Math.min(100, share) / 100})`;
        part.title = `${reason.replace("_", " ")} ${share} %`;
        bar.append(part);
      });
      panel.append(bar);
    });
  }

  // ---- the table: sorted, filtered, and tied to the pictures
  const table = document.getElementById("layers"), body = table.tBodies[0];
  const rows = Array.from(body.rows), more = document.getElementById("more"), filter = document.getElementById("filter");
  let limit = Number(table.dataset.shown);

  function list() {
    const words = filter.value.toLowerCase();
    let left = words ? Infinity : limit;
    for (const row of body.rows) {
      const text = words ? `${row.textContent} ${row.cells[2].title}`.toLowerCase() : "";
      row.hidden = words ? !text.includes(words) : left-- <= 0;
    }
  }
  function sort(head) {
    const column = head.cellIndex, number = head.dataset.kind === "n";
    const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : number && column > 0;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => (number ? Number(row.cells[column].dataset.v) : row.cells[column].textContent);
    rows.sort((a, b) => {
      const x = key(a), y = key(b), order = number ? x - y : x.localeCompare(y);
      return down ? -order : order;
    });
    body.append(...rows);
    list();
  }
  for (const head of table.tHead.rows[0].cells)
    if (head.dataset.kind) {
      head.addEventListener("click", () => sort(head));
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
    }
  filter.addEventListener("input", list);
  if (more) more.addEventListener("click", () => { limit = Infinity; more.remove(); list(); });
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr"), at = Number(row.dataset.layer);
    for (const one of document.querySelectorAll(".chosen")) one.classList.remove("chosen");
    row.classList.add("chosen");
    const point = document.querySelector(`.point[data-layer="${at}"]`);
    if (point) point.classList.add("chosen");
    const [, begin, end] = data.layers[at], pad = Math.max(1, end - begin) * 0.1;
    show(begin - pad, end + pad);
    bars(at);
    svg.scrollIntoView({ block: "nearest", behavior: "smooth" });
  });
  sort(table.tHead.rows[0].cells[3]);
  draw();
})();
