// One function a kind of chart: from the page's data to what Plotly draws. Times are drawn in
// seconds, so that axes can use SI prefixes.
"use strict";
ftax.charts = (() => {
  const { page, dashes, getColours, plain, label, wrap, getMark, getWhiskers, makeAxis, makeTimeAxis,
    makeLayout, makeTitle } = ftax;
  const S = 1e-9;
  const LOW = 1e-4;  // of a value: below every axis
  const TIME = { tickformat: "~s", ticksuffix: "s" };

  const BARE = { showgrid: false, showline: false, ticks: "outside", tickcolor: "rgba(0,0,0,0)" };

  function isNarrow(place) {
    return place.clientWidth < 480;
  }

  // Filled lightly and outlined, so that a whisker can be seen on the bar.
  function getFill(names) {
    const colours = getColours();
    const all = (find) => (Array.isArray(names) ? names.map(find) : find(names));
    return { color: all((name) => colours[`${name}-fill`]), line: { width: 1, color: all((name) => colours[name]) } };
  }

  // ---- one receipt ---------------------------------------------------------------------------

  function drawLadder(place, item) {
    const { lines, latency } = page.receipts[item];
    const colours = getColours();
    const look = {
      resolved: ["accent", ""], kernels: ["quiet", ""], unresolved: ["accent", "/"], problem: ["warn", "x"],
    };
    const width = isNarrow(place) ? 16 : 26;
    const ticks = lines.map((line) => wrap(line.name, width)).concat("= Python eager");
    const bars = {
      type: "bar", orientation: "h", hovertemplate: "%{customdata}<extra></extra>",
      y: lines.map((_, i) => i), x: lines.map((line) => line.time * S), base: lines.map((line) => line.start * S),
      customdata: lines.map((line) => label(line.text)), width: 0.62,
      marker: {
        ...getFill(lines.map((line) => look[line.state][0])),
        // Stripes have the full colour, since paper is between them.
        color: lines.map((line) => colours[look[line.state][0] + (look[line.state][1] ? "" : "-fill")]),
        pattern: { shape: lines.map((line) => look[line.state][1]), size: 6, solidity: 0.35, bgcolor: colours.paper },
      },
      error_x: getWhiskers(lines, (line) => line.time, S, colours.ink),
    };
    const total = {
      type: "bar", orientation: "h", y: [lines.length], x: [latency * S], width: 0.62, hoverinfo: "skip",
      marker: { color: "rgba(0,0,0,0)", line: { width: 1.2, color: colours.ink } },
    };
    const ends = lines.map((line) =>
      Math.max(line.start, line.start + line.time, line.interval ? line.start + line.interval[1] : 0));
    const room = isNarrow(place) ? 0.42 : 0.3;  // for the text behind the longest bar
    const values = {
      type: "scatter", mode: "text", y: lines.map((_, i) => i), x: ends.map((end) => end * S),
      text: lines.map((line) => ` ${plain(line.value)}`), textposition: "middle right", cliponaxis: false,
      textfont: { size: 11, color: colours.faint }, hoverinfo: "skip",
    };
    const last = Math.max(latency, ...ends);
    const low = Math.min(0, ...lines.map((line) => line.start + (line.interval ? line.interval[0] : 0)));
    return [[bars, total, values], makeLayout({
      margin: { l: 20, r: 8, t: 4, b: 40 }, bargap: 0.3,
      xaxis: makeAxis({ ...TIME, range: [low * 1.06 * S, last * (1 + room) * S], nticks: 6, zeroline: low < 0,
        zerolinecolor: colours.quiet, title: makeTitle("time") }),
      yaxis: makeAxis({ autorange: "reversed", tickvals: ticks.map((_, i) => i), ticktext: ticks, ...BARE }),
    })];
  }

  function drawRuntimes(place, item) {
    const rows = page.receipts[item].runtimes;
    const colours = getColours();
    const width = isNarrow(place) ? 16 : 26;
    const split = rows.some((row) => row.busy !== null);
    const y = rows.map((_, i) => i);
    const common = { type: "bar", orientation: "h", y, width: 0.62, hovertemplate: "%{customdata}<extra></extra>",
      customdata: rows.map((row) => label(row.text)) };
    const rest = {
      ...common, name: split ? "tax" : "latency", x: rows.map((row) => (row.latency - (row.busy || 0)) * S),
      marker: { ...getFill("accent"), pattern: { shape: rows.map((row) => (split && row.busy === null ? "/" : "")),
        fgcolor: colours.accent, bgcolor: colours.paper, size: 6, solidity: 0.35 } },
      error_x: getWhiskers(rows, (row) => row.latency, S, colours.ink),
    };
    const busy = { ...common, name: "device busy", x: rows.map((row) => (row.busy || 0) * S),
      marker: getFill("quiet") };
    return [split ? [busy, rest] : [rest], makeLayout({
      margin: { l: 20, r: 14, t: split ? 26 : 4, b: 40 }, barmode: "stack", bargap: 0.3, showlegend: split,
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal", font: { size: 12 },
        itemclick: false, itemdoubleclick: false },
      xaxis: makeAxis({ ...TIME, rangemode: "tozero", nticks: 6, title: makeTitle("latency") }),
      yaxis: makeAxis({ autorange: "reversed", tickvals: y, ...BARE,
        ticktext: rows.map((row) => wrap(row.excluded ? `${row.name} *` : row.name, width)) }),
    })];
  }

  // ---- many points ---------------------------------------------------------------------------

  // One line a runtime, host and dtype; whatever else tells points apart makes another chart.
  function makeSeries(points, key) {
    const groups = new Map();
    for (const point of points) {
      if (point[key] === null) continue;
      const name = `${point.runtime}/${point.host} ${point.dtype}`;
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(point);
    }
    return [...groups.values()].map((group) => {
      const { colour, symbol } = getMark(group[0].runtime, group[0].host);
      group.sort((a, b) => a.x - b.x);
      // No line through a size that was measured twice: it would join two records.
      const again = group.some((point, i) => i > 0 && point.x === group[i - 1].x);
      return [group, {
        type: "scatter", mode: again ? "markers" : "lines+markers", x: group.map((point) => point.x),
        customdata: group.map((point) => label(point.text)), hovertemplate: "%{customdata}<extra></extra>",
        line: { color: colour, width: 1.6, dash: dashes[group[0].dtype] },
        marker: { color: colour, symbol, size: 7, line: { width: symbol.endsWith("open") ? 1.6 : 0, color: colour } },
      }];
    });
  }

  function makeSizeAxis(points, item) {
    const sizes = [...new Set(points.map((point) => point.x))].sort((a, b) => a - b);
    const kept = sizes.filter((size, i) => i === 0 || sizes.length <= 8 || Math.log2(size) % 1 === 0);
    return makeAxis({ type: "log", tickvals: kept, ticktext: kept.map(String), title: makeTitle(page.facets[item].axis),
      showgrid: false });
  }

  function getFacet(item) {
    return page.points.filter((point) => point.facet === item && ftax.isShown(point));
  }

  function hasOneSize(points) {
    return new Set(points.map((point) => point.x)).size === 1;
  }

  // With one size there is nothing to draw against it: a row a runtime instead.
  function drawRows(points, key, scale, axis) {
    const mixed = points.some((point) => point.dtype !== points[0].dtype);
    const getName = (point) => `${point.runtime}/${point.host}${mixed ? ` ${point.dtype}` : ""}`;
    const names = [...new Set(points.map(getName))].sort((a, b) => {
      const [first, second] = [a, b].map((name) => points.find((point) => getName(point) === name)[key]);
      return first - second;
    });
    const traces = points.map((point) => {
      const { colour, symbol } = getMark(point.runtime, point.host);
      return {
        type: "scatter", mode: "markers", x: [point[key] * scale], y: [names.indexOf(getName(point))],
        customdata: [label(point.text)], hovertemplate: "%{customdata}<extra></extra>",
        marker: { color: colour, symbol, size: 8, line: { width: symbol.endsWith("open") ? 1.6 : 0, color: colour } },
        ...(key === "latency" ? { error_x: getWhiskers([point], (one) => one.latency, scale, colour, LOW) } : {}),
      };
    });
    return [traces, makeLayout({
      // Not automargin: in a chart this small Plotly goes on adjusting it, and complains.
      margin: { l: 16 + 6.2 * Math.max(...names.map((name) => name.length)), r: 20, t: 8, b: 42 },
      xaxis: { ...axis, automargin: false, tickangle: 0 },
      yaxis: makeAxis({ range: [names.length - 0.5, -0.5], tickvals: names.map((_, i) => i), ...BARE, showgrid: true,
        automargin: false, ticktext: names.map(plain), tickfont: { size: 11 } }),
    })];
  }

  function makeLatencyAxis(points, most) {
    // A whisker much longer than the differences between latencies leaves the chart, or would flatten them.
    const latencies = points.map((point) => point.latency);
    const low = Math.min(...latencies) / 3, high = Math.max(...latencies) * 3;
    const ends = points.flatMap((point) => point.interval || []).filter((end) => end >= low && end <= high);
    const values = [...latencies, ...ends];
    return { ...makeTimeAxis(values.map((value) => value * S), most), title: makeTitle("latency") };
  }

  function drawLatency(place, item) {
    const points = getFacet(item);
    if (hasOneSize(points)) {
      const title = makeTitle(`latency ${page.facets[item].at} ${points[0].x}`);
      return drawRows(points, "latency", S, { ...makeLatencyAxis(points, 3), title });
    }
    const traces = makeSeries(points, "latency").map(([group, trace]) => ({
      ...trace, y: group.map((point) => point.latency * S),
      error_y: getWhiskers(group, (point) => point.latency, S, trace.line.color, LOW),
    }));
    return [traces, makeLayout({
      xaxis: makeSizeAxis(points, item),
      yaxis: makeLatencyAxis(points),
    })];
  }

  function drawOverhead(place, item) {
    const points = getFacet(item).filter((point) => point.overhead !== null);
    const share = { range: [-0.03, 1.03], tickformat: ".0%", dtick: 0.25 };
    if (hasOneSize(points)) {
      const title = makeTitle(`overhead share ${page.facets[item].at} ${points[0].x}`);
      return drawRows(points, "overhead", 1, makeAxis({ ...share, title }));
    }
    const traces = makeSeries(points, "overhead").map(([group, trace]) => (
      { ...trace, y: group.map((point) => point.overhead) }));
    return [traces, makeLayout({
      xaxis: makeSizeAxis(points, item),
      yaxis: makeAxis({ ...share, title: makeTitle("overhead share") }),
    })];
  }

  function drawWork(place, item) {
    const machine = page.machines[item];
    const points = page.points.filter((point) =>
      !point.guest && point.machine === machine && point.macs && point.kernels && ftax.isShown(point));
    const traces = makeSeries(points, "kernels").map(([group, trace]) => ({
      ...trace, mode: "markers", marker: { ...trace.marker, size: group[0].dtype === "fp32" ? 8 : 5, opacity: 0.75 },
      x: group.map((point) => point.macs), y: group.map((point) => point.kernels * S),
    }));
    return [traces, makeLayout({
      xaxis: makeAxis({ type: "log", tickformat: "~s", dtick: 1, title: makeTitle("multiply-accumulates (MACs)") }),
      yaxis: { ...makeTimeAxis(points.map((point) => point.kernels * S)), title: makeTitle("kernel time") },
    })];
  }

  function drawKnee(place, item) {
    const group = page.knees[item];
    const colours = getColours();
    const sizes = [group.low, ...group.knees.flatMap((knee) => knee.points.map((point) => point.size))];
    const traces = group.knees.map((knee) => {
      const { colour, symbol } = getMark(knee.runtime, knee.host);
      return {
        type: "scatter", mode: "lines+markers", name: plain(`${knee.runtime}/${knee.host}`),
        x: knee.points.map((point) => point.size), y: knee.points.map((point) => point.ratio),
        customdata: knee.points.map((point) => label(point.text)), hovertemplate: "%{customdata}<extra></extra>",
        line: { color: colour, width: 1.6 }, marker: { color: colour, symbol, size: 7 },
        error_y: getWhiskers(knee.points, (point) => point.ratio, 1, colour),
      };
    });
    const bands = group.knees.filter((knee) => knee.first_off !== null).map((knee) => ({
      type: "rect", yref: "paper", x0: knee.last_on, x1: knee.first_off, y0: 0, y1: 1, layer: "below",
      line: { width: 0 }, fillcolor: getMark(knee.runtime, knee.host).colour, opacity: 0.13,
    }));
    const margin = { type: "line", xref: "paper", x0: 0, x1: 1, y0: 1 + group.margin, y1: 1 + group.margin,
      line: { color: colours.faint, width: 1, dash: "dash" } };
    const ticks = [];
    for (let size = group.low; size <= Math.max(...sizes); size *= 2) ticks.push(size);
    return [traces, makeLayout({
      shapes: [...bands, margin], showlegend: true, margin: { l: 52, r: 14, t: 30, b: 42 },
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" },
      xaxis: makeAxis({ type: "log", tickvals: ticks, ticktext: ticks.map(String), showgrid: false,
        title: makeTitle(group.over) }),
      yaxis: makeAxis({ rangemode: "normal", title: makeTitle(`latency over that of ${group.over} ${group.low}`) }),
    })];
  }

  return { ladder: drawLadder, runtimes: drawRuntimes, latency: drawLatency, overhead: drawOverhead,
    work: drawWork, knee: drawKnee };
})();
