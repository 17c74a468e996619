// A table that is wider than the screen says so, at whatever width. (Without this, on phones only.)
(() => {
  const cue = () => {
    for (const scroll of document.querySelectorAll(".cue + .scroll")) {
      const more = scroll.scrollWidth > scroll.clientWidth + 1;
      scroll.previousElementSibling.style.display = more ? "block" : "none";
    }
  };
  cue();
  addEventListener("resize", cue);
})();
// A box switches its strategy's line on and off, in every chart and every legend alike.
(() => {
  const boxes = [...document.querySelectorAll(".legend input")];
  const show = (series, on) => {
    for (const line of document.querySelectorAll(`path.line.${series}`)) {
      line.classList.toggle("off", !on);
    }
    for (const box of boxes) {
      if (box.dataset.series === series) box.checked = on;
    }
  };
  for (const box of boxes) {
    show(box.dataset.series, box.checked);
    box.addEventListener("change", () => show(box.dataset.series, box.checked));
  }
})();
