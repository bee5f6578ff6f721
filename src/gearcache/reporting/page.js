"use strict";
// What the report says is text: it becomes text nodes and attributes, never markup.

const SHOWN = 20;
const PRINTED_COLUMNS = 10;
const CATEGORIES = {
  before: "before gearcache was imported", import: "import", prepare: "preparing a method", key: "key",
  manifest: "manifest", evidence: "evidence", blob: "blob", gear: "gear", trace: "trace", compile: "compile",
  publish: "storing", fetch: "fetching from a tier", upload: "sending to a tier", lease: "waiting for another host", run: "running the graph", answer: "first answer of a graph", itself: "first answer of the method itself",
};
let report, isPrinting = false;

function element(name, attributes, ...children) {
  const svg = ["svg", "rect", "text", "line", "g", "title"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function at(path) {
  return path.reduce((value, step) => value[step], report);
}

function pointer(path) {
  return path.map((step) => `/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}

// A number of the report, with the place in `--json` where it stands.
function value(path, text) {
  const found = at(path);
  return element("data", { value: String(found), "data-at": pointer(path) }, text ? text(found) : String(found));
}

function sizeText(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  let rest = bytes, unit = "";
  for (unit of ["kB", "MB", "GB", "TB"]) {
    rest /= 1000;
    if (rest < 999.95) break;
  }
  return `${rest.toFixed(1)} ${unit}`;
}

// As the overview, which Python writes, has it.
function secondsText(seconds) {
  if (seconds > 0 && seconds < 1) return `${(1000 * seconds).toFixed(seconds < 0.01 ? 2 : 0)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

function momentText(seconds) {
  if (!seconds) return "-";
  const date = new Date(1000 * seconds);
  const isShown = Number.isFinite(date.getTime()) && date.getUTCFullYear() >= 1 && date.getUTCFullYear() <= 9999;
  return isShown ? `${date.toISOString().slice(0, 16).replace("T", " ")} UTC` : "no date";
}

// Of any number of numbers: the arguments of a call are limited.
function largest(numbers, least) {
  return numbers.reduce((most, number) => Math.max(most, number), least);
}

function kindOf(category) {
  return Object.hasOwn(CATEGORIES, category) ? category : "other";
}

function kindText(category) {
  return kindOf(category) === "other" ? category : CATEGORIES[category];
}

function percentText(share) {
  return share === null ? "-" : `${(100 * share).toFixed(1)}%`;
}

function shortKey(key) {
  return element("code", { class: "key", title: key }, key.slice(0, 12));
}

// A gear of very many arguments: begin and end tell most, the rest is in the title.
function gearText(text) {
  return text.length <= 160 ? text : element("span", { title: text }, `${text.slice(0, 80)} … ${text.slice(-70)}`);
}

function plural(number, one, many) {
  return `${number} ${number === 1 ? one : many || `${one}s`}`;
}

// A table in a frame that scrolls by itself on a narrow screen; `right` are the columns of numbers.
function table(label, titles, rows, right = []) {
  const align = (index) => (right.includes(index) ? { class: "right" } : {});
  const head = titles.map((title, index) => element("th", { scope: "col", ...align(index) }, title));
  const body = rows.map((cells) =>
    element("tr", {}, ...cells.map((cell, index) =>
      index === 0 ? element("th", { scope: "row" }, cell) : element("td", align(index), cell))));
  const made = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  return element("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, made);
}

// The first rows, and a button that shows all of them.
function longTable(label, titles, items, row, right) {
  if (items.length <= SHOWN) return table(label, titles, items.map(row), right);
  const holder = element("div", {}, table(label, titles, items.slice(0, SHOWN).map(row), right));
  const button = element("button", { type: "button" }, `Show all ${items.length} rows of ${label}`);
  const rest = element("p", { class: "only-print" }, `${items.length - SHOWN} more rows of ${label} are not printed: show all of them before, or see --json`);
  button.addEventListener("click", () => {
    holder.replaceChildren(table(label, titles, items.map(row), right));
    holder.firstChild.focus();
  });
  holder.append(button, rest);
  return holder;
}

// A part that is drawn when it is first opened: of thousands, most never are.
function folded(summary, fill, isOpen) {
  const inner = element("div", {});
  const made = element("details", isOpen ? { open: "" } : {}, element("summary", {}, ...summary), inner);
  const draw = () => {
    if (made.open && !inner.firstChild) inner.append(...fill());
  };
  made.addEventListener("toggle", draw);
  if (isOpen) draw();
  return made;
}

// A list with a search field: `text` is what is searched, `make` draws one item.
function searchable(name, items, text, make, one, many) {
  const field = document.getElementById(`${name}-filter`);
  const list = document.getElementById(`${name}-list`);
  const status = document.getElementById(`${name}-count`);
  const lowered = items.map((item) => text(item).toLowerCase());
  const drawn = new Map();
  // What was drawn and maybe opened stays as it is while somebody types.
  const made = (index, isOnly) => {
    if (!drawn.has(index)) drawn.set(index, make(items[index], isOnly));
    else if (isOnly && drawn.get(index).tagName === "DETAILS") drawn.get(index).open = true;
    return drawn.get(index);
  };
  const draw = (most) => {
    const wanted = field.value.trim().toLowerCase();
    const found = items.map((_, index) => index).filter((index) => lowered[index].includes(wanted));
    status.textContent = plural(found.length, one, many) + (wanted ? ` of ${items.length}` : "");
    list.replaceChildren(...found.slice(0, most).map((index) => made(index, found.length === 1)));
    if (found.length > most) {
      const button = element("button", { type: "button" }, `Show all ${plural(found.length, one, many)}`);
      button.addEventListener("click", () => {
        draw(Infinity);
        const next = list.children[most];
        const target = next && (next.querySelector("summary, a, button") || next);
        if (target) {
          if (target.tagName === "DIV") target.setAttribute("tabindex", "-1");
          target.focus();
        }
      });
      list.append(button, element("p", { class: "only-print" }, `${plural(found.length - most, one, many)} more are not printed`));
    }
  };
  field.addEventListener("input", () => draw(SHOWN));
  draw(SHOWN);
}

// ---- a method

function level(calls, most) {
  return calls ? `h${Math.max(1, Math.min(5, Math.ceil(5 * Math.sqrt(calls / most))))}` : "";
}

// Gears and shapes met outside of them as one list of cells: sizes, calls, and where the number stands.
function cellsOf(index, traffic, dims) {
  const gears = traffic.gears.map((gear, number) => ({
    sizes: gear.sizes ? dims.map((dim) => gear.sizes[dim] ?? null) : null, calls: gear.calls, outside: false,
    note: gear.unserved ? ` and ${gear.unserved} not by its graph` : "",
    text: gear.gear, path: ["methods", index, "traffic", "gears", number, "calls"],
  }));
  const outside = traffic.outside.map((shape, number) => ({
    sizes: dims.map((dim) => shape.sizes[traffic.dims.indexOf(dim)] ?? null), calls: shape.calls, outside: true,
    note: shape.padded === shape.calls ? " padded" : (shape.padded ? ` outside, ${shape.padded} of them padded` : " outside"),
    text: shape.text,
    path: ["methods", index, "traffic", "outside", number, "calls"],
  }));
  return [...gears, ...outside];
}

function heatCell(cell, most) {
  if (!cell) return element("td", {}, element("span", { class: "soft" }, "–"));
  const name = `${level(cell.calls, most)}${cell.outside ? " out" : ""}`.trim();
  return element("td", name ? { class: name } : {}, value(cell.path), cell.note || "");
}

function heatMap(index, method) {
  const traffic = method.traffic;
  const named = traffic.gears.filter((gear) => gear.sizes).flatMap((gear) => Object.keys(gear.sizes));
  const dims = [...new Set(named.length ? named : traffic.dims)];
  const cells = cellsOf(index, traffic, dims);
  const most = largest(cells.map((cell) => cell.calls), 1);
  // A dim with one size says nothing; two that vary make a grid.
  const varying = dims.map((_, place) => place).filter((place) =>
    new Set(cells.filter((cell) => cell.sizes).map((cell) => cell.sizes[place])).size > 1);
  const key = (cell, places) => places.map((place) => cell.sizes[place]).join(", ");
  const isGrid = varying.length === 2 && cells.every((cell) => cell.sizes && varying.every((place) => cell.sizes[place] !== null))
    && traffic.dims.every((dim) => dims.includes(dim))
    && new Set(cells.map((cell) => key(cell, varying))).size === cells.length;
  const label = `Calls per gear of ${nameOf(method)}`;
  if (isGrid) return gridOf(label, dims, varying, cells, (cell) => heatCell(cell, most), key);
  const ordered = [...cells].sort((a, b) => {
    const place = varying.find((dim) => (a.sizes?.[dim] ?? 0) !== (b.sizes?.[dim] ?? 0));
    return place === undefined ? 0 : (a.sizes?.[place] ?? 0) - (b.sizes?.[place] ?? 0);
  });
  const body = element("tbody", {}, ...ordered.map((cell) =>
    element("tr", {}, element("th", { scope: "row" }, gearText(cell.text)), heatCell(cell, most))));
  const head = element("tr", {}, element("th", { scope: "col" }, "Gear or shape"), element("th", { scope: "col" }, "Calls"));
  const made = element("table", { class: "heat" }, element("thead", {}, head), body);
  return element("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, made);
}

// Two dims that vary: one down, one across. Paper does not scroll, so there a wide one is several.
function gridOf(label, dims, [down, across], cells, draw, key) {
  const sorted = (place) => [...new Set(cells.map((cell) => cell.sizes[place]))].sort((a, b) => a - b);
  const columns = sorted(across), lines = sorted(down);
  const places = new Map(cells.map((cell) => [key(cell, [down, across]), cell]));
  const grid = (chosen) => element("table", { class: "heat grid" },
    element("thead", {}, element("tr", {}, element("td", { class: "corner" }), ...chosen.map((size) => element("th", { scope: "col" }, String(size))))),
    element("tbody", {}, ...lines.map((size) => element("tr", {}, element("th", { scope: "row" }, String(size)),
      ...chosen.map((other) => draw(places.get(`${size}, ${other}`)))))));
  const holder = element("div", {}, element("p", { class: "soft" }, "Down: ", element("code", {}, dims[down]), ", across: ", element("code", {}, dims[across])));
  const isWide = columns.length > PRINTED_COLUMNS;
  holder.append(element("div", { class: isWide ? "scroll not-print" : "scroll", role: "region", "aria-label": label, tabindex: "0" }, grid(columns)));
  if (isWide) {
    const paper = element("div", { class: "only-print" });
    const fill = () => {
      const starts = columns.map((_, at) => at).filter((at) => at % PRINTED_COLUMNS === 0);
      paper.replaceChildren(...starts.map((at) => grid(columns.slice(at, at + PRINTED_COLUMNS))));
    };
    addEventListener("beforeprint", fill);
    addEventListener("afterprint", () => paper.replaceChildren());
    if (isPrinting) fill();
    holder.append(paper);
  }
  return holder;
}

function trafficParts(index, method) {
  const traffic = method.traffic;
  const title = element("h3", {}, "Calls per gear");
  if (!traffic) {
    return [title, element("p", { class: "soft" },
      "A cache does not count calls, as that would cost each of them time. A process that runs with GEARCACHE_TRACE=start.json writes its calls down; give that file as --trace.")];
  }
  const base = ["methods", index, "traffic"];
  const parts = [title, element("p", {},
    value([...base, "calls"]), " calls in ", value([...base, "processes"]), traffic.processes === 1 ? " process, " : " processes, ",
    value([...base, "padded_calls"]), " padded to a larger gear, and ", value([...base, "refused_calls"]), " further ones refused. A dashed cell is a shape outside of all gears: padded, run by the method itself, or refused."),
  heatMap(index, method)];
  for (const [name, text] of [["eager_reasons", "The method itself ran"], ["refused_errors", "Refused"]]) {
    for (const reason of Object.keys(traffic[name])) {
      parts.push(element("p", {}, `${text} (${reason}): `, value([...base, name, reason])));
    }
  }
  if (traffic.suggested) {
    parts.push(element("h3", {}, "Gears that fit these shapes best"));
    parts.push(element("ul", {}, ...traffic.suggested.sizes.map((row) =>
      element("li", {}, element("code", {}, `${row.dim}: ${row.sizes.join(", ")}`)))));
    const now = traffic.padding_now === null
      ? (traffic.padded_calls ? "some shapes fit into no present gear" : "no call is padded now")
      : element("span", {}, value([...base, "padding_now"], percentText), " with the present gears");
    parts.push(element("p", {}, "Share of the work that is padding: ",
      value([...base, "suggested", "padding"], percentText), " with these, ", now, "."));
  }
  return parts;
}

// Of classes of one name those of other modules are told apart; an entry that was not read may be of any.
function isOf(entry, method) {
  return entry.method === method.method && (!method.owner || !entry.owner || entry.owner === method.owner);
}

function nameOf(method) {
  return method.owner ? `${method.method} of ${method.owner}` : method.method;
}

function entryParts(method) {
  const indices = method.entries ? report.entries.map((_, index) => index).filter((index) => isOf(report.entries[index], method)) : [];
  const at = (index, ...rest) => ["entries", index, ...rest];
  const parts = [element("h3", {}, "Entries")];
  if (!indices.length) {
    const shared = report.methods.filter((other) => other.method === method.method).length > 1 && !method.owner;
    return [...parts, element("p", {}, shared
      ? "Several classes have a method of this name, each with a row of its own; misses are counted by name."
      : method.traffic
        ? "No entry of this method is stored: the recorded processes had another cache folder, or stored none."
        : "No entry of this method is stored.")];
  }
  parts.push(longTable(`entries of ${method.method}`,
    ["Key", "Ranks", "Size", report.overview.was_reset ? "Hits since the reset" : "Hits", "Compile time", "Last use", "Made", "Torch", "Differs from the one before in"],
    indices, (index) => {
      const entry = report.entries[index];
      return [
        shortKey(entry.key), entry.ranks || "-", value(at(index, "size"), sizeText),
        value(at(index, "hits")), value(at(index, "compile_seconds"), secondsText), value(at(index, "last_use"), momentText),
        value(at(index, "created"), momentText), entry.torch || "-",
        entry.differs ? differenceText(entry.differs) : (entry.is_read ? "-" : "not read, see `gearcache show`"),
      ];
    }, [2, 3, 4]));
  const gears = indices.flatMap((index) => report.entries[index].gears.map((_, number) => [index, number]));
  if (gears.length) {
    const most = largest(gears.map(([index, number]) => report.entries[index].gears[number].seconds), 0) || 1;
    parts.push(element("h3", {}, "Gears"), longTable(`gears of ${method.method}`,
      ["Gear", "Key", "Variant", "Size", "Compile time", "Beside the longest"], gears, ([index, number]) => {
        const gear = report.entries[index].gears[number];
        const width = String(Math.round((1000 * gear.seconds) / most) / 10);
        return [gearText(gear.gear), shortKey(report.entries[index].key), value(at(index, "gears", number, "variant")),
          value(at(index, "gears", number, "size"), sizeText), value(at(index, "gears", number, "seconds"), secondsText),
          element("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
            element("rect", { width, height: "8" }))];
      }, [3, 4]));
  }
  const apart = indices.filter((index) => report.entries[index].variants.length > 1);
  if (apart.length) parts.push(element("h3", {}, "What tells variants apart"));
  for (const index of apart.slice(0, SHOWN)) {
    const entry = report.entries[index];
    parts.push(element("h4", {}, shortKey(entry.key)));
    parts.push(element("ul", {}, ...entry.variants.map((lines, number) =>
      element("li", {}, `Variant ${number}, gears ${gearsOf(entry, number)}: `,
        lines.length ? element("code", {}, lines.join("; ")) : "nothing that is shown here: see `gearcache show --full`"))));
  }
  return parts;
}

function gearsOf(entry, variant) {
  const found = entry.gears.filter((gear) => gear.variant === variant).map((gear) => gear.gear);
  return found.slice(0, 4).join("; ") + (found.length > 4 ? ` and ${found.length - 4} more` : "") || "none";
}

function differenceText(difference, between = ", before ") {
  return element("span", {}, element("code", {}, difference.fact), `: ${difference.this}${between}`, difference.other,
    difference.more ? ` and ${difference.more} more` : "");
}

function drawMethods() {
  const places = new Map(report.methods.map((method, index) => [method, index]));
  searchable("method", report.methods, nameOf, (method, isOnly) => {
    const index = places.get(method);
    const at = (name) => ["methods", index, name];
    const summary = [nameOf(method), element("span", { class: "soft" }, value(at("entries")), method.entries === 1 ? " entry, " : " entries, ",
      value(at("gears")), method.gears === 1 ? " gear, " : " gears, ", value(at("size"), sizeText), ", ", value(at("hits")),
      method.hits === 1 ? " hit, " : " hits, ", value(at("misses")), method.misses === 1 ? " miss, saved " : " misses, saved ", value(at("compile_seconds_saved"), secondsText), ", last used ",
      value(at("last_use"), momentText))];
    return folded(summary, () => [...trafficParts(index, method), ...entryParts(method)],
      isOnly || report.methods.length === 1);
  }, "method");
}

// ---- misses

// The word that the counts have for a recorded reason: a key that differs from the nearest entry is an absent entry.
function reasonOf(miss) {
  return miss.kind === "key" ? "absent" : miss.kind;
}

function missItems() {
  const items = new Map();
  const item = (method, reason) => {
    const name = JSON.stringify([method, reason]);
    if (!items.has(name)) items.set(name, { method, reason, counted: null, recorded: [] });
    return items.get(name);
  };
  report.misses.forEach((miss, index) => item(miss.method, reasonOf(miss)).recorded.push(index));
  report.methods.forEach((method, index) => {
    for (const reason of Object.keys(method.misses_by_reason)) item(method.method, reason).counted = index;
  });
  return [...items.values()];
}

function recordedMiss(index) {
  const miss = report.misses[index];
  const rows = [["What differed", miss.subject], ["Stored", miss.stored], ["Found", miss.found],
    ["Where", miss.file ? `${miss.file}${miss.line ? `, line ${miss.line}` : ""}` : ""], ["What to do", miss.advice],
    ["Process", report.starts[miss.start] ? report.starts[miss.start].file : ""]].filter((row) => row[1]);
  return [element("p", {}, `${miss.text} (recorded `, value(["misses", index, "times"]), ` ${miss.times === 1 ? "time" : "times"})`),
    element("dl", {}, ...rows.flatMap(([name, found]) => [element("dt", {}, name),
      element("dd", {}, ["What to do", "Process"].includes(name) ? found : element("code", {}, found))]))];
}

function drawMisses() {
  const made = report.entries.map((entry, index) => ({ method: entry.method, reason: "another key", index, entry, recorded: [] }))
    .filter((item) => item.entry.differs);
  const text = (item) => [item.method, item.reason, ...item.recorded.flatMap((index) => Object.values(report.misses[index])),
    ...(item.entry ? [item.entry.key, ...Object.values(item.entry.differs)] : [])].join(" ");
  const advice = new Map(report.reasons.map((row) => [row.reason, row.advice]));
  searchable("miss", [...missItems(), ...made], text, (item) => {
    const parts = [element("h3", {}, `${item.method}: ${item.reason}`)];
    if (item.entry) {
      parts.push(element("p", {}, "Entry ", shortKey(item.entry.key), " was compiled beside ",
        element("code", {}, item.entry.differs.from), ", as ", differenceText(item.entry.differs), "."));
    } else if (item.counted !== null) {
      parts.push(element("p", {}, value(["methods", item.counted, "misses_by_reason", item.reason]), " counted over all processes. ",
        advice.get(item.reason) && !item.recorded.length ? `What to do: ${advice.get(item.reason)}.` : ""));
    }
    const shown = item.recorded.slice(0, SHOWN).flatMap(recordedMiss);
    if (item.recorded.length > SHOWN) shown.push(element("p", {}, `and ${item.recorded.length - SHOWN} more, see --json`));
    return element("div", {}, ...parts, ...shown);
  }, "reason");
}

// ---- starts

function depths(spans) {
  const open = new Map(), rows = [];
  let lanes = 0;
  const threads = [...new Set(spans.map((span) => span.thread))];
  for (const thread of threads) {
    const base = lanes;
    open.set(thread, []);
    spans.forEach((span, index) => {
      if (span.thread !== thread) return;
      const stack = open.get(thread);
      while (stack.length && stack[stack.length - 1] <= span.begin + 1e-9) stack.pop();
      rows[index] = base + stack.length;
      stack.push(span.begin + span.seconds);
      lanes = Math.max(lanes, rows[index] + 1);
    });
  }
  return [rows, lanes];
}

// 1, 2 or 5 times a power of ten, of which four to nine are in a length.
function roundStep(length) {
  const power = 10 ** Math.floor(Math.log10(length / 4));
  return [5, 2, 1].map((digit) => digit * power).find((step) => step <= length / 4) || power;
}

function tickText(seconds, step) {
  const [unit, factor] = step >= 0.1 ? ["s", 1] : step >= 1e-4 ? ["ms", 1000] : ["µs", 1e6];
  return `${Number((seconds * factor).toFixed(3))} ${unit}`;
}

// The spans that begin at `from` or later; the others would be narrower than a line beside long imports.
function timeline(start, from) {
  const spans = start.spans.filter((span) => span.begin >= from), width = 1000, height = 18;
  const end = largest(spans.map((span) => span.begin + span.seconds), Math.max(from + 1e-9, from ? 0 : start.seconds));
  const [rows, lanes] = depths(spans);
  const scale = (seconds) => Math.round((seconds / (end - from)) * (width - 10) * 100) / 100;
  const total = lanes * height + 26;
  const picture = element("svg", { class: "timeline", viewBox: `0 0 ${width} ${total}`, role: "img",
    "aria-label": `Timeline of ${start.file}${from ? " from its first method on" : ""}: ${plural(spans.length, "span")} in `
      + `${secondsText(end - from)}; the table below has the same` });
  const step = roundStep(end - from);
  for (let tick = 0; tick * step <= end - from; tick += 1) {
    const x = scale(tick * step), isLast = x > width - 60;
    picture.append(element("line", { x1: x, x2: x, y1: 0, y2: lanes * height + 4 }),
      element("text", { class: "tick", x: isLast ? x - 2 : x + 2, y: total - 8, "text-anchor": isLast ? "end" : "start" },
        `${from ? "+" : ""}${tickText(tick * step, step)}`));
  }
  spans.forEach((span, index) => {
    const x = scale(span.begin - from), long = Math.max(1, scale(span.seconds)), y = rows[index] * height + 2;
    picture.append(element("rect", { x, y, width: long, height: height - 3, rx: 2, class: `${kindOf(span.category)}${long < 4 ? " thin" : ""}` },
      element("title", {}, `${span.name}: ${secondsText(span.seconds)}`)));
    const letters = Math.floor((long - 8) / 6.8);
    if (letters >= 3) {
      const text = span.name.length > letters ? `${span.name.slice(0, letters - 1)}…` : span.name;
      picture.append(element("text", { class: "label", x: x + 4, y: y + 11, "aria-hidden": "true" }, text));
    }
  });
  return picture;
}

function framed(start, from) {
  const label = `Timeline of ${start.file}${from ? ", from its first method on" : ""}`;
  return element("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, timeline(start, from));
}

// When the first method was prepared, if all from there on would be a fifth of the picture or less; else 0.
function lateBegin(start) {
  const begin = start.spans.filter((span) => span.category === "prepare").reduce((least, span) => Math.min(least, span.begin), Infinity);
  const end = largest(start.spans.map((span) => span.begin + span.seconds), 0);
  return Number.isFinite(begin) && end - begin <= end / 5 ? begin : 0;
}

function drawStarts() {
  const list = document.getElementById("start-list");
  if (!list) return;
  report.starts.forEach((start, index) => {
    // In the order of a start; kinds that nobody knows come last.
    const order = Object.keys(CATEGORIES), place = (name) => (order.includes(name) ? order.indexOf(name) : order.length);
    const kinds = start.kinds.map((_, number) => number).sort((a, b) => place(start.kinds[a].category) - place(start.kinds[b].category));
    const legend = element("ul", { class: "legend", "aria-label": "Time by kind" }, ...kinds.map((number) => element("li", {},
      element("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" },
        element("rect", { x: 1, y: 1, width: 10, height: 10, rx: 1, class: kindOf(start.kinds[number].category) })),
      `${kindText(start.kinds[number].category)} `, element("strong", {}, value(["starts", index, "kinds", number, "seconds"], secondsText)))));
    const at = (number, name) => ["starts", index, "spans", number, name];
    const numbers = start.spans.map((_, number) => number);
    const late = lateBegin(start);
    list.append(element("h3", {}, start.file),
      element("p", {}, "Process ", value(["starts", index, "pid"]), ", ", element("code", {}, start.command), ", began ",
        value(["starts", index, "began"], momentText), "; last first answer of a method after ",
        value(["starts", index, "seconds"], secondsText), ".",
        start.final === false ? " The process had not ended when this was written: calls and answers after that are not here." : "",
        ...(start.dropped ? [" ", value(["starts", index, "dropped"]), " further spans were not kept: of each kind the first are here."] : [])),
      framed(start, 0), ...(late ? [element("h4", {}, "From the first method on"), framed(start, late)] : []), legend,
      folded([`${plural(start.spans.length, "span")} as a table`], () => [
        longTable(`spans of ${start.file}`, ["Span", "Kind", "Begin", "Takes"], numbers, (number) => {
          const span = start.spans[number];
          return [span.name, kindText(span.category), value(at(number, "begin"), secondsText), value(at(number, "seconds"), secondsText)];
        }, [2, 3])]));
  });
}

// ---- two deploys

function drawDeploys() {
  const list = document.getElementById("deploy-list");
  if (!list) return;
  const deploys = report.deploys;
  const anew = (name, text) => value(["deploys", "compiles", name], text);
  const counted = deploys.compiles;
  list.append(element("p", {}, "A is ", element("code", {}, deploys.a.path), " with ", value(["deploys", "a", "entries"]), deploys.a.entries === 1 ? " entry, B is " : " entries, B is ",
    element("code", {}, deploys.b.path), " with ", value(["deploys", "b", "entries"]),
    `, of which A has ${deploys.shared.length} as well. A host that holds A and runs what B was made for compiles `,
    ...(counted.entries ? [anew("gears"), counted.gears === 1 ? " gear of " : " gears of ", anew("entries"),
      counted.entries === 1 ? " entry" : " entries", ...(counted.seconds ? [", which took ", anew("seconds", secondsText), " there."] : ["."])] : ["nothing."]),
    deploys.unread_b.length ? ` ${plural(deploys.unread_b.length, "entry", "entries")} of B cannot be read: ${deploys.unread_b.slice(0, 5).join(", ")}.` : ""));
  for (const [name, title, note] of [["only_b", "Only in B", "entries that A lacks"], ["only_a", "Only in A", "entries that B has no use for"]]) {
    const [own, other] = name === "only_b" ? ["B", "A"] : ["A", "B"];
    const rows = deploys[name];
    list.append(element("h3", {}, `${title}: ${note}`));
    if (!rows.length) { list.append(element("p", {}, "Nothing.")); continue; }
    const at = (number, field) => ["deploys", name, number, field];
    list.append(longTable(`entries ${title.toLowerCase()}`, ["Method", "Key", "Gears", "Compile time", "Nearest on the other side", "First difference"],
      rows.map((_, number) => number), (number) => {
        const row = rows[number];
        return [`${row.method} ${row.ranks}`, shortKey(row.key), value(at(number, "gears")), value(at(number, "compile_seconds"), secondsText),
          row.differs ? element("code", {}, row.differs.from) : "none", row.differs ? differenceText(row.differs, ` in ${own}, in ${other} `) : "-"];
      }, [2, 3]));
  }
  list.append(element("h3", {}, "In both"));
  if (!deploys.shared.length) { list.append(element("p", {}, "Nothing.")); return; }
  list.append(longTable("entries in both", ["Method", "Key", "A host with A compiles", "Gears only in A", "What the traces depend on"],
    deploys.shared, (row) => [`${row.method} ${row.ranks}`, shortKey(row.key), row.compiles.join("; ") || "-", row.gears_only_a.join("; ") || "-",
      row.trace ? `${row.trace}${row.more ? ` and ${row.more} more` : ""}` : "the same"]));
}

async function main() {
  const letters = atob(document.getElementById("packed").textContent.trim());
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  report = JSON.parse(await new Response(stream).text());
  drawMethods();
  drawMisses();
  drawStarts();
  drawDeploys();
  // Paper cannot be opened.
  const closed = [];
  addEventListener("beforeprint", () => {
    isPrinting = true;
    for (const each of document.querySelectorAll("details:not([open])")) {
      closed.push(each);
      each.open = true;
      each.dispatchEvent(new Event("toggle"));
    }
  });
  addEventListener("afterprint", () => {
    isPrinting = false;
    closed.splice(0).forEach((each) => { each.open = false; });
  });
  document.documentElement.dataset.state = "drawn";
}

main().catch((error) => {
  document.documentElement.dataset.state = "failed";
  const note = element("p", { role: "alert", class: "faults" }, `The page cannot be drawn: ${error}. \`gearcache report --json\` has the same.`);
  document.querySelector("main").prepend(note);
  throw error;
});
