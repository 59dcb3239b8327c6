"use strict";
// Lines that move, zoom and can be read by keyboard; uPlot draws them.
const charts = (() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Only the answer has the colour of the answer, as in the bars.
  const strokes = () => [color("--bar"), color("--third"), color("--muted"), color("--ink")];
  const [NARROWEST, MARK] = [6, 4]; // of a marked span and of its mark, in pixels
  const dashes = [[], [6, 4], [2, 3], [10, 3, 2, 3]];

  // `lines` are names; `data` is x, then one array for each line; `gaps` are spans of x to mark.
  // With `steps` a value holds until the next x. `answer` is the place of the answer's line.
  function draw(place, { data, lines, x, y, log = false, height = 220, gaps = [], ticks = null, fitted = false, steps = false, answer = null, shown = String }) {
    const state = { data, gaps };
    let plot = null;
    const named = (one) => (ticks.find((tick) => tick[0] === one) || [0, ""])[1];
    // As many as have room, the last one among them.
    function shownTicks(made) {
      const widest = Math.max(...ticks.map((one) => String(one[1]).length)) * 8 + 12;
      const every = Math.ceil(ticks.length * widest / Math.max(made.width - 64, 1));
      return ticks.filter((_, at) => (ticks.length - 1 - at) % every === 0).map((one) => one[0]);
    }
    // Without a cursor there is no value to show.
    function idle(made) { made.root.classList.toggle("idle", made.cursor.idx == null); }
    function make() {
      // Half of the last label stands to the right of its tick.
      const beside = ticks ? Math.max(40, 4 * String(ticks[ticks.length - 1][1]).length) : null;
      const axis = () => ({ stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") }, font: "12px system-ui" });
      if (plot) plot.destroy();
      plot = new uPlot({
        width: Math.max(place.clientWidth, 240), height, padding: [null, beside, null, null],
        scales: { x: { time: false }, y: log ? { distr: 3 } : fitted ? {} : { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
        axes: [
          { ...axis(), label: x, labelSize: 20, ...(ticks ? { splits: shownTicks, values: (_, all) => all.map(named) } : {}) },
          { ...axis(), label: y, labelSize: 20, size: 64, values: (_, all) => all.map((one) => (one === null ? "" : shown(one))) },
        ],
        series: [
          { label: x, value: (_, one) => (one === null ? "–" : ticks ? named(one) : one.toFixed(1)) },
          ...lines.map((label, at) => ({
            label: at === answer ? "★ " + label : label, stroke: at === answer ? color("--highlight") : strokes()[at % 4], width: 2, dash: dashes[(at + (at >> 2)) % 4], spanGaps: false,
            ...(steps ? { paths: uPlot.paths.stepped({ align: 1, alignGaps: 1 }) } : {}),
            points: { show: ticks !== null }, value: (_, one) => (one === null ? "–" : shown(one)),
          })),
        ],
        hooks: { drawAxes: [(made) => {
          made.ctx.save();
          for (const [from, to] of state.gaps) {
            // A short span stays visible: as wide as a line at least, with a mark above it.
            const [left, right] = [made.valToPos(from, "x", true), made.valToPos(to, "x", true)];
            const width = Math.max(right - left, NARROWEST * devicePixelRatio);
            const start = (left + right - width) / 2;
            made.ctx.fillStyle = color("--warn");
            made.ctx.fillRect(start, made.bbox.top, width, made.bbox.height);
            made.ctx.fillStyle = color("--ink");
            made.ctx.fillRect(start, made.bbox.top, width, MARK * devicePixelRatio);
          }
          made.ctx.restore();
        }], setCursor: [idle] },
      }, state.data, place);
      idle(plot);
    }
    make();
    dark.addEventListener("change", make);
    const observer = new ResizeObserver(() => plot.setSize({ width: Math.max(place.clientWidth, 240), height }));
    observer.observe(place);
    place.tabIndex = 0;
    place.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !state.data[0].length) return;
      event.preventDefault();
      const last = state.data[0].length - 1;
      const at = Math.min(Math.max((plot.cursor.idx ?? (step > 0 ? -1 : last + 1)) + step, 0), last);
      plot.setCursor({ left: plot.valToPos(state.data[0][at], "x"), top: 10 });
    });
    function update(next, marked = []) {
      state.data = next;
      state.gaps = marked;
      plot.setData(next);
    }
    update.end = () => {
      observer.disconnect();
      dark.removeEventListener("change", make);
      plot.destroy();
    };
    return update;
  }

  function scaled(number, unit) {
    const steps = unit === "s" ? [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]
      : [[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]];
    const [factor, name] = steps.find(([one]) => Math.abs(number) >= one * 0.9995) || steps[steps.length - 1];
    return number === 0 ? "0" : Number((number / factor).toPrecision(3)) + " " + name;
  }

  // The spans in which no byte moved: a value is the rate since the time before it, at a gap too.
  function still(times, values) {
    const spans = [];
    values.forEach((value, at) => {
      if (value !== 0) return;
      if (values[at - 1] === 0) spans[spans.length - 1][1] = times[at];
      else spans.push([times[Math.max(at - 1, 0)], times[at]]);
    });
    return spans;
  }

  return { draw, scaled, still };
})();
