"use strict";
// A table that is wider than its box says so.
const scrolls = (() => {
  const say = (box) => box.classList.toggle("more", box.scrollWidth > box.clientWidth + 1);
  const resized = new ResizeObserver((seen) => {
    for (const one of seen) say(one.target.closest(".scroll"));
  });
  function mark(part) {
    for (const box of part.querySelectorAll(".scroll")) {
      resized.observe(box);
      for (const table of box.querySelectorAll("table")) resized.observe(table);
    }
  }
  return { mark };
})();
