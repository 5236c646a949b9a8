'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);
const colors = ['#0b6e99', '#d9730d', '#448361', '#9065b0', '#c14c8a', '#d44c47', '#cb912f', '#6b7a8c', '#2a9d8f', '#5e60ce'];
Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;
Chart.defaults.font.size = 12;
Chart.defaults.color = '#5b6875';
Chart.defaults.plugins.legend.display = false;

const time = (us) => us == null ? '-' : us >= 1e6 ? (us / 1e6).toFixed(2) + ' s' : us >= 1e3 ? (us / 1e3).toFixed(3) + ' ms' : us.toFixed(2) + ' us';
const count = (n) => n >= 1e9 ? (n / 1e9).toFixed(2) + ' G' : n >= 1e6 ? (n / 1e6).toFixed(2) + ' M' : n >= 1e3 ? (n / 1e3).toFixed(1) + ' k' : String(n);
const amount = (n, unit) => count(n) + (n < 1e3 ? ' ' : '') + unit;
const percent = (x) => x == null ? '-' : (100 * x).toFixed(1) + ' %';

function cell(row, text, className) {
  const td = document.createElement(row.parentNode.tagName === 'THEAD' ? 'th' : 'td');
  td.textContent = text;
  if (className) td.className = className;
  row.appendChild(td);
  return td;
}

function table(id, head, rows, fill) {
  const element = byId(id);
  element.replaceChildren();
  const top = element.createTHead().insertRow();
  head.forEach(([text, className]) => cell(top, text, className));
  const body = element.createTBody();
  rows.forEach((r) => fill(body.insertRow(), r));
}

let chart_of = {};
function draw(id, config) {
  if (chart_of[id]) chart_of[id].destroy();
  chart_of[id] = new Chart(byId(id), config);
}
const axis = (text, more) => Object.assign({title: {display: true, text}, grid: {color: '#eef1f4'}}, more);
const label = (t) => t.name.length > 26 ? t.name.slice(0, 25) + '…' : t.name;

function bar(width) {
  const span = document.createElement('span');
  span.className = 'bar';
  span.style.width = Math.round(width) + 'px';
  return span;
}

function mark_row(id) {
  document.querySelectorAll('tr.chosen').forEach((r) => r.classList.remove('chosen'));
  const row = byId('row_' + id);
  if (row) row.classList.add('chosen');
}
