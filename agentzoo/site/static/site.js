"use strict";
// Filters, sorting, films on hover, zoom, copying, light and dark. No page needs any of it to be read.
document.documentElement.classList.add("js");

function store(name, value) { try { localStorage.setItem(name, value); } catch { /* no storage: not kept */ } }

function theme() {
  const button = document.querySelector(".theme");
  if (!button) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    store("theme", root.dataset.theme);
  });
}

// ---- the grid and the table: one filter for both, kept in the address so that a link shows the same ----------------
const FILTERS = ["env", "family", "dataset"];
const NUMBERS = ["score", "return", "bc", "seeds", "parameters", "updates"];

function agents() {
  const form = document.querySelector(".filters");
  if (!form) return;
  const cards = new Map([...document.querySelectorAll("#grid .agent")].map(card => [card.dataset.id, card]));
  const rows = new Map([...document.querySelectorAll("#table tbody tr")].map(row => [row.dataset.id, row]));
  const first = [...cards.keys()];
  let descending = null;  // as a sort begins: numbers from the highest, names from A

  function read() {
    const asked = new URLSearchParams(location.search);
    for (const name of [...FILTERS, "q"]) form.elements[name].value = asked.get(name) ?? "";
    for (const name of FILTERS) if (form.elements[name].selectedIndex < 0) form.elements[name].value = "";
    form.elements.sort.value = asked.get("sort") ?? "";
    if (form.elements.sort.selectedIndex < 0) form.elements.sort.value = "";
    form.elements.view.value = asked.get("view") === "table" ? "table" : "grid";
    descending = asked.has("dir") ? asked.get("dir") === "desc" : null;
    sorted = form.elements.sort.value !== "";
  }
  let sorted = false;

  function query() {
    const found = new URLSearchParams();
    for (const name of [...FILTERS, "q"]) if (form.elements[name].value.trim()) found.set(name, form.elements[name].value.trim());
    if (sorted) found.set("sort", form.elements.sort.value);
    if (sorted && descending !== null) found.set("dir", descending ? "desc" : "asc");
    if (form.elements.view.value === "table") found.set("view", "table");
    const text = found.toString();
    return text ? `?${text}` : "";
  }

  function order() {
    if (!sorted) return first;
    const name = form.elements.sort.value, numeric = NUMBERS.includes(name);
    const sign = (descending ?? numeric) ? -1 : 1;
    return [...first].sort((a, b) => {
      const x = cards.get(a).dataset[name], y = cards.get(b).dataset[name];
      if (!x !== !y) return x ? -1 : 1;  // what has no number comes last, either way
      return sign * (numeric ? x - y : x.localeCompare(y));
    });
  }

  function show() {
    const words = form.elements.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const id of order()) {
      const card = cards.get(id), row = rows.get(id);
      const fits = FILTERS.every(name => !form.elements[name].value || card.dataset[name] === form.elements[name].value)
        && words.every(word => card.dataset.text.includes(word));
      card.hidden = row.hidden = !fits;
      count += fits;
      card.parentNode.append(card);
      row.parentNode.append(row);
    }
    document.querySelector(".count").innerHTML = `<b>${count}</b> of ${cards.size} agent${cards.size === 1 ? "" : "s"}`;
    document.querySelector(".nothing").hidden = count > 0;
    document.querySelector("main").classList.toggle("table-view", form.elements.view.value === "table");
    for (const head of document.querySelectorAll("#table th[data-sort]")) {
      const name = head.dataset.sort;
      if (!sorted || form.elements.sort.value !== name) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", (descending ?? NUMBERS.includes(name)) ? "descending" : "ascending");
    }
    for (const link of document.querySelectorAll("#grid a, #table a")) link.search = query();
  }

  function keep() {
    try { history.replaceState(null, "", location.pathname + query()); } catch { /* opened from disk by an old browser */ }
    show();
  }

  form.addEventListener("input", event => {
    if (event.target.name === "sort") { sorted = event.target.value !== ""; descending = null; }
    keep();
  });
  form.addEventListener("submit", event => event.preventDefault());
  const clear = () => { for (const name of [...FILTERS, "q"]) form.elements[name].value = ""; sorted = false; descending = null; form.elements.sort.value = ""; keep(); };
  form.addEventListener("reset", event => { event.preventDefault(); clear(); });
  document.querySelector(".clear").addEventListener("click", clear);
  for (const head of document.querySelectorAll("#table th[data-sort]")) head.addEventListener("click", () => {
    const name = head.dataset.sort, now = head.getAttribute("aria-sort");
    sorted = true;
    form.elements.sort.value = name;
    descending = now ? now === "ascending" : null;
    keep();
  });
  addEventListener("popstate", () => { read(); show(); });
  read();
  show();
}

// ---- films --------------------------------------------------------------------------------------------------------
function films() {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  for (const card of document.querySelectorAll(".agent")) {
    const film = card.querySelector("video");
    if (!film) continue;
    const play = () => { if (still) return; if (!film.src) film.src = film.dataset.src; film.play().catch(() => {}); };
    const stop = () => { film.pause(); };
    card.addEventListener("pointerenter", play);
    card.addEventListener("pointerleave", stop);
    card.addEventListener("focusin", play);
    card.addEventListener("focusout", stop);
  }
  const film = document.querySelector("video[data-autoplay]");
  if (film && !still) film.play().catch(() => {});
}

// ---- an agent's page: back to the list as it was filtered; copying ----------------------------------------------------
function links() {
  if (!location.search) return;
  for (const link of document.querySelectorAll(".crumbs .back, .turn a")) link.search = location.search;
}

function copying() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll(".copy button")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(button.previousElementSibling.textContent); } catch { return; }
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }
}

// ---- zoom: drag across a plot, or press a button --------------------------------------------------------------------
const SIZE = 1000;

function ticks(low, high, count) {
  const raw = (high - low) / count, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(factor => size * factor).find(value => value >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function said(value) {
  if (Math.abs(value) >= 10000 && value % 500 === 0) return `${value / 1000}k`;
  return Number(value.toPrecision(6)).toLocaleString("en-US", { maximumSignificantDigits: 6 });
}

function zooming(plot) {
  const [svg, area] = [plot.querySelector("svg"), plot.querySelector(".area")];
  const [x, y] = [plot.dataset.x, plot.dataset.y].map(text => text.split(",").map(Number));
  const lines = [...svg.querySelectorAll("polyline")].map(line => [...line.points].map(point => [point.x, point.y]));
  const grid = svg.querySelector(".rules"), log = "log" in plot.dataset;

  function view(from, to) {
    const whole = from <= 0 && to >= SIZE;
    const seen = lines.flat().filter(([at]) => at >= from && at <= to).map(([, up]) => up);
    let [top, bottom] = whole || seen.length < 2 ? [0, SIZE] : [Math.min(...seen), Math.max(...seen)];
    const room = whole ? 0 : 0.08 * Math.max(bottom - top, 1);
    [top, bottom] = [top - room, bottom + room];
    svg.setAttribute("viewBox", `${from} ${top} ${to - from} ${bottom - top}`);
    const right = at => x[0] + (x[1] - x[0]) * at / SIZE, up = at => y[1] - (y[1] - y[0]) * at / SIZE;
    const [left, end, low, high] = [right(from), right(to), up(bottom), up(top)];
    label(".x-ticks", ticks(left, end, 5), value => `left:${100 * (value - left) / (end - left)}%`);
    const levels = ticks(low, high, 4);
    label(".y-ticks", levels, value => `bottom:${100 * (value - low) / (high - low)}%`);
    grid.innerHTML = levels.map(value => `<path class="grid" d="M${from} ${SIZE * (y[1] - value) / (y[1] - y[0])}H${to}"/>`).join("");
  }

  function label(where, values, style) {
    plot.querySelector(where).replaceChildren(...values.map(value => {
      const span = document.createElement("span");
      span.textContent = said(log && where === ".y-ticks" ? Number((10 ** value).toPrecision(2)) : value);
      span.style.cssText = style(value);
      return span;
    }));
  }

  const buttons = document.createElement("div");
  buttons.className = "zooms";
  for (const [name, from] of [["All", 0], ["Last half", 0.5], ["Last tenth", 0.9]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.setAttribute("aria-pressed", String(from === 0));
    button.addEventListener("click", () => { view(SIZE * from, SIZE); press(button); });
    buttons.append(button);
  }
  const press = one => { for (const button of buttons.children) button.setAttribute("aria-pressed", String(button === one)); };
  plot.append(buttons);
  plot.classList.add("zoomable");

  let start = null;
  const brush = document.createElement("div");
  brush.className = "brush";
  const place = event => Math.min(1, Math.max(0, (event.clientX - area.getBoundingClientRect().left) / area.clientWidth));
  area.addEventListener("pointerdown", event => { start = place(event); area.setPointerCapture(event.pointerId); });
  area.addEventListener("pointermove", event => {
    if (start === null) return;
    const [from, to] = [start, place(event)].sort((a, b) => a - b);
    brush.style.cssText = `left:${100 * from}%;width:${100 * (to - from)}%`;
    area.append(brush);
  });
  area.addEventListener("pointerup", event => {
    if (start === null) return;
    const [from, to] = [start, place(event)].sort((a, b) => a - b);
    start = null;
    brush.remove();
    if (to - from < 0.03) return;
    const box = svg.viewBox.baseVal;
    view(box.x + from * box.width, box.x + to * box.width);
    press(null);
  });
  area.addEventListener("pointercancel", () => { start = null; brush.remove(); });
  area.addEventListener("dblclick", () => { view(0, SIZE); press(buttons.firstChild); });
}

theme();
agents();
films();
links();
copying();
document.querySelectorAll("[data-zoom]").forEach(zooming);
