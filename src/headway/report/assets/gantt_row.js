// What a request's row says, in words. Times are microseconds from its arrival on.
const ganttRow = (() => {
  const time = (us) => {
    const sign = us < 0 ? "-" : "", size = Math.abs(us);
    if (size >= 1e6) return `${sign}${(size / 1e6).toPrecision(size >= 1e8 ? 4 : 3)} s`;
    return size >= 1e3 ? `${sign}${Number((size / 1e3).toPrecision(3))} ms` : `${sign}${size} us`;
  };
  const count = (value, word) => `${value.toLocaleString("en")} ${word}${value === 1 ? "" : "s"}`;
  const tokens = (value) => Math.round(value).toLocaleString("en");
  const share = (from, to, a, b) => {  // of the time from a to b, what lies between from and to
    if (b <= a) return a >= from && a < to ? 1 : 0;
    return Math.max(0, Math.min(to, b) - Math.max(from, a)) / (b - a);
  };
  const waitOf = (r) => Math.min(r.scheduled ?? r.finished, r.finished);

  // Steps in a span of time: how many marks, for how long, and the tokens that they computed.
  const stepsIn = (run, from, to) => {
    const s = run.steps, sum = {marks: 0, busy: 0, prompt: 0, decode: 0, waste: 0};
    for (let k = 0; k < s.began.length; k++) {
      const part = share(from, to, s.began[k], s.began[k] + s.span[k]);
      if (!part) continue;
      sum.marks++;
      sum.busy += part * s.busy[k];
      for (const kind of ["prompt", "decode", "waste"]) sum[kind] += part * s[kind][k];
    }
    return sum;
  };

  // Who ran in a span of time, by lane. Tokens are spread evenly over the time they took.
  const ranIn = (data, run, own, from, to) => {
    const lanes = data.lanes.map(([name]) => ({name, requests: 0, tokens: 0}));
    for (const r of run.requests) {
      if (r === own || r.scheduled === null) continue;
      const begin = r.arrived + r.scheduled, end = r.arrived + r.finished;
      if (begin >= to || end <= from) continue;
      const first = r.arrived + (r.first ?? r.finished), last = r.arrived + (r.last ?? r.finished);
      const mine = lanes[r.lane];
      mine.requests++;
      if (!data.remote) mine.tokens += (r.prompt - r.cached) * share(from, to, begin, first);
      mine.tokens += r.generated * share(from, to, first, last);
    }
    return lanes.filter((lane) => lane.requests);
  };

  const waiting = (data, run, r) => {
    const wait = waitOf(r), from = r.arrived, to = from + wait;
    const served = r.scheduled !== null && r.scheduled <= r.finished;
    const [first, none] = data.remote
      ? ["to its first token (a client does not see where)", "to its end; no token came"]
      : ["to its first step", "to its end; it was in no step"];
    const lines = [["Waited", `${time(wait)} from its arrival ${served ? first : none}`]];
    if (!wait) return lines;
    const sum = stepsIn(run, from, to);
    if (run.steps.began.length) {
      const idle = Math.max(0, wait - sum.busy);
      lines.push(["Meanwhile", `${count(sum.marks, data.together > 1 ? "group" : "step")} of ` +
        `${data.together > 1 ? `${data.together} steps, ` : ""}${time(Math.round(sum.busy))} in all: ` +
        `${tokens(sum.prompt)} prompt tokens, ${tokens(sum.decode)} next tokens, ` +
        `${tokens(sum.waste)} of padding and held slots; no step ran for ${time(Math.round(idle))}`]);
    }
    const ran = ranIn(data, run, r, from, to).map((lane) =>
      `${lane.name}: ${count(lane.requests, "request")}, about ${tokens(lane.tokens)} tokens`);
    lines.push([data.remote ? "Answered meanwhile" : "What ran instead", ran.join("; ") || "nobody"]);
    const others = run.requests.filter((o) => o !== r && o.arrived < to && o.arrived + waitOf(o) > from);
    const before = others.filter((o) => o.arrived < r.arrived).length;
    lines.push([data.remote ? "Waiting with it" : "In line with it", `${count(others.length, "request")}, ${before} of which came before`]);
    return lines;
  };

  const judged = (limits, name, value) => {
    if (limits[name] === undefined) return "";
    const kept = value !== null && value <= limits[name];
    return ` (budget ${time(limits[name])}: ${kept ? "kept" : "missed"})`;
  };

  // Rows of [title, text].
  const words = (data, run, r) => {
    const [lane, limits] = data.lanes[r.lane];
    const tpot = r.generated > 1 ? Math.floor((r.last - r.first) / (r.generated - 1)) : 0;
    const lines = [["Lane", `${lane}${r.relegated ? "; it seemed to be late, and went behind the others" : ""}`],
      ["Arrived", `${time(r.arrived)} after the beginning`], ...waiting(data, run, r)];
    if (limits.queue !== undefined) lines.push(["Queue time",
      `${r.scheduled === null ? "never" : time(r.scheduled)}${judged(limits, "queue", r.scheduled)}`]);
    lines.push(["First token", (r.first === null ? "never" : `${time(r.first)} after its arrival`) +
      (r.generated || r.first === null ? judged(limits, "ttft", r.first) : "")]);
    lines.push(["Prompt", count(r.prompt, "token") +
      (data.remote && !r.cached ? "" : `, ${r.cached.toLocaleString("en")} of them cached`)]);
    lines.push(["Answer", count(r.generated, "token") + (tpot ? `, one in ${time(tpot)}` : "") +
      (r.generated > 1 ? judged(limits, "tpot", tpot) : "")]);
    if (r.preemptions) lines.push(["Preempted", `${count(r.preemptions, "time")}; ` +
      `${count(r.recomputed, "token")} computed again`]);
    if (run.steps.began.length) lines.push(["Device time", `${time(r.device)}, its share of its steps`]);
    if (r.promised_first !== null) lines.push(["Promised", `first token after ${time(r.promised_first)}` +
      `${r.first === null ? ", which never came" : `, came ${late(r.first - r.promised_first)}`}; the end ` +
      (r.promised_end === null ? "at no time" :
        `by ${time(r.promised_end)}, came ${late(r.finished - r.promised_end)}`)]);
    lines.push(["Outcome", `${r.finish} after ${time(r.finished)}${judged(limits, "e2e", r.finished)}; ` +
      (r.good ? "inside its budget" : "outside its budget")]);
    return lines;
  };
  const late = (us) => (us > 0 ? `${time(us)} later` : us < 0 ? `${time(-us)} earlier` : "just then");

  return {words, time};
})();
