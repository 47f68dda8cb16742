// Makes pages livelier. Everything here has a plain form or link underneath that works without it.
'use strict';

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
// What ends with the content it was made for.
let stops = [];
const whenGone = (stop) => stops.push(stop);

// --- Content that is replaced without loading the page.

async function replace(response) {
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  const fresh = $('main', page);
  if (!fresh) return location.assign(response.url);
  const focused = document.activeElement && document.activeElement.id;
  const scrolled = $$('.rows').map((rows) => rows.scrollLeft);
  stops.splice(0).forEach((stop) => stop());
  $('main').replaceChildren(...fresh.childNodes);
  document.title = page.title;
  history.replaceState(null, '', response.url);
  $$('.rows').forEach((rows, at) => { rows.scrollLeft = scrolled[at] || 0; });
  start();
  const alert = $('[role=alert]');
  const before = focused && document.getElementById(focused);
  if (before && !before.disabled) before.focus({ preventScroll: true });
  else if (alert) { alert.tabIndex = -1; alert.focus(); }
}

async function show(url) {
  const response = await fetch(url, { headers: { Accept: 'text/html' } });
  const there = new URL(response.url);
  // Another page than asked for: its own address, its own history.
  if (there.pathname !== new URL(url, location.href).pathname) return location.assign(response.url);
  return replace(response);
}

document.addEventListener('submit', async (event) => {
  const form = event.target;
  if (form.dataset.busy) return event.preventDefault();
  form.dataset.busy = 'true';
  if (event.submitter) event.submitter.setAttribute('aria-busy', 'true');
  if (!('swap' in form.dataset)) {
    // The browser goes on to the answer: news that arrive meanwhile, such as the end of this very visit, must not lead
    // elsewhere.
    stops.splice(0).forEach((stop) => stop());
    // Back in the history the page lives again.
    window.addEventListener('pageshow', () => { delete form.dataset.busy; start(); }, { once: true });
    return;
  }
  event.preventDefault();
  const action = (event.submitter && event.submitter.getAttribute('formaction')) || form.getAttribute('action');
  try {
    const response = await fetch(action, { method: 'POST', body: new URLSearchParams(new FormData(form, event.submitter)) });
    if (new URL(response.url).pathname !== location.pathname) return location.assign(response.url);
    await replace(response);
  } catch {
    offline(true);
    delete form.dataset.busy;
    if (event.submitter) event.submitter.removeAttribute('aria-busy');
  }
});

// --- Time that runs down.

function countdowns() {
  const began = performance.now();
  const all = $$('.countdown').map((span) => [span, Number(span.dataset.left)]);
  if (!all.length) return;
  let over = false;
  const tick = () => {
    for (const [span, from] of all) {
      const left = Math.max(0, Math.round(from - (performance.now() - began) / 1000));
      const days = Math.floor(left / 86400);
      const hours = Math.floor(left / 3600) % 24;
      const pad = (n) => String(n).padStart(2, '0');
      const clock = `${pad(Math.floor(left / 60) % 60)}:${pad(left % 60)}`;
      const text = left >= 3600 ? `${days ? days + ' · ' : ''}${hours}:${clock}` : `${Math.floor(left / 60)}:${pad(left % 60)}`;
      if (span.textContent !== text) span.textContent = text;
      const late = left <= 60 && !span.dataset.reload;
      if (late && !span.classList.contains('late')) {
        span.classList.add('late');
        if (left > 0) say($('#seats') && $('#seats').dataset.hurry);
      }
      if (left === 0 && !over) {
        over = true;
        // A moment later, so that the server agrees.
        setTimeout(() => show(location.href), 1200);
      }
    }
  };
  tick();
  const timer = setInterval(tick, 250);
  whenGone(() => clearInterval(timer));
}

// For people who listen: not more often than they can follow.
let said = 0;
function say(text, atMostEvery = 0) {
  const region = $('#say');
  const now = Date.now();
  if (!region || !text || now - said < atMostEvery) return;
  said = now;
  region.textContent = text;
}

// --- Listening: a stream near the front, polls further back or when the stream fails.

function listen(events, status, heard) {
  let source = null;
  let timer = null;
  let gone = false;
  whenGone(() => { gone = true; clearTimeout(timer); if (source) source.close(); });

  const poll = (after) => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      try {
        const response = await fetch(status, { cache: 'no-store' });
        if (gone) return;
        const body = await response.json();
        if (response.status >= 500) return poll(2000 + Math.random() * 2000);
        offline(false);
        if (!response.ok) return heard({ status: body.code });
        heard(body);
        if (gone) return;
        if (body.push || body.status === 'ACTIVE') return open();
        poll(body.pollAfterMs);
      } catch {
        if (gone) return;
        offline(true);
        poll(2000 + Math.random() * 2000);
      }
    }, after);
  };
  const open = () => {
    if (source || !window.EventSource) return window.EventSource || poll(2000);
    source = new EventSource(events);
    source.addEventListener('status', (event) => {
      offline(false);
      const body = JSON.parse(event.data);
      heard(body);
      if (!gone && body.push === false) { close(); poll(body.pollAfterMs); }
    });
    source.addEventListener('end', (event) => { close(); heard({ status: JSON.parse(event.data).code }); });
    source.addEventListener('error', () => { close(); if (!gone) poll(500 + Math.random() * 1500); });
  };
  const close = () => { if (source) source.close(); source = null; };
  return { poll, open };
}

function offline(is) {
  let note = $('#offline');
  if (is && !note) {
    note = document.createElement('div');
    note.id = 'offline';
    note.className = 'alert warn';
    note.setAttribute('role', 'status');
    note.textContent = $('main').dataset.offline;
    $('main').prepend(note);
  } else if (!is && note) note.remove();
}

// --- The queue page.

function queue() {
  const box = $('#queue');
  if (!box) return;
  let paused = Boolean($('.alert', box));
  const waiting = Boolean($('#rank'));
  const ears = listen(box.dataset.events, box.dataset.status, (now) => {
    if (now.status === 'ACTIVE') {
      document.title = `${box.dataset.turn} · ZTicket`;
      say(box.dataset.turn);
      return location.assign(box.dataset.seats);
    }
    const kind = now.status === 'WAITING';
    if (kind !== waiting || Boolean(now.pause) !== paused || (!kind && now.status !== 'SOLD_OUT')) return show(location.href);
    if (kind) moved(now);
  });
  const lang = document.documentElement.lang;
  const fill = (text, ...values) => values.reduce((filled, value) => filled.replace('{}', value), text);
  const count = (number) => number.toLocaleString(lang);
  const span = (seconds) => {
    if (seconds < 60) return fill(box.dataset.seconds, seconds);
    if (seconds < 3600) return fill(box.dataset.minutes, Math.ceil(seconds / 60));
    return fill(box.dataset.hours, Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60));
  };
  const write = (id, text) => { const part = $(id); if (part.textContent !== text) part.textContent = text; };
  function moved(now) {
    const wait = now.estimatedWaitSeconds;
    write('#rank', count(now.rank));
    const few = [box.dataset.nobody, box.dataset.one][now.aheadCount];
    write('#ahead', few || fill(box.dataset.ahead, count(now.aheadCount)));
    write('#wait', wait ? fill(box.dataset.range, span(wait.low), span(wait.high)) : box.dataset.unknown);
    write('#left', count(now.seatsLeft));
    write('#line', count(now.waitingCount));
    write('#chance', now.seatsLeft > now.aheadCount ? box.dataset.enough : box.dataset.scarce);
    const way = $('#way');
    const first = Math.max(Number(box.dataset.first), now.rank);
    // Forward only.
    if (first > 1) way.value = Math.max(way.value, Math.floor(((first - now.rank) * 100) / (first - 1)));
    say($('#ahead').textContent, 10000);
  }
  ears.poll(1000);
}

// --- The seat page.

function seats() {
  const box = $('#seats');
  if (!box) return;
  let version = null;
  let busy = false;
  const status = box.dataset.events.replace(/\/events$/, '');
  const ears = listen(box.dataset.events, status, (now) => {
    if (now.status !== 'ACTIVE') return show(location.href);
    if (version !== null && now.seatsVersion !== version) refresh();
    version = now.seatsVersion;
  });
  async function refresh() {
    if (busy || !$('.hall')) return;
    busy = true;
    try {
      // The browser asks whether it changed, and mostly has it.
      const response = await fetch(box.dataset.map, { cache: 'no-cache' });
      if (response.ok) (await response.json()).forEach(seat);
    } finally {
      busy = false;
    }
  }
  function seat({ seatNumber, label, status: state }) {
    const button = document.getElementById(`s${seatNumber}`);
    if (!button || button.classList.contains('mine') || button.classList.contains(state)) return;
    button.className = `seat ${state}`;
    button.disabled = state !== 'available';
    button.setAttribute('aria-label', `${label}, ${box.dataset[state]}`);
  }
  ears.open();
  arrows();
}

// One stop for the tab key in the whole map; the arrows go from seat to seat.
function arrows() {
  const rows = $$('.hall .row').map((row) => $$('button.seat', row));
  const all = rows.flat();
  if (!all.length) return;
  const first = all.find((seat) => !seat.disabled) || all[0];
  all.forEach((seat) => { seat.tabIndex = seat === first ? 0 : -1; });
  const middle = (seat) => { const box = seat.getBoundingClientRect(); return box.left + box.width / 2; };
  const near = (row, x) => row.filter((seat) => !seat.disabled).sort((a, b) => Math.abs(middle(a) - x) - Math.abs(middle(b) - x))[0];
  $('.hall').addEventListener('keydown', (event) => {
    const at = rows.findIndex((row) => row.includes(event.target));
    if (at < 0) return;
    const free = rows[at].filter((seat) => !seat.disabled || seat === event.target);
    const here = free.indexOf(event.target);
    let to = null;
    if (event.key === 'ArrowRight') to = free[here + 1];
    else if (event.key === 'ArrowLeft') to = free[here - 1];
    else if (event.key === 'ArrowDown') to = rows.slice(at + 1).map((row) => near(row, middle(event.target))).find(Boolean);
    else if (event.key === 'ArrowUp') to = rows.slice(0, at).reverse().map((row) => near(row, middle(event.target))).find(Boolean);
    else return;
    event.preventDefault();
    if (!to) return;
    all.forEach((seat) => { seat.tabIndex = -1; });
    to.tabIndex = 0;
    to.focus();
  });
}

function start() {
  countdowns();
  queue();
  seats();
  $$('[data-print]').forEach((button) => { button.hidden = false; button.addEventListener('click', () => window.print()); });
}

start();
