// Steps as a strip, requests as bars by lane: moved and zoomed by mouse, touch and keys.
(() => {
  const source = document.getElementById("gantt-data");
  if (!source) return;
  const data = ganttRows.read(source.textContent);
  const box = document.getElementById("gantt"), canvas = box.querySelector("canvas");
  const spacer = box.querySelector("div"), panel = document.getElementById("gantt-row");
  const chosen = document.getElementById("gantt-run"), find = document.getElementById("gantt-find");
  const context = canvas.getContext("2d");
  const STRIP = data.remote ? 0 : 44, AXIS = 20, HEAD = 18, TOP = 6;
  let run, whole, from, to, marked = null, opened = null, barHeight = 8, tall = 0;

  const lay = () => {
    const bands = ganttRows.bands(data, run);
    const rows = bands.reduce((sum, band) => sum + band.rows, 0);
    barHeight = Math.min(14, Math.max(4, Math.floor(380 / Math.max(1, rows))));
    let y = 0;
    for (const band of bands) {
      band.top = y;
      y += band.rows ? HEAD + band.rows * (barHeight + 2) + 6 : 0;
    }
    run.bands = bands;
    tall = STRIP + AXIS + TOP + y;
  };
  const choose = (number) => {
    run = data.runs[number];
    lay();
    view(from, to);
  };

  const view = (a, b) => {
    const size = Math.min(Math.max(b - a, 200), whole[1] - whole[0]);
    from = Math.min(Math.max(a, whole[0]), whole[1] - size);
    to = from + size;
    draw();
  };
  const zoom = (factor, at) => {
    if (!factor) return view(...whole);
    const middle = at ?? (marked ? marked.arrived : (from + to) / 2);
    view(middle - (middle - from) / factor, middle + (to - middle) / factor);
  };
  const x = (us) => (us - from) / (to - from) * box.clientWidth;
  const timeAt = (px) => from + px / box.clientWidth * (to - from);
  const y = (r) => STRIP + AXIS + TOP + run.bands[r.lane].top + HEAD + r.row * (barHeight + 2);

  const draw = () => {
    const height = Math.min(tall, 480), wide = box.clientWidth, scale = devicePixelRatio || 1;
    box.style.height = `${height + 2}px`;
    spacer.style.height = `${Math.max(0, tall - height)}px`;
    if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(wide * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
    }
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, wide, height);
    context.font = "12px system-ui,sans-serif";
    drawRequests(colour, wide, height);
    context.clearRect(0, 0, wide, STRIP + AXIS);
    drawSteps(colour, wide);
    drawAxis(colour, wide);
    Object.assign(box.dataset, {from: Math.round(from), to: Math.round(to), run: run.name,
      mark: marked ? `${(x(marked.arrived) + x(marked.arrived + marked.finished)) / 2} ` +
        `${y(marked) - box.scrollTop + barHeight / 2}` : ""});
  };

  const drawSteps = (colour, wide) => {
    const s = run.steps, most = s.rows.reduce((a, b) => Math.max(a, b), 1);
    const kinds = [["decode", colour("decode")], ["prompt", colour("prompt")], ["waste", colour("padding")]];
    let column = -1, highest = 0;  // of marks in one half of a pixel only the highest are drawn
    for (let k = 0; k < s.began.length; k++) {
      const left = x(s.began[k]), right = x(s.began[k] + s.span[k]);
      if (right < 0 || left > wide) continue;
      if (right - left < 0.5) {
        if (Math.floor(2 * left) === column && s.rows[k] <= highest) continue;
        [column, highest] = [Math.floor(2 * left), s.rows[k]];
      }
      const all = s.prompt[k] + s.decode[k] + s.waste[k] || 1;
      let bottom = STRIP;
      for (const [kind, fill] of kinds) {
        const part = (STRIP - 4) * s.rows[k] / most * s[kind][k] / all;
        context.fillStyle = fill;
        context.fillRect(left, bottom - part, Math.max(0.6, right - left - (right - left > 4)), part);
        bottom -= part;
      }
    }
  };

  const drawAxis = (colour, wide) => {
    const least = (to - from) / Math.max(2, wide / 110), power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least);
    context.fillStyle = colour("dim");
    context.strokeStyle = colour("rule");
    context.textAlign = "left";
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const left = x(at);
      context.beginPath();
      context.moveTo(left, 0);
      context.lineTo(left, STRIP + AXIS);
      context.stroke();
      const unit = step >= 1e6 ? [1e6, "s"] : step >= 1e3 ? [1e3, "ms"] : [1, "us"];
      context.fillText(`${Number((at / unit[0]).toPrecision(6))} ${unit[1]}`, left + 3, STRIP + AXIS - 6);
    }
  };

  const drawRequests = (colour, wide, height) => {
    const fill = {waiting: colour("muted"), prompt: colour("prompt"), decode: colour("decode"),
      preempted: colour("held"), missed: colour("bad"), ink: colour("ink"), dim: colour("dim")};
    context.textAlign = "left";
    for (const band of run.bands) {
      const top = STRIP + AXIS + TOP + band.top - box.scrollTop;
      if (!band.rows || top > height || top + HEAD < STRIP) continue;
      context.fillStyle = fill.dim;
      context.fillText(band.name, 4, top + 13);
    }
    const bar = (a, b, top, tall, style) => {
      const left = Math.max(-2, x(a)), right = Math.min(wide + 2, x(b));
      if (right <= left && b > a) return;
      context.fillStyle = style;
      context.fillRect(left, top, Math.max(0.7, right - left), tall);
    };
    for (const r of run.requests) {
      const top = y(r) - box.scrollTop, end = r.arrived + r.finished;
      if (top > height || top + barHeight < STRIP || x(end) < -2 || x(r.arrived) > wide + 2) continue;
      const begun = r.arrived + Math.min(r.scheduled ?? r.finished, r.finished);
      const first = r.arrived + Math.min(r.first ?? r.finished, r.finished);
      bar(r.arrived, begun, top + barHeight * 0.3, barHeight * 0.4, fill.waiting);
      bar(begun, first, top, barHeight, fill.prompt);
      if (end > first) bar(first, end, top, barHeight, fill.decode);
      if (r.preemptions) bar(begun, end, top, Math.max(2, barHeight * 0.3), fill.preempted);
      if (!r.good) {
        context.fillStyle = fill.missed;
        context.fillRect(x(end) - 1.5, top - 1, 3, barHeight + 2);
      }
      if (r === marked) {
        context.strokeStyle = fill.ink;
        context.lineWidth = 2;
        context.strokeRect(x(r.arrived) - 2, top - 2, Math.max(4, x(end) - x(r.arrived) + 4), barHeight + 4);
        context.lineWidth = 1;
      }
    }
  };

  const at = (px, py) => {  // the request there: the nearest one of its row, within 6 pixels
    const inside = py + box.scrollTop;
    if (py < STRIP + AXIS) return null;
    let best = null, nearest = 6;
    for (const r of run.requests) {
      if (Math.abs(y(r) + barHeight / 2 - inside) > barHeight / 2 + 1) continue;
      const left = x(r.arrived), right = x(r.arrived + r.finished);
      const away = Math.max(left - px, px - right, 0);
      if (away < nearest) [best, nearest] = [r, away];
    }
    return best;
  };

  const mark = (r) => {
    marked = r;
    const top = y(r), room = box.clientHeight;
    if (top - box.scrollTop < STRIP + AXIS + HEAD || top - box.scrollTop > room - 24) box.scrollTop = top - room / 2;
    const end = r.arrived + r.finished;
    if (end < from || r.arrived > to) view(r.arrived - (to - from) / 3, r.arrived + (to - from) * 2 / 3);
    else draw();
  };
  const open = (r) => {
    opened = r;
    panel.hidden = !r;
    panel.replaceChildren();
    if (!r) return;
    const title = document.createElement("h3"), list = document.createElement("dl");
    title.textContent = r.id;
    for (const [name, text] of ganttRow.words(data, run, r)) {
      const term = document.createElement("dt"), told = document.createElement("dd");
      [term.textContent, told.textContent] = [name, text];
      list.append(term, told);
    }
    panel.append(title, list);
  };
  const close = () => { marked = null; open(null); draw(); };

  // -- by mouse and touch: one pointer moves, two zoom
  const pointers = new Map();
  let moved = 0;
  box.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, event);
    if (pointers.size === 1) moved = 0;
  });
  box.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const left = box.getBoundingClientRect().left, scale = (to - from) / box.clientWidth;
    const other = [...pointers.values()].find((each) => each.pointerId !== event.pointerId);
    moved += Math.abs(event.clientX - before.clientX) + Math.abs(event.clientY - before.clientY);
    if (moved > 4) box.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    if (other) {
      const wide = Math.abs(before.clientX - other.clientX), now = Math.abs(event.clientX - other.clientX);
      if (wide > 8 && now > 8) zoom(now / wide, timeAt((event.clientX + other.clientX) / 2 - left));
    } else if (moved > 4) {
      const shift = (before.clientX - event.clientX) * scale;
      if (event.pointerType === "mouse") box.scrollTop += before.clientY - event.clientY;
      view(from + shift, to + shift);
    }
  });
  const lift = (event) => {
    const was = pointers.delete(event.pointerId);
    if (!was || event.type !== "pointerup" || moved > 4 || pointers.size) return;
    const edge = box.getBoundingClientRect();
    const r = at(event.clientX - edge.left - box.clientLeft, event.clientY - edge.top - box.clientTop);
    if (r) { mark(r); open(r); } else close();
  };
  for (const kind of ["pointerup", "pointercancel"]) box.addEventListener(kind, lift);
  box.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (!event.ctrlKey && !event.metaKey && !sideways) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) {
      zoom(2 ** (-event.deltaY / 200), timeAt(event.clientX - box.getBoundingClientRect().left));
    } else {
      const shift = (event.deltaX || event.deltaY) * (to - from) / box.clientWidth;
      view(from + shift, to + shift);
    }
  }, {passive: false});
  box.addEventListener("scroll", draw);

  // -- by keys
  const next = (step) => {
    const shown = run.requests;
    const inView = shown.findIndex((r) => r.arrived + r.finished >= from);
    const now = marked ? shown.indexOf(marked) + step : inView;
    const r = shown[Math.min(Math.max(now, 0), shown.length - 1)];
    if (r) mark(r);
    if (opened) open(r);
  };
  const keys = {
    ArrowLeft: () => view(from - (to - from) / 5, to - (to - from) / 5),
    ArrowRight: () => view(from + (to - from) / 5, to + (to - from) / 5),
    ArrowUp: () => next(-1), ArrowDown: () => next(1),
    "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), 0: () => zoom(0), Home: () => zoom(0),
    Enter: () => marked && open(marked), Escape: close,
  };
  box.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => zoom(Number(button.dataset.zoom)));
  }
  find.addEventListener("change", () => {
    const r = run.requests.find((each) => each.id === find.value.trim());
    find.setCustomValidity(r || !find.value ? "" : `no request ${find.value} is drawn`);
    find.reportValidity();
    if (r) { mark(r); open(r); }
  });
  chosen.addEventListener("change", () => {
    const id = opened?.id;
    [marked, opened] = [null, null];
    choose(Number(chosen.value));
    const r = run.requests.find((each) => each.id === id);
    open(r ?? null);
    if (r) mark(r);
  });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  [from, to] = whole = ganttRows.range(data);
  choose(Number(chosen.value));
})();
