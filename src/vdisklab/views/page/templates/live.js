"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  const connection = by("connection");
  const figure = by("moving");
  const place = figure.querySelector(".line");
  let update = null;
  let watching = false;

  // What was opened or has the focus stays so.
  function replace(part, html) {
    const open = new Set([...part.querySelectorAll("details[open]")].map((one) => one.id));
    const known = new Set([...part.querySelectorAll("details")].map((one) => one.id));
    const places = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    const focused = part.contains(document.activeElement)
      ? [...part.querySelectorAll("a,summary,[tabindex]")].indexOf(document.activeElement) : -1;
    part.innerHTML = html;
    part.hidden = !html.trim();
    for (const one of part.querySelectorAll("details")) if (known.has(one.id)) one.open = open.has(one.id);
    scrolls.mark(part);
    part.querySelectorAll(".scroll").forEach((one, at) => { one.scrollLeft = places[at] || 0; });
    if (focused >= 0) part.querySelectorAll("a,summary,[tabindex]")[focused]?.focus({ preventScroll: true });
  }

  function move(moving) {
    figure.hidden = moving === null;
    if (moving === null) return;
    figure.querySelector("figcaption").textContent = moving.caption;
    place.setAttribute("aria-label", moving.caption);
    const data = [moving.times, moving.values];
    const still = charts.still(moving.times, moving.values);
    if (update) update(data, still);
    else update = charts.draw(place, { data, gaps: still, lines: ["bandwidth"], x: "seconds ago", y: "", shown: (one) => charts.scaled(one, "B/s") });
  }

  // The levels of earlier campaigns; drawn anew with their part.
  let trends = [];
  function drawTrends() {
    for (const one of trends) one.end();
    trends = [...document.querySelectorAll("[data-curves]")].map((one) => charts.draw(one, {
      ...JSON.parse(one.dataset.curves), x: "campaign", y: "", fitted: true, shown: (level) => "×" + Number(level.toPrecision(3)),
    }));
  }

  const first = JSON.parse(by("moving-data").textContent);
  watching = first.running;
  move(first.moving);
  drawTrends();
  scrolls.mark(document);

  const events = new EventSource("/events");
  events.addEventListener("message", (event) => {
    const news = JSON.parse(event.data);
    for (const [name, html] of Object.entries(news.parts)) replace(by("part-" + name), html);
    if ("trend" in news.parts) drawTrends();
    move(news.moving);
    connection.hidden = true;
    if (watching && !news.running && news.report) location.assign(news.report);
    watching = news.running;
  });
  events.addEventListener("error", () => {
    connection.hidden = false;
    connection.textContent = "No connection to vdisklab watch: the numbers stand still. Trying again …";
    // EventSource gives up at an error of the server's; the page does not.
    if (events.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 5000);
  });
  events.addEventListener("open", () => { connection.hidden = true; });
})();
