"use strict";
// Times, costs and constraints of a design at any bandwidths, from the data of what_if.py.
// SI units throughout. Nothing here touches the page.

const stepModel = (() => {
  const TIE = 1e-4; // as in libra.breakdown: dimensions this close limit a collective together

  /** 1 / (form . bandwidth) of each form; infinite where a form has no bandwidth. */
  function reciprocals(forms, bandwidth) {
    return forms.map((form) => 1 / form.reduce((sum, h, d) => sum + h * bandwidth[d], 0));
  }

  /** Time of one piece at a number of chunks c. */
  function pieceTime([a, b, terms], c, slow) {
    let time = a + b * c;
    for (let k = 0; k < terms.length; k += 3) {
      const bytes = terms[k + 1] + terms[k + 2] / c;
      if (bytes > 0) time += bytes * slow[terms[k]];
    }
    return time;
  }

  /** Fastest schedule of a collective: its time, pieces and number of chunks. */
  function collectiveTime(collective, slow) {
    let best = { time: Infinity, pieces: collective.orders[0], order: 0, chunks: collective.chunks[0] || 1 };
    for (const [order, pieces] of collective.orders.entries()) {
      for (const count of collective.chunks) {
        const chunks = count || 1;
        let time = 0;
        for (const piece of pieces) time = Math.max(time, pieceTime(piece, chunks, slow));
        if (time < best.time) best = { time, pieces, order, chunks, many: !count };
      }
    }
    return best;
  }

  /** Dimensions whose bandwidth sets a collective's time; none where latency is over half of it. */
  function limitedBy(chosen, forms, slow) {
    const { time, pieces, chunks } = chosen;
    const limiting = new Set();
    let latency = null;
    for (const piece of pieces) {
      if (pieceTime(piece, chunks, slow) < time * (1 - TIE)) continue;
      latency ??= piece[0] + piece[1] * chunks;
      const parts = [];
      for (let k = 0; k < piece[2].length; k += 3) {
        const bytes = piece[2][k + 1] + piece[2][k + 2] / chunks;
        if (bytes > 0) parts.push([piece[2][k], bytes * slow[piece[2][k]]]);
      }
      const most = Math.max(0, ...parts.map((part) => part[1]));
      for (const [form, part] of parts) {
        if (part >= most / 2) forms[form].forEach((h, d) => h > 0 && limiting.add(d));
      }
    }
    return latency > time / 2 ? [] : [...limiting].sort((x, y) => x - y);
  }

  /** Task graph in the form that longestPath walks, made once of the page's data. */
  function unpack(graph) {
    const starts = (counts) => {
      const start = new Int32Array(counts.length + 1);
      counts.forEach((n, i) => (start[i + 1] = start[i] + n));
      return start;
    };
    const start = starts(graph.awaited);
    const predecessor = new Int32Array(graph.back.length);
    for (let i = 0; i < graph.awaited.length; i++) {
      for (let k = start[i]; k < start[i + 1]; k++) predecessor[k] = i - graph.back[k];
    }
    return {
      fixed: Float64Array.from(graph.fixed, (k) => graph.values[k]),
      countStart: starts(graph.counted),
      countIndex: graph.countIndex,
      countValue: graph.countValue,
      start,
      predecessor,
      end: new Float64Array(graph.fixed.length),
    };
  }

  /** Fixed time and counts along the longest path: forward for the ends, back along what was
   * awaited, as libra.timing does. */
  function longestPath(g, tau) {
    const { fixed, countStart, countIndex, countValue, start, predecessor, end } = g;
    let last = 0;
    let latest = -1;
    for (let i = 0; i < fixed.length; i++) {
      let time = 0;
      for (let k = start[i]; k < start[i + 1]; k++) {
        const ready = end[predecessor[k]];
        if (ready > time) time = ready;
      }
      time += fixed[i];
      for (let k = countStart[i]; k < countStart[i + 1]; k++) {
        time += countValue[k] * tau[countIndex[k]];
      }
      end[i] = time;
      if (time > latest) {
        last = i;
        latest = time;
      }
    }
    let total = 0;
    const counts = new Float64Array(tau.length);
    while (last >= 0) {
      total += fixed[last];
      for (let k = countStart[last]; k < countStart[last + 1]; k++) {
        counts[countIndex[k]] += countValue[k];
      }
      let awaited = -1;
      latest = -1;
      for (let k = start[last]; k < start[last + 1]; k++) {
        if (end[predecessor[k]] > latest) {
          awaited = predecessor[k];
          latest = end[awaited];
        }
      }
      last = awaited;
    }
    return { fixed: total, counts };
  }

  /** Time each dimension is in use where a collective's work is spread evenly, as in libra.pieces. */
  function spreadTimes({ sets, work, reach }, bandwidth) {
    const known = new Map(sets.map((set, k) => [set, work[k]]));
    const times = bandwidth.map(() => 0);
    const inside = (set) => bandwidth.map((_, d) => d).filter((d) => (set >> d) & 1);
    for (let placed = 0, done = 0; ; done = known.get(placed)) {
      let chosen = 0;
      let longest = -1;
      for (const set of sets) {
        if (set & placed) continue;
        const width = inside(set).reduce((sum, d) => sum + reach[d] * bandwidth[d], 0);
        const time = (known.get(set | placed) - done) / width;
        if (time > longest) [chosen, longest] = [set, time];
      }
      if (!chosen) return times;
      for (const d of inside(chosen)) times[d] = longest;
      placed |= chosen;
    }
  }

  /** Time each dimension is in use during a step; of NPUs that differ the longest. */
  function busyTimes(workload, chosen, bandwidth) {
    const timeOf = (bytes, d) => (bytes > 0 ? bytes / bandwidth[d] : 0);
    if (!workload.spread) return workload.traffic.map(timeOf);
    const each = workload.spread.traffic.map((traffic, j) => {
      const fixed = traffic.map(timeOf);
      const { sets, evenly, filled } = workload.collectives[j];
      const { order, chunks, many } = chosen[j];
      if (!sets || !evenly[order] || !fixed.every(Number.isFinite)) return fixed;
      const times = spreadTimes(workload.collectives[j], bandwidth);
      if (!filled[order] || many) return times;
      return times.map((time, d) => time + (fixed[d] - time) / chunks);
    });
    const rows = workload.spread.counts.map((counts) =>
      bandwidth.map((_, d) =>
        counts.reduce((sum, count, j) => sum + (count > 0 ? count * each[j][d] : 0), 0),
      ),
    );
    return bandwidth.map((_, d) => Math.max(...rows.map((row) => row[d])));
  }

  /** Step of a workload: time, compute, and communication by what limits it. */
  function timeWorkload(workload, bandwidth) {
    const slow = reciprocals(workload.forms, bandwidth);
    const chosen = workload.collectives.map((c) => collectiveTime(c, slow));
    const tau = chosen.map((c) => c.time);
    let path = workload.path;
    if (workload.graph) {
      workload.unpacked ??= unpack(workload.graph);
      path = longestPath(workload.unpacked, tau);
    }
    const groups = new Map();
    let time = path.fixed;
    path.counts.forEach((count, j) => {
      if (!(count > 0)) return;
      const part = count * tau[j];
      time += part;
      const limits = limitedBy(chosen[j], workload.forms, slow);
      const key = limits.join();
      groups.set(key, { limits, time: (groups.get(key)?.time ?? 0) + part });
    });
    return {
      time,
      compute: path.fixed,
      groups: [...groups.values()].sort((x, y) => y.time - x.time),
      busy: busyTimes(workload, chosen, bandwidth),
    };
  }

  /** Columns of the bandwidths, filled in order, as libra.pricing does. */
  function split(pricing, bandwidth) {
    const left = [...bandwidth];
    return pricing.owner.map((d, k) => {
      const last = pricing.owner[k + 1] !== d;
      const part = last ? left[d] : Math.min(left[d], pricing.width[k] ?? Infinity);
      left[d] -= part;
      return part;
    });
  }

  /** Cost or power of each dimension. */
  function amounts(pricing, bandwidth, name) {
    const columns = split(pricing, bandwidth);
    const found = bandwidth.map(() => 0);
    pricing.owner.forEach((d, k) => (found[d] += columns[k] * pricing[name][k]));
    pricing.tables.forEach((table, d) => {
      if (!table) return;
      const k = table.bandwidth.findIndex((b) => Math.abs(b - bandwidth[d]) <= 1e-9 * bandwidth[d]);
      if (k >= 0) found[d] = table[name][k];
    });
    return found;
  }

  const sum = (values) => values.reduce((total, v) => total + v, 0);

  /** Room that a row leaves; negative: violated. */
  function rowSlack(row, columns, totals) {
    const left =
      row.kind === "bandwidth"
        ? row.coefficients.reduce((total, a, k) => total + a * columns[k], 0)
        : row.multiple * totals[row.kind];
    const difference = left - row.bound;
    if (row.relation === "==") return -Math.abs(difference);
    return row.relation === ">=" ? difference : -difference;
  }

  /** Everything the page shows of a design at bandwidths. */
  function evaluate(model, bandwidth) {
    const workloads = model.workloads.map((w) => timeWorkload(w, bandwidth));
    const { pricing } = model;
    const columns = split(pricing, bandwidth);
    const costs = amounts(pricing, bandwidth, "price");
    const powers = pricing.power ? amounts(pricing, bandwidth, "power") : null;
    const totals = { cost: sum(costs), power: powers ? sum(powers) : null };
    const size = sum(bandwidth);
    const rows = model.rows.map((row) => {
      const scale = Math.max(Math.abs(row.bound), row.kind === "bandwidth" ? size : 0);
      return { text: row.text, met: rowSlack(row, columns, totals) >= -1e-9 * scale };
    });
    for (const limit of model.limits) {
      const met = workloads[limit.workload].time <= limit.seconds * (1 + 1e-9);
      rows.push({ text: limit.text, met });
    }
    return {
      time: sum(workloads.map((w, k) => model.workloads[k].weight * w.time)),
      exact: model.workloads.every((w) => w.exact),
      workloads,
      total: size,
      ...totals,
      rows,
    };
  }

  return { evaluate };
})();
