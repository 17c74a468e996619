// The rows that the page has, as the Gantt needs them. Times are microseconds.
const ganttRows = (() => {
  const read = (text) => {
    const data = JSON.parse(text);
    for (const run of data.runs) {
      run.requests = run.requests.map((row) =>
        Object.fromEntries(data.columns.map((name, k) => [name, row[k]])));
      if (data.remote) for (const r of run.requests) r.scheduled = r.first;  // all a client sees
      const s = run.steps;  // each begins so long after the end of the one before it
      s.span ??= s.busy;
      let end = 0;
      s.began = s.gap.map((gap, k) => {
        const began = end + gap;
        end = began + s.span[k];
        return began;
      });
    }
    return data;
  };

  // Each lane's requests are packed into as few rows as they need.
  const bands = (data, run) => data.lanes.map(([name], lane) => {
    const ends = [];
    for (const r of run.requests) {
      if (r.lane !== lane) continue;
      let row = ends.findIndex((end) => end <= r.arrived);
      if (row < 0) row = ends.push(0) - 1;
      ends[row] = r.arrived + Math.max(r.finished, 1);
      r.row = row;
    }
    return {name, rows: ends.length};
  });

  // All strategies have one axis of time.
  const range = (data) => {
    let begin = Infinity, end = 0;
    for (const {requests, steps: {began, span}} of data.runs) {
      for (const r of requests) {
        begin = Math.min(begin, r.arrived);
        end = Math.max(end, r.arrived + r.finished);
      }
      if (began.length) end = Math.max(end, began.at(-1) + span.at(-1));
    }
    return [begin, Math.max(end, begin + 1)];
  };

  return {read, bands, range};
})();
