const gflops = (task, us) => us > 0 ? task.flops / us / 1e3 : null;
// Kernels with hardly any arithmetic are rated by their traffic.
const is_arithmetic = (task) => task.flops > 2 * task.bytes;
const speed = (task, us) => is_arithmetic(task) ? gflops(task, us) : us > 0 ? task.bytes / us / 1e3 : null;
const speed_unit = (task) => is_arithmetic(task) ? 'GFLOP/s' : 'GB/s';

const model_us = (key) => data.tasks.reduce((sum, t) => sum + (t[key] == null ? 0 : t[key] * t.count), 0);
const tasks = data.tasks.slice().sort((a, b) => (b.best_us || 0) * b.count - (a.best_us || 0) * a.count);

function summary() {
  const before = model_us('default_us'), after = model_us('best_us');
  const trials = tasks.reduce((n, t) => n + t.trials.length, 0);
  byId('summary').textContent = `${tasks.length} tasks, ${trials} trials, for ${data.target}. ` +
    (before > 0 && after > 0 ? `Sum of the kernels: ${time(before)} by default, ${time(after)} tuned (${(before / after).toFixed(2)}x).` : '');
  byId('footer').textContent = `mcc ${data.version}; measured on ${data.device}. Drawn with Chart.js ${Chart.version} (MIT licence).`;
}

function overview() {
  const total = model_us('best_us');
  const widest = Math.max(...tasks.map((t) => (t.best_us || 0) * t.count));
  table('tasks', [['task', 'left'], ['kernel', 'left'], ['runs'], ['trials'], ['default'], ['best'], ['gain'], ['speed'], ['roofline'], ['share'], ['ONNX nodes', 'left']],
    tasks, (row, t) => {
      cell(row, t.id, 'left');
      cell(row, t.name, 'left');
      cell(row, t.count);
      cell(row, t.trials.length);
      cell(row, time(t.default_us));
      cell(row, time(t.best_us));
      cell(row, t.default_us && t.best_us ? (t.default_us / t.best_us).toFixed(2) + 'x' : '-');
      const s = speed(t, t.best_us);
      cell(row, s == null ? '-' : s.toFixed(1) + ' ' + speed_unit(t));
      cell(row, percent(t.bound_us && t.best_us ? t.bound_us / t.best_us : null));
      const share = cell(row, percent(total > 0 && t.best_us ? t.best_us * t.count / total : null));
      share.appendChild(bar(60 * (t.best_us || 0) * t.count / (widest || 1)));
      cell(row, t.nodes.join(' '), 'left nodes').title = t.nodes.join('\n');
      row.onclick = () => choose(t.id);
      row.id = 'row_' + t.id;
    });
}

function bars() {
  const top = tasks.filter((t) => t.best_us).slice(0, 14);
  draw('shares', {
    type: 'bar',
    data: {
      labels: top.map(label),
      datasets: [
        {label: 'default', data: top.map((t) => t.default_us ? t.default_us * t.count / 1e3 : null), backgroundColor: '#c9d3dd'},
        {label: 'best', data: top.map((t) => t.best_us * t.count / 1e3), backgroundColor: colors[0]}],
    },
    options: {indexAxis: 'y', scales: {x: axis('ms in one run of the model'), y: {grid: {display: false}}}, plugins: {legend: {display: true}}},
  });
  draw('roofline', {
    type: 'bar',
    data: {labels: top.map(label), datasets: [{data: top.map((t) => t.bound_us ? 100 * t.bound_us / t.best_us : null), backgroundColor: colors[2]}]},
    options: {indexAxis: 'y', scales: {x: axis('% of the bound by arithmetic and compulsory traffic', {min: 0, suggestedMax: 100}), y: {grid: {display: false}}}},
  });
}

function convergence() {
  const sets = tasks.filter((t) => t.trials.some((r) => r.us != null)).slice(0, 30).map((t, i) => {
    let best = null;
    const start = t.default_us || t.trials.find((r) => r.us != null).us;
    const points = [];
    t.trials.forEach((r, n) => {
      if (r.us != null && (best == null || r.us < best)) best = r.us;
      if (best != null) points.push({x: n + 1, y: best / start});
    });
    // The end is marked: of a search of one trial there is nothing else to see.
    const color = colors[i % colors.length];
    return {label: t.name, data: points, borderColor: color, backgroundColor: color, borderWidth: 2, stepped: true, clip: false,
      pointRadius: points.map((p, n) => n + 1 === points.length ? 3.5 : 0)};
  });
  draw('convergence', {
    type: 'line',
    data: {datasets: sets},
    options: {
      parsing: false, scales: {x: axis('trial of the task', {type: 'linear', min: 1}), y: axis('best time / default')},
      interaction: {mode: 'nearest', intersect: false},
      plugins: {legend: {display: sets.length <= 12, position: 'right', labels: {boxWidth: 12}}},
    },
  });
}

const scatter = (x, y, points, color, more) => ({
  type: 'scatter',
  data: {datasets: [{data: points, backgroundColor: color || colors[0], pointRadius: 2.5}]},
  options: {
    parsing: false,
    scales: {x: axis(x, Object.assign({type: 'linear'}, more)), y: axis(y, {beginAtZero: true})},
    plugins: {tooltip: {callbacks: {label: (c) => c.raw.label || `${c.raw.x}, ${c.raw.y}`}}},
  },
});

let current = null;

function choose(id) {
  current = tasks.find((t) => t.id === id) || tasks[0];
  if (!current) return;
  mark_row(current.id);
  byId('task').value = current.id;
  byId('task_text').textContent = `${count(current.flops)}FLOP, ${count(current.bytes)}B of compulsory traffic, bound ${time(current.bound_us)}, best ${time(current.best_us)}` +
    (current.space ? `, space of ${count(current.space)} points` : '') + '.';
  byId('trace').textContent = current.trace || 'none';
  const names = new Set();
  current.trials.forEach((r) => Object.keys(r.point).forEach((n) => names.add(n)));
  fill('decision', ['threads', 'sketch', ...[...names].sort()]);
  const levels = new Set();
  current.trials.forEach((r) => Object.keys(r.footprint || {}).forEach((n) => levels.add(n)));
  fill('level', [...levels]);
  byId('level').closest('figure').hidden = levels.size === 0;
  byId('model').closest('figure').hidden = !current.trials.some((r) => r.predicted != null);
  one_task();
}

function fill(id, options) {
  const select = byId(id), before = select.value;
  select.replaceChildren(...options.map((o) => new Option(o, o)));
  if (options.includes(before)) select.value = before;
  else if (id === 'decision') select.value = options.find((o) => o.endsWith('.rows')) || options[2] || options[0];
}

function one_task() {
  const t = current, unit = speed_unit(t);
  const timed = t.trials.map((r, n) => Object.assign({n: n + 1}, r)).filter((r) => r.us != null);
  const at = (r, x) => ({x, y: speed(t, r.us), label: `trial ${r.n}: ${time(r.us)}, ${speed(t, r.us).toFixed(1)} ${unit}`});
  let best = null;
  const line = timed.map((r) => { best = best == null ? r.us : Math.min(best, r.us); return {x: r.n, y: speed(t, best)}; });
  const every = scatter('trial', unit, timed.map((r) => at(r, r.n)), '#9fb4c4');
  every.data.datasets.push({type: 'line', data: line, borderColor: colors[1], borderWidth: 3, pointRadius: 0, stepped: true});
  draw('trials', every);

  const name = byId('decision').value;
  const value = (r) => name === 'threads' ? r.threads : name === 'sketch' ? r.sketch : r.point[name] == null ? null : r.point[name].join('x');
  const values = [...new Set(timed.map(value).filter((v) => v != null))];
  const numeric = values.every((v) => v !== '' && !isNaN(v));
  values.sort((a, b) => numeric ? a - b : String(a).localeCompare(String(b), 'en', {numeric: true}));
  const points = timed.filter((r) => value(r) != null).map((r) => at(r, values.indexOf(value(r))));
  const config = scatter(name, unit, points, colors[0], {
    min: -0.5,
    max: values.length - 0.5,
    afterBuildTicks: (scale) => { scale.ticks = values.map((_, i) => ({value: i})); },
    ticks: {callback: (v) => String(values[v])},
  });
  const tops = values.map((v, i) => ({x: i, y: Math.max(...timed.filter((r) => value(r) === v).map((r) => speed(t, r.us)))}));
  config.data.datasets.push({type: 'line', data: tops, borderColor: colors[1], borderWidth: 2, pointRadius: 0});
  draw('decisions', config);

  const level = byId('level').value;
  if (level) {
    const points = timed.filter((r) => r.footprint && r.footprint[level] > 0).map((r) => at(r, r.footprint[level] / 1024));
    const config = scatter('KiB that ' + level + ' touches; lines: the caches of a core', unit, points, colors[3], {type: 'logarithmic'});
    const top = Math.max(...points.map((p) => p.y), 0), widest = Math.max(...points.map((p) => p.x), 0);
    Object.entries(data.caches || {}).filter(([, bytes]) => bytes > 0 && bytes / 1024 <= 8 * widest).forEach(([name, bytes]) => {
      const label = `${name}, ${bytes / 1024} KiB`;
      config.data.datasets.push({type: 'line', data: [0, top].map((y) => ({x: bytes / 1024, y, label})), borderColor: colors[7], borderWidth: 1, borderDash: [4, 4], pointRadius: 0});
    });
    draw('footprint', config);
  }
  if (timed.some((r) => r.predicted != null)) {
    draw('model', scatter('score that the model gave', unit, timed.filter((r) => r.predicted != null).map((r) => at(r, r.predicted)), colors[4]));
  }
}

function quality() {
  table('models', [['cost model', 'left'], ['tasks'], ['rated trials'], ['pairs in the right order'], ['of the 10 best among the 10 first'], ['first / best'], ['best of the first 5 / best']],
    data.models, (row, m) => {
      cell(row, m.model, 'left').id = 'model_' + m.model;
      cell(row, m.tasks);
      cell(row, m.count);
      cell(row, percent(m.pairwise));
      cell(row, percent(m.recall));
      cell(row, percent(m.peak1));
      cell(row, percent(m.peak5));
    });
  const rated = tasks.filter((t) => t.quality);
  table('quality', [['task', 'left'], ['kernel', 'left'], ['rated trials'], ['pairs in the right order'], ['of the 10 best among the 10 first'], ['first / best'], ['best of the first 5 / best']],
    rated, (row, t) => {
      cell(row, t.id, 'left');
      cell(row, t.name, 'left');
      cell(row, t.quality.count);
      cell(row, percent(t.quality.pairwise));
      cell(row, percent(t.quality.recall));
      cell(row, percent(t.quality.peak1));
      cell(row, percent(t.quality.peak5));
      row.onclick = () => choose(t.id);
    });
  byId('quality').closest('section').hidden = rated.length === 0;
}

function errors() {
  const kinds = [...new Set(tasks.flatMap((t) => t.trials.filter((r) => r.us == null).map((r) => r.error)))].sort();
  const failed = tasks.filter((t) => t.trials.some((r) => r.us == null));
  byId('failures').hidden = failed.length === 0;
  table('errors', [['task', 'left'], ['kernel', 'left'], ...kinds.map((k) => [k]), ['for example', 'left']], failed, (row, t) => {
    cell(row, t.id, 'left');
    cell(row, t.name, 'left');
    kinds.forEach((k) => cell(row, t.trials.filter((r) => r.us == null && r.error === k).length || ''));
    const example = t.trials.find((r) => r.us == null && r.message);
    cell(row, example ? example.message : '', 'left nodes').title = example ? example.message : '';
    row.onclick = () => choose(t.id);
  });
}

summary();
overview();
bars();
convergence();
quality();
errors();
byId('task').replaceChildren(...tasks.map((t) => new Option(`${t.name} (${t.id})`, t.id)));
byId('task').onchange = () => choose(byId('task').value);
byId('decision').onchange = one_task;
byId('level').onchange = one_task;
if (tasks.length) choose(location.hash.slice(1) || tasks[0].id);
else byId('one').hidden = true;
document.body.dataset.ready = 'yes';
