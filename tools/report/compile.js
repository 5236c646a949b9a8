const sum = (of) => data.kernels.reduce((all, k) => all + of(k) * k.count, 0);
const flops = sum((k) => k.flops), bytes = sum((k) => k.bytes);
const share_of = (k) => Math.max(flops ? k.flops * k.count / flops : 0, bytes ? k.bytes * k.count / bytes : 0);
const kernels = data.kernels.slice().sort((a, b) => share_of(b) - share_of(a));
const launches_of = (k) => k.launches.reduce((all, l) => all + (Number(l.times) || 1), 0);
const is_device = kernels.some(launches_of);
const worst = (k, key) => Math.max(0, ...k.launches.flatMap((l) => l.figures.map((f) => f[key])));

function summary() {
  const sources = {};
  data.kernels.forEach((k) => { sources[k.source] = (sources[k.source] || 0) + 1; });
  byId('summary').textContent = `${data.model} for ${data.target}: ${data.kernels.length} kernels in ${data.steps.length} steps, ${amount(flops, 'FLOP')}, ` +
    `${amount(data.weight_bytes, 'B')} of weights, ${amount(data.arena_bytes, 'B')} of working memory, a file of ${amount(data.file_bytes, 'B')}. Schedules: ` +
    Object.entries(sources).map(([source, n]) => `${n} ${source}`).join(', ') + '.';
  byId('footer').textContent = `mcc ${data.version}. Drawn with Chart.js ${Chart.version} (MIT licence).`;
  byId('notes').replaceChildren(...data.notes.map((note) => Object.assign(document.createElement('li'), {textContent: note})));
  byId('remarks').hidden = data.notes.length === 0;
}

function work() {
  const top = kernels.slice(0, 14);
  const bars = (label, of, all, color) => ({label, data: top.map((k) => all ? 100 * of(k) * k.count / all : 0), backgroundColor: color});
  draw('work', {
    type: 'bar',
    data: {labels: top.map(label), datasets: [bars('arithmetic', (k) => k.flops, flops, colors[0]), bars('traffic', (k) => k.bytes, bytes, colors[1])]},
    options: {indexAxis: 'y', scales: {x: axis('% of the model', {min: 0}), y: {grid: {display: false}}}, plugins: {legend: {display: true}}},
  });
}

function memory() {
  const points = data.steps.map((step, i) => ({x: i + 1, y: step.live_bytes / 1024, label: `step ${i + 1}, ${step.name}: ${amount(step.live_bytes, 'B')}`}));
  const arena = data.arena_bytes / 1024;
  draw('memory', {
    type: 'line',
    data: {datasets: [
      {data: points, borderColor: colors[2], backgroundColor: '#44836133', fill: true, stepped: true, borderWidth: 1.5, pointRadius: 0},
      {data: [{x: 1, y: arena}, {x: Math.max(points.length, 2), y: arena}].map((p) => ({...p, label: `the arena: ${amount(data.arena_bytes, 'B')}`})),
        borderColor: colors[5], borderDash: [6, 4], borderWidth: 1, pointRadius: 0}]},
    options: {
      parsing: false, interaction: {mode: 'nearest', axis: 'x', intersect: false},
      scales: {x: axis('step', {type: 'linear', min: 1}), y: axis('KiB; dashed: the arena', {beginAtZero: true})},
      plugins: {tooltip: {callbacks: {label: (c) => c.raw.label}}},
    },
  });
}

function overview() {
  const device = is_device ? [['launches'], ['registers'], ['shared'], ['spilled']] : [['at least']];
  table('kernels', [['task', 'left'], ['kernel', 'left'], ['runs'], ['FLOP'], ['traffic'], ...device, ['share'], ['schedule', 'left'], ['ONNX nodes', 'left']],
    kernels, (row, k) => {
      cell(row, k.id, 'left');
      cell(row, k.name, 'left');
      cell(row, k.count);
      cell(row, count(k.flops));
      cell(row, amount(k.bytes, 'B'));
      if (is_device) {
        cell(row, launches_of(k));
        cell(row, worst(k, 'registers'));
        cell(row, amount(Math.max(0, ...k.launches.map((l) => l.shared_bytes)), 'B'));
        cell(row, worst(k, 'spilled_bytes'));
      } else {
        cell(row, time(k.bound_us));
      }
      const share = cell(row, percent(share_of(k)));
      share.appendChild(bar(60 * share_of(k) / (share_of(kernels[0]) || 1)));
      cell(row, k.source, 'left');
      cell(row, k.nodes.join(' '), 'left nodes').title = k.nodes.join('\n');
      row.onclick = () => choose(k);
      row.id = 'row_' + k.id;
    });
}

function choose(k) {
  mark_row(k.id);
  byId('name').textContent = k.name;
  byId('text').textContent = `Task ${k.id}, ${k.count} of the steps; schedule: ${k.origin}. ${amount(k.flops, 'FLOP')}, ${amount(k.bytes, 'B')} of compulsory traffic` +
    (k.bound_us == null ? '.' : `, not below ${time(k.bound_us)} on one core.`) + k.refused.map((r) => ` ${r[0].toUpperCase()}${r.slice(1)}.`).join('');
  byId('trace').textContent = k.trace || 'none: a loop for each axis';
  byId('launches').hidden = launches_of(k) === 0;
  table('launches', [['launch', 'left'], ['blocks'], ['threads'], ['shared'], ['registers, by architecture', 'left'], ['spilled']], k.launches, (row, l) => {
    cell(row, l.times === 1 ? l.entry : `${l.entry} (${l.times} times)`, 'left');
    cell(row, l.grid.join(' x '));
    cell(row, l.block.join(' x '));
    cell(row, amount(l.shared_bytes, 'B'));
    cell(row, l.figures.map((f) => `${f.arch}: ${f.registers}`).join(', '), 'left');
    cell(row, Math.max(0, ...l.figures.map((f) => f.spilled_bytes)));
  });
}

summary();
work();
memory();
overview();
if (kernels.length) choose(kernels.find((k) => k.id === location.hash.slice(1)) || kernels[0]);
else byId('one').hidden = true;
document.body.dataset.ready = 'yes';
