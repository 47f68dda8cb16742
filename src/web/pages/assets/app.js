// Makes pages livelier. Everything here has a plain form or link underneath that works without it.
'use strict';

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
// What ends with the content it was made for.
let stops = [];
const whenGone = (stop) => stops.push(stop);
// Counts what was shown and sent: an answer to something older is not shown any more.
let life = 0;
function end() {
  life += 1;
  stops.splice(0).forEach((stop) => stop());
}

// Goes to another page. Nothing that is heard meanwhile may lead elsewhere.
function leave(url) {
  end();
  location.assign(url);
}

// --- Content that is replaced without loading the page.

const elsewhere = (response) => response.redirected && new URL(response.url).pathname !== location.pathname;

async function replace(response) {
  const mine = life;
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  if (mine !== life) return;
  const fresh = $('main', page);
  if (!fresh) return leave(response.url);
  const focused = document.activeElement;
  const scrolled = $$('.rows').map((rows) => rows.scrollLeft);
  end();
  $('main').replaceChildren(...fresh.childNodes);
  document.title = page.title;
  history.replaceState(null, '', response.url);
  $$('.rows').forEach((rows, at) => { rows.scrollLeft = scrolled[at] || 0; });
  start();
  if (document.activeElement === focused) return;
  // Where one was, or else where the change is.
  const again = focused && focused.id && document.getElementById(focused.id);
  const to = again && !again.disabled ? again : $('[role=alert]') || $('#basket') || $('main');
  if (to.matches('[role=alert]')) to.tabIndex = -1;
  to.focus({ preventScroll: Boolean(again) });
}

// The page as it is now. What cannot be had is asked for again.
async function show(url) {
  const mine = life;
  try {
    const response = await fetch(url, { headers: { Accept: 'text/html' } });
    if (mine !== life) return;
    if (response.status < 500) {
      offline(false);
      if (elsewhere(response)) return leave(response.url);
      return await replace(response);
    }
  } catch {
    // No connection: as with an answer that is none.
  }
  if (mine !== life) return;
  offline(true);
  const timer = setTimeout(() => show(url), 2000 + Math.random() * 2000);
  whenGone(() => clearTimeout(timer));
}

document.addEventListener('submit', async (event) => {
  const form = event.target;
  if (form.dataset.busy) return event.preventDefault();
  form.dataset.busy = 'true';
  const button = event.submitter;
  const free = () => { delete form.dataset.busy; if (button) button.removeAttribute('aria-busy'); };
  if (button) button.setAttribute('aria-busy', 'true');
  if (!('swap' in form.dataset)) {
    // The browser goes on to the answer. News that arrive meanwhile, such as the end of this very visit, must not lead
    // elsewhere. Should it be stopped, the button works again.
    end();
    setTimeout(free, 10000);
    return;
  }
  event.preventDefault();
  const mine = ++life;
  const action = (button && button.getAttribute('formaction')) || form.getAttribute('action');
  try {
    const response = await fetch(action, { method: 'POST', body: new URLSearchParams(new FormData(form, button)) });
    if (mine !== life) return;
    if (elsewhere(response)) return leave(response.url);
    if (!response.redirected) throw new Error('no answer to show');
    offline(false);
    await replace(response);
  } catch {
    free();
    if (mine === life) offline(true);
  }
});

// From the history a page comes as it was left; the sale has gone on.
window.addEventListener('pageshow', (event) => { if (event.persisted) location.reload(); });

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
        const later = setTimeout(() => show(location.href), 1200);
        whenGone(() => clearTimeout(later));
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
  let watch = null;
  let release = null;
  let gone = false;
  let refusedUntil = 0;
  whenGone(() => { gone = true; clearTimeout(timer); close(); });

  const poll = (after) => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      try {
        const response = await fetch(status, { cache: 'no-store' });
        const body = await response.json();
        if (gone) return;
        if (response.status >= 500) return poll(2000 + Math.random() * 2000);
        offline(false);
        heard(response.ok ? body : { status: body.code });
        if (gone || !response.ok) return;
        if ((body.push || body.status === 'ACTIVE') && Date.now() > refusedUntil) return open(body.pollAfterMs);
        poll(body.pollAfterMs);
      } catch {
        if (gone) return;
        offline(true);
        poll(2000 + Math.random() * 2000);
      }
    }, after);
  };
  // One stream for all tabs of a browser: it has few connections to a server, and a page needs one too.
  const open = async (otherwise) => {
    if (source) return;
    if (!window.EventSource) return poll(otherwise);
    if (navigator.locks) {
      const free = await new Promise((answer) => {
        navigator.locks.request('stream', { ifAvailable: true }, (lock) => {
          answer(Boolean(lock));
          return lock && new Promise((done) => { release = done; });
        });
      });
      if (gone) return release && release();
      if (!free) return poll(otherwise);
    }
    source = new EventSource(events);
    let spoke = false;
    awake();
    source.addEventListener('status', (event) => {
      offline(false);
      awake();
      spoke = true;
      const body = JSON.parse(event.data);
      heard(body);
      if (!gone && body.push === false) { close(); poll(body.pollAfterMs); }
    });
    source.addEventListener('end', (event) => { close(); heard({ status: JSON.parse(event.data).code }); });
    source.addEventListener('error', () => {
      close();
      // Refused from the start, say because too many share an address: polls do for a while.
      if (!spoke) refusedUntil = Date.now() + 60000;
      if (!gone) poll(500 + Math.random() * 1500);
    });
  };
  // The server speaks every 15 seconds: a stream that does not is none.
  const awake = () => { clearTimeout(watch); watch = setTimeout(() => { close(); poll(0); }, 25000); };
  const close = () => {
    clearTimeout(watch);
    if (source) source.close();
    if (release) release();
    source = release = null;
  };
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
      return leave(box.dataset.seats);
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

// --- The page of an order that is being written.

function order() {
  const box = $('#pending');
  if (!box) return;
  const ears = listen(box.dataset.events, box.dataset.status, (now) => {
    if (now.status !== 'PENDING' && now.status !== 'PROCESSING') return show(location.href);
    const count = (now.aheadCount || 0).toLocaleString(document.documentElement.lang);
    const waiting = now.aheadCount ? box.dataset.ahead.replace('{}', count) : box.dataset.next;
    const text = now.status === 'PENDING' ? waiting : box.dataset.now;
    const ahead = $('#ahead');
    if (ahead.textContent !== text) ahead.textContent = text;
  });
  ears.open(1000);
}

// --- The seat page.

function seats() {
  const box = $('#seats');
  if (!box) return;
  let version = Number(box.dataset.version);
  let busy = false;
  let again = false;
  const rove = arrows();
  const status = box.dataset.events.replace(/\/events$/, '');
  const ears = listen(box.dataset.events, status, (now) => {
    if (now.status !== 'ACTIVE') return show(location.href);
    if (now.seatsVersion !== version) refresh();
    version = now.seatsVersion;
  });
  async function refresh() {
    if (!$('.hall')) return;
    again = busy;
    if (busy) return;
    busy = true;
    try {
      // The browser asks whether it changed, and mostly has it.
      const response = await fetch(box.dataset.map, { cache: 'no-cache' });
      if (response.ok && box.isConnected) {
        (await response.json()).forEach(seat);
        rove();
      }
    } catch {
      // The next change tries again.
    }
    busy = false;
    if (again) refresh();
  }
  function seat({ seatNumber, label, status: state }) {
    const button = document.getElementById(`s${seatNumber}`);
    if (!button || button.classList.contains('mine') || button.classList.contains(state)) return;
    // One's own hold is heard of before it is answered: the answer shows it.
    if (button.hasAttribute('aria-busy')) return;
    button.className = `seat ${state}`;
    button.disabled = state !== 'available';
    button.setAttribute('aria-label', `${label}, ${box.dataset[state]}`);
  }
  ears.open(2000);
}

// One stop for the tab key in the whole map; the arrows go from seat to seat. Returns what to call when seats changed.
function arrows() {
  const rows = $$('.hall .row').map((row) => $$('button.seat', row));
  const all = rows.flat();
  if (!all.length) return () => {};
  let stop = null;
  const halt = (seat) => {
    all.forEach((other) => { other.tabIndex = other === seat ? 0 : -1; });
    stop = seat;
  };
  const middle = (seat) => { const box = seat.getBoundingClientRect(); return box.left + box.width / 2; };
  const near = (row, x) => row.filter((seat) => !seat.disabled).sort((a, b) => Math.abs(middle(a) - x) - Math.abs(middle(b) - x))[0];
  const rowOf = (seat) => rows.findIndex((row) => row.includes(seat));
  halt(all.find((seat) => !seat.disabled) || all[0]);
  $('.hall').addEventListener('keydown', (event) => {
    const at = rowOf(event.target);
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
    halt(to);
    to.focus();
  });
  return () => {
    if (!stop.disabled) return;
    // Taken by someone while one stood there: on to the nearest that is free.
    const at = rowOf(stop);
    const byDistance = [...rows.keys()].sort((a, b) => Math.abs(a - at) - Math.abs(b - at));
    const to = byDistance.map((row) => near(rows[row], middle(stop))).find(Boolean);
    if (!to) return;
    const focused = document.activeElement === stop || document.activeElement === document.body;
    halt(to);
    if (focused) to.focus({ preventScroll: true });
  };
}

// --- The console: figures that stay fresh.

function figures() {
  const box = $('[data-live]');
  if (!box) return;
  const timer = setInterval(async () => {
    if (document.hidden) return;
    const mine = life;
    try {
      const response = await fetch(box.dataset.live, { headers: { Accept: 'text/html' } });
      if (mine !== life) return;
      if (response.redirected) return leave(response.url);
      offline(response.status >= 500);
      if (!response.ok) return;
      const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
      if (mine !== life) return;
      for (const part of [...fresh.body.children]) {
        const old = document.getElementById(part.id);
        if (old) old.replaceWith(part);
      }
    } catch {
      if (mine === life) offline(true);
    }
  }, 2000);
  whenGone(() => clearInterval(timer));
}

// A form that shows what it would do while one types.
function previews() {
  const form = $('form[data-preview]');
  if (!form) return;
  let timer;
  const show = async () => {
    const mine = life;
    const body = new URLSearchParams(new FormData(form));
    body.set('what', 'preview');
    try {
      const response = await fetch(form.action, { method: 'POST', body });
      if (mine !== life || response.redirected) return;
      const fresh = $('#preview', new DOMParser().parseFromString(await response.text(), 'text/html'));
      if (fresh) $('#preview').replaceWith(fresh);
    } catch {
      // The next letter tries again.
    }
  };
  // A slider beside each number: from an eighth of it to eight times as much.
  $$('[data-slider]', form).forEach((field) => {
    const [lowest, highest] = field.dataset.slider.split(' ').map(Number);
    const before = Number(field.value) || lowest || 1;
    const slider = document.createElement('input');
    Object.assign(slider, { type: 'range', min: -30, max: 30, value: 0 });
    slider.setAttribute('aria-label', field.labels[0].textContent.trim());
    const tell = () => slider.setAttribute('aria-valuetext', field.value);
    slider.addEventListener('input', () => {
      const value = Math.round(before * 2 ** (slider.value / 10));
      field.value = Math.min(highest, Math.max(lowest, value));
      tell();
    });
    tell();
    field.labels[0].after(slider);
  });
  form.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(show, 400); });
  whenGone(() => clearTimeout(timer));
}

function start() {
  countdowns();
  figures();
  previews();
  queue();
  order();
  seats();
  $$('[data-print]').forEach((button) => { button.hidden = false; button.addEventListener('click', () => window.print()); });
}

// A link to a folded part unfolds it, also where the browser does not do so by itself.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  const part = target && target.closest('details');
  if (!part || part.open) return;
  part.open = true;
  target.scrollIntoView();
}
addEventListener('hashchange', unfold);
unfold();
start();
