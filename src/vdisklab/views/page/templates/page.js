"use strict";
(() => {
  const PAGE = 20;
  const data = JSON.parse(document.getElementById("data").textContent);
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const by = (id) => document.getElementById(id);
  const measures = new Map(data.measures.map((measure) => [measure.key, measure]));
  const values = new Map([[data.ranked, data.values]]);
  for (const cell of data.cells) {
    cell.c = cell.s === "bypassed" || cell.s === "–" ? cell.p : cell.p + " (" + cell.s + ")";
    cell.g = cell.g.map((word) => data.words[word]);
    cell.k = data.words[cell.k];
  }
  const state = { metric: data.ranked, sort: "rank", down: false, page: 0, search: "", segments: ["", "", "", ""] };
  let details = null;
  let series = null;

  // A link to a part that is folded opens it.
  function unfold() {
    const part = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const target = part && (part.matches("details") ? part : part.querySelector(":scope > details"));
    if (target) target.open = true;
  }
  window.addEventListener("hashchange", unfold);
  unfold();
  scrolls.mark(document);

  // A printed page is whole: what is folded is open while it is printed.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const part of folded) part.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
  });

  const loaded = new Promise((done) => document.addEventListener("DOMContentLoaded", done));

  // Both parts are compressed, stand below this script, and are read when somebody asks for them.
  async function unpack(id) {
    await loaded;
    const bytes = Uint8Array.from(atob(by(id).textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  }

  // Median, low and high of each measure that the table did not need at once.
  async function unpackMore() {
    const numbers = new Float32Array(await (await unpack("more")).arrayBuffer());
    const length = data.cells.length;
    let at = 0;
    for (const measure of data.measures) {
      if (values.has(measure.key)) continue;
      values.set(measure.key, [0, 1, 2].map(() => numbers.subarray(at, (at += length))));
    }
  }

  // What was not measured is null in one form and NaN in the other.
  function known(number) { return number === undefined || Number.isNaN(number) ? null : number; }

  function digits(number) {
    if (number === 0) return "0";
    const places = 2 - Math.floor(Math.log10(Math.abs(Number(number.toPrecision(3)))));
    return number.toFixed(Math.min(Math.max(places, 0), 12));
  }

  function scale(number, unit) {
    const size = Math.abs(number);
    const steps = unit === "s" ? [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]
      : unit === "B" ? [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"], [1, " B"]]
      : [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]].map(([f, p]) => [f, unit === "IOPS" ? p + " IOPS" : " " + p + unit]);
    const found = steps.find(([factor]) => size >= factor * 0.9995) || steps[steps.length - 1];
    return unit === "s" ? [found[0], " " + found[1]] : unit.startsWith("times") ? [1, " ×"] : found;
  }

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  // A path is broken after a slash, a colon or a comma before it is within a word.
  function breakable(made, text) {
    for (const part of text.match(/[^/:,]*[/:,]?/g)) made.append(part, element("wbr"));
    return made;
  }

  function column() { return values.get(state.metric) || [[], [], []]; }

  function chosen() {
    const [search, segments] = [state.search.toLowerCase(), state.segments];
    const found = [];
    data.cells.forEach((cell, place) => {
      if (search && !cell.c.toLowerCase().includes(search)) return;
      if (segments.some((wanted, at) => wanted && cell.g[at] !== wanted)) return;
      found.push(place);
    });
    const [medians] = column();
    const keys = {
      rank: (place) => data.cells[place].r ? data.cells[place].r[0] * 1e6 + data.cells[place].r[1] : null,
      path: (place) => data.cells[place].p,
      state: (place) => data.cells[place].s,
      value: (place) => known(medians[place]),
      ratio: (place) => data.cells[place].x,
      safety: (place) => data.cells[place].k,
      rounds: (place) => data.cells[place].n,
    };
    const key = keys[state.sort];
    const sign = state.down ? -1 : 1;
    return found.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      // What is missing stands last in both directions.
      if (x === null || y === null) return x === y ? a - b : x === null ? 1 : -1;
      return (x < y ? -sign : x > y ? sign : a - b);
    });
  }

  function row(place) {
    const cell = data.cells[place];
    const [medians, lows, highs] = column();
    const unit = measures.get(state.metric).unit;
    const made = element("tr");
    if (cell.c === data.baseline) made.className = "baseline";
    if (cell.c === data.answer) made.className = "chosen";
    const rank = cell.r ? (cell.r[0] === cell.r[1] ? String(cell.r[0]) : cell.r[0] + "–" + cell.r[1]) : "–";
    made.append(element("td", rank));
    const head = element("th");
    head.scope = "row";
    const open = breakable(element("button"), cell.p);
    open.type = "button";
    open.setAttribute("aria-expanded", "false");
    open.addEventListener("click", () => toggle(made, open, cell));
    head.append(open);
    made.append(head, element("td", cell.s));
    const median = known(medians[place]);
    const [factor, suffix] = median === null ? [1, ""] : scale(median, unit);
    made.append(element("td", median === null ? "–" : digits(median / factor) + suffix, "number"));
    const [low, high] = [known(lows[place]), known(highs[place])];
    made.append(element("td", low === null || high === null ? "–" : digits(low / factor) + "–" + digits(high / factor), "number"));
    made.append(element("td", cell.x === null ? "–" : "×" + digits(cell.x), "number"));
    const [name, direction, metric] = state.metric.split("/");
    const burst = direction === "write" && metric !== "sustained" && cell.b.includes(name);
    const ram = burst || (name === "score" ? cell.m.length > 0 : cell.m.includes(name));
    made.append(element("td", ram ? "RAM" : ""), element("td", cell.k), element("td", String(cell.n), "number"));
    return made;
  }

  function show() {
    const found = chosen();
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    const part = found.slice(state.page * PAGE, (state.page + 1) * PAGE);
    body.replaceChildren(...part.map(row));
    by("count").textContent = found.length === data.cells.length ? found.length + " cells" : found.length + " of " + data.cells.length + " cells";
    by("page").textContent = "Page " + (state.page + 1) + " of " + pages;
    by("previous").disabled = state.page === 0;
    by("next").disabled = state.page >= pages - 1;
    by("metric-name").textContent = measures.get(state.metric).name.replaceAll("/", "/\u200b");
    for (const button of table.tHead.querySelectorAll("button")) {
      const head = button.closest("th");
      head.dataset.name = button.textContent; // a printed page repeats texts of a heading, but no buttons
      if (button.dataset.sort === state.sort) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  async function toggle(made, open, cell) {
    if (open.getAttribute("aria-expanded") === "true") {
      made.nextSibling.remove();
      open.setAttribute("aria-expanded", "false");
      return;
    }
    open.setAttribute("aria-expanded", "true");
    const under = element("tr", undefined, "details");
    const inside = element("td", "…");
    inside.colSpan = made.cells.length;
    under.append(inside);
    made.after(under);
    details = details || (await (await unpack("details")).json());
    series = series || (await (await unpack("series")).json());
    await unpackMore();
    inside.replaceChildren(...describe(details[cell.c], cell));
    const before = inside.querySelector("dl");
    for (const drawn of [overTime(cell), percentiles(cell)]) {
      if (!drawn) continue;
      const figure = element("figure");
      const place = element("div", undefined, "line");
      figure.append(element("figcaption", drawn.title, "hint"), place);
      before.after(figure);
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", drawn.title);
      charts.draw(place, drawn);
    }
  }

  // Each long measurement of the cell's last runs; a line ends where its measurement ended.
  function overTime(cell) {
    const own = (series[cell.c] || []).slice(-4);
    if (!own.length) return null;
    const times = [...new Set(own.flatMap(([, step, found]) => found.map((_, at) => at * step)))].sort((a, b) => a - b);
    const values = own.map(([, step, found]) => {
      const at = new Map(found.map((value, place) => [place * step, value]));
      return times.map((time) => at.get(time));
    });
    return {
      title: "Bandwidth over time, measurement and round; shaded: no byte moved in one of them", data: [times, ...values],
      lines: own.map(([name]) => name), gaps: own.flatMap((one) => one[3]), x: "s", y: "", shown: (one) => charts.scaled(one, "B/s"),
    };
  }

  // Medians of the cell's latency percentiles, a line for each measurement.
  function percentiles(cell) {
    const row = data.cells.indexOf(cell);
    const found = new Map();
    for (const [key, columns] of values) {
      const [, name, percent] = key.match(/^(.*)\/latency_p([\d.]+)$/) || [];
      const value = name && known(columns[0][row]);
      if (value) found.set(name, [...(found.get(name) || []), [Number(percent), value]]);
    }
    const lines = [...found.keys()].filter((name) => found.get(name).length > 2).slice(0, 4);
    if (!lines.length) return null;
    const steps = [...new Set(lines.flatMap((name) => found.get(name).map(([percent]) => percent)))].sort((a, b) => a - b);
    const place = (percent) => -Math.log10(1 - percent / 100);
    return {
      title: "Latency percentiles (medians over rounds)", lines, log: true, x: "percentile", y: "",
      data: [steps.map(place), ...lines.map((name) => steps.map((one) => new Map(found.get(name)).get(one) ?? null))],
      ticks: steps.map((one) => [place(one), "p" + one]), shown: (one) => charts.scaled(one, "s"),
    };
  }

  function describe(found, cell) {
    const parts = [];
    const facts = element("dl");
    const pairs = [...found.facts];
    if (cell.m.length) pairs.push(["mostly from the host's page cache", cell.m.join(", ")]);
    if (cell.b.length) pairs.push(["on the disk after the program's end (sustained rates count that)", cell.b.join(", ")]);
    for (const [name, value] of pairs) {
      const pair = element("div");
      pair.append(element("dt", name), element("dd", value));
      facts.append(pair);
    }
    parts.push(facts);
    if (found.diagnostics.length) {
      const diagnostics = element("ul");
      for (const diagnostic of found.diagnostics) diagnostics.append(element("li", diagnostic));
      parts.push(element("h3", "Diagnostics of this cell"), diagnostics);
    }
    if (found.checks.length) {
      parts.push(element("h3", "States that were read back"));
      const list = element("dl");
      for (const [name, asked, seen] of found.checks) {
        const pair = element("div");
        pair.append(element("dt", name), element("dd", asked === null ? seen : seen + " (requested: " + asked + ")"));
        list.append(pair);
      }
      parts.push(list);
    }
    parts.push(element("h3", "Commands"), element("pre", found.commands.length ? found.commands.join("\n") : "none recorded"));
    for (const [name, command] of found.measured) parts.push(element("h3", name), element("pre", command));
    return parts;
  }

  async function choose(metric) {
    if (!values.has(metric)) await unpackMore();
    state.metric = metric;
    state.sort = "value";
    state.down = measures.get(metric).better === "higher";
    state.page = 0;
    show();
  }

  for (const place of document.querySelectorAll("[data-curves]")) {
    const figure = JSON.parse(place.dataset.curves);
    charts.draw(place, { ...figure, fitted: true, shown: (one) => String(Number(one.toPrecision(3))) });
  }

  by("metric").addEventListener("change", (event) => choose(event.target.value));
  by("search").addEventListener("input", (event) => { state.search = event.target.value; state.page = 0; show(); });
  by("previous").addEventListener("click", () => { state.page -= 1; show(); });
  by("next").addEventListener("click", () => { state.page += 1; show(); });
  for (const button of table.tHead.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      const key = button.dataset.sort;
      if (state.sort === key) state.down = !state.down;
      else {
        state.sort = key;
        state.down = (key === "value" && measures.get(state.metric).better === "higher") || key === "ratio";
      }
      state.page = 0;
      show();
    });
  }
  for (const select of document.querySelectorAll("select[data-segment]")) {
    const at = Number(select.dataset.segment);
    for (const word of [...new Set(data.cells.map((cell) => cell.g[at]))].sort()) select.append(new Option(word, word));
    select.addEventListener("change", () => { state.segments[at] = select.value; state.page = 0; show(); });
  }
  // A browser may keep what was chosen when the page is loaded again.
  by("metric").value = data.ranked;
  by("search").value = "";
  show();
  performance.mark("vdisklab-table");
})();
