// The search page. Text from the index is only ever set as text, never as markup.
const $ = (id) => document.getElementById(id);
const DEBOUNCE = 200; // milliseconds between a keystroke and its search
const SIDES = { a: "A", b: "B" };
let index = null;
let running = null; // AbortController of the requests in flight
let timer = 0;
const chosen = {}; // filters: attribute -> { values: Set } or { from, to }

// Creates an element: properties, then children, which may be strings.
const element = (name, properties = {}, ...children) => {
  const one = Object.assign(document.createElement(name), properties);
  one.append(...children);
  return one;
};
const number = (value, digits = 0) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const isolated = (text) => element("bdi", {}, text);

const getJson = async (path, parameters, signal) => {
  const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`, { signal });
  const body = await answer.json().catch(() => ({}));
  if (answer.ok) return body;
  const detail = Array.isArray(body.detail) ? body.detail.map((one) => one.msg).join("; ") : body.detail;
  throw new Error(detail || `The server answered ${answer.status}.`);
};

const fail = (error) => {
  if (error.name === "AbortError") return;
  const message = error instanceof TypeError ? "The server does not answer. Try again." : error.message;
  $("error").replaceChildren(message);
  $("error").hidden = false;
  $("results").replaceChildren();
  $("results").classList.remove("stale");
  $("status").textContent = "";
};

// --- filters ---

const conditionOf = ([name, choice]) => {
  if (choice.values) {
    const values = [...choice.values];
    return values.length ? { field: name, op: "in", value: values } : null;
  }
  const parts = [];
  if (choice.from !== null) parts.push({ field: name, op: "ge", value: choice.from });
  if (choice.to !== null) parts.push({ field: name, op: "le", value: choice.to });
  return parts.length ? { and: parts } : null;
};

const filter = () => {
  const conditions = Object.entries(chosen).map(conditionOf).filter((one) => one !== null);
  $("active").textContent = conditions.length ? `(${conditions.length} active)` : "";
  return conditions.length ? JSON.stringify({ and: conditions }) : "";
};

const rangeInput = (name, type, edge) => {
  const input = element("input", { type: type === "timestamp" || type === "date" ? "date" : "number", step: type === "int64" ? "1" : "any" });
  input.addEventListener("input", () => {
    const end = edge === "to" ? "T23:59:59.999999Z" : "T00:00:00Z";
    if (input.value === "") chosen[name][edge] = null;
    else if (type === "date") chosen[name][edge] = input.value;
    else chosen[name][edge] = type === "timestamp" ? input.value + end : Number(input.value);
    later();
  });
  return element("label", {}, element("span", { className: "edge" }, edge), input);
};

const makeFilters = () => {
  for (const [name, type] of Object.entries(index.a.attributes)) {
    const box = element("fieldset", {}, element("legend", {}, isolated(name)));
    if (["string", "strings", "bool"].includes(type)) {
      chosen[name] = { values: new Set() };
      box.append(element("div", { className: "values" }, element("p", { className: "muted" }, "Search to see the values.")));
      box.dataset.facet = name;
    } else {
      chosen[name] = { from: null, to: null };
      box.append(rangeInput(name, type, "from"), rangeInput(name, type, "to"));
    }
    $("attributes").append(box);
  }
  $("filters").hidden = !Object.keys(chosen).length;
};

const showFacets = (facets) => {
  for (const facet of facets) {
    const box = [...document.querySelectorAll("[data-facet]")].find((one) => one.dataset.facet === facet.name);
    const { values } = chosen[facet.name];
    const focused = box.contains(document.activeElement) ? document.activeElement.dataset.value : null;
    const counts = new Map(facet.values);
    for (const value of values) if (!counts.has(value)) counts.set(value, 0);
    const labels = [...counts].map(([value, count]) => {
      const input = element("input", { type: "checkbox", checked: values.has(value) });
      input.dataset.value = JSON.stringify(value);
      input.addEventListener("change", () => {
        if (input.checked) values.add(value);
        else values.delete(value);
        search();
      });
      return element("label", {}, input, element("span", {}, isolated(String(value)), " ",
        element("span", { className: "muted" }, number(count))));
    });
    if (!labels.length) labels.push(element("p", { className: "muted" }, "No hit has a value."));
    box.querySelector(".values").replaceChildren(...labels);
    if (focused) [...box.querySelectorAll("input")].find((one) => one.dataset.value === focused)?.focus();
  }
};

// --- results ---

const terms = (answer) => {
  const items = answer.terms.map((term) => {
    const item = element("li", { className: term.field === "text" ? "word" : "" }, isolated(term.term), " ",
      element("span", { className: "weight" }, number(term.weight, 2)));
    if (term.field === "text") item.append(element("span", { className: "hidden" }, " (word)"));
    return item;
  });
  const label = answer.terms.some((term) => term.field === "text") ? "Terms and (dashed) words with weights" : "Terms with weights";
  return [element("p", { className: "muted" }, label), element("ul", { className: "terms" }, ...items)];
};

const explanation = async (side, query, hybrid, hit) => {
  const found = await getJson("/explain", { q: query, doc_id: hit.doc_id, side, hybrid });
  const largest = Math.max(...found.contributions.map((one) => one.score), 1e-9);
  const rows = found.contributions.map((one) => {
    const bar = element("div");
    bar.style.width = `${(100 * one.score) / largest}%`;
    return element("tr", {},
      element("th", { scope: "row" }, isolated(one.term), one.field === "text" ? " (word)" : ""),
      element("td", { className: "n" }, `${number(one.weight, 2)} × ${number(one.document_weight, 2)}`),
      element("td", { className: "n" }, number(one.score, 2)),
      element("td", { className: "bar" }, bar));
  });
  const heads = ["Term", "Query × document", "Score", ""].map((text) => element(text ? "th" : "td", text ? { scope: "col", className: text === "Term" ? "" : "n" } : {}, text));
  const table = element("table", {},
    element("caption", {}, `Score ${number(found.score, 3)}, the sum of:`),
    element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
  const parts = [table];
  if (found.missing.length) parts.push(element("p", { className: "muted" }, "Not in the document: ", isolated(found.missing.join(", "))));
  return parts;
};

const why = (side, query, hybrid, hit) => {
  const place = element("div", {}, "…");
  const details = element("details", {}, element("summary", {}, "Why this hit", element("span", { className: "hidden" }, ` ${hit.doc_id}`)), place);
  details.addEventListener("toggle", () => {
    if (!details.open || place.dataset.asked) return;
    place.dataset.asked = "yes";
    explanation(side, query, hybrid, hit).then(
      (parts) => place.replaceChildren(...parts),
      (error) => { delete place.dataset.asked; place.replaceChildren(error.message); });
  });
  return details;
};

const pieces = (parts) => parts.map((part) => (part.mark ? element("mark", {}, part.text) : part.text));

// How a document moved from side A to side B, in words and with an arrow.
const move = (side, rank, other) => {
  if (other === undefined) return side === "a" ? ["left", "− not in B"] : ["new", "+ new in B"];
  const up = side === "a" ? rank - other : other - rank;
  const where = `rank ${other} in ${side === "a" ? "B" : "A"}`;
  if (up === 0) return ["same", "= same rank"];
  return up > 0 ? ["up", `▲ ${where}`] : ["down", `▼ ${where}`];
};

const hitItem = (side, query, hybrid, hit, rank, answer, others) => {
  const text = hit.texts.filter((one) => one.name !== "title");
  const title = hit.texts.find((one) => one.name === "title");
  const head = element("div", { className: "head" }, element("span", { className: "rank" }, `${rank}.`),
    element("h3", {}, ...(title ? [element("bdi", {}, ...pieces(title.parts))] : [isolated(hit.doc_id)])));
  if (title) head.append(element("span", { className: "muted" }, isolated(hit.doc_id)));
  if (others) {
    const [kind, label] = move(side, rank, others.get(hit.doc_id));
    head.append(element("span", { className: `move ${kind}` }, label));
  }
  const total = answer.terms.length;
  head.append(element("span", { className: "score" }, `${number(hit.score, 3)} · ${hit.overlap} of ${total} terms`));
  const item = element("li", { className: "hit" }, head);
  for (const field of text) item.append(element("p", { dir: "auto" }, ...pieces(field.parts)));
  const facts = Object.entries(hit.attributes);
  if (facts.length) {
    item.append(element("dl", {}, ...facts.map(([name, value]) =>
      element("div", {}, element("dt", {}, isolated(name)), element("dd", {}, isolated(String(value)))))));
  }
  item.append(why(side, query, hybrid, hit));
  return item;
};

const ranksOf = (answer) => new Map(answer.hits.map((hit, place) => [hit.doc_id, place + 1]));

const summary = (answer, milliseconds) => {
  const about = answer.matched_exact ? "" : "at least ";
  const partial = answer.partial ? " · incomplete: the time limit passed" : "";
  const required = `${answer.required} of ${answer.terms.filter((term) => term.field === "terms").length}`;
  return `${about}${number(answer.matched)} documents share ${required} terms or more${partial} · encode ` +
    `${number(answer.encode_ms, 1)} ms · match ${number(answer.match_ms, 1)} ms · server ${number(answer.total_ms, 1)} ms · ` +
    `page ${number(milliseconds)} ms`;
};

const column = (side, query, hybrid, answers, milliseconds) => {
  const answer = answers[side];
  const two = Object.keys(answers).length > 1;
  const other = two ? ranksOf(answers[side === "a" ? "b" : "a"]) : null;
  const about = index[side];
  const parts = [];
  if (two) {
    parts.push(element("h2", {}, `${SIDES[side]}: `, isolated(about.name), ` · publication ${about.publication}`));
    parts.push(element("p", { className: "muted" }, summary(answer, milliseconds)));
  } else {
    parts.push(element("h2", { className: "hidden" }, "Results"));
  }
  if (answer.terms.length) parts.push(...terms(answer));
  if (!answer.hits.length) {
    parts.push(element("p", {}, answer.partial
      ? "The time limit passed before a document was found. Try again."
      : "No document matches. Use other words, a lower threshold, or fewer filters."));
  }
  const hits = answer.hits.map((hit, place) => hitItem(side, query, hybrid, hit, place + 1, answer, other));
  parts.push(element("ol", { className: "hits" }, ...hits));
  return element("section", { ariaLabel: two ? `Results of ${SIDES[side]}` : "Results" }, ...parts);
};

// --- searching ---

const remember = (query) => {
  const state = new URLSearchParams();
  if (query) state.set("q", query);
  if ($("k").value !== "10") state.set("k", $("k").value);
  if ($("threshold").value !== "0") state.set("threshold", $("threshold").value);
  if ($("hybrid").checked) state.set("hybrid", "true");
  if ($("compare").checked) state.set("compare", "true");
  const text = state.toString();
  history.replaceState(null, "", text ? `?${text}` : location.pathname);
};

const search = async () => {
  clearTimeout(timer);
  running?.abort(); // an earlier answer would be out of date
  const query = $("q").value;
  remember(query);
  $("shown").textContent = $("threshold").value === "0" ? "off" : `${Math.round(100 * $("threshold").value)} %`;
  if (!query.trim()) {
    $("results").replaceChildren();
    $("error").hidden = true;
    $("status").textContent = "";
    return;
  }
  running = new AbortController();
  const { signal } = running;
  const hybrid = $("hybrid").checked;
  const sides = $("compare").checked ? ["a", "b"] : ["a"];
  const parameters = { q: query, k: $("k").value, threshold: $("threshold").value, hybrid, filter: filter(), texts: true };
  const began = performance.now();
  $("results").classList.add("stale");
  try {
    const found = await Promise.all(sides.map((side) =>
      getJson("/search", { ...parameters, side, facets: side === "a" && $("filters").open }, signal)));
    const milliseconds = performance.now() - began;
    const answers = Object.fromEntries(sides.map((side, place) => [side, found[place]]));
    $("error").hidden = true;
    $("results").classList.remove("stale");
    $("results").classList.toggle("two", sides.length > 1);
    $("results").replaceChildren(...sides.map((side) => column(side, query, hybrid, answers, milliseconds)));
    $("status").textContent = sides.length > 1
      ? `${found[0].hits.filter((hit) => ranksOf(found[1]).has(hit.doc_id)).length} of ${found[0].hits.length} hits of A are hits of B`
      : `${found[0].hits.length} hits · ${summary(found[0], milliseconds)}`;
    showFacets(found[0].facets);
    $("results").dataset.query = query; // for tests
  } catch (error) {
    fail(error);
  }
};

const later = () => {
  clearTimeout(timer);
  timer = setTimeout(search, DEBOUNCE);
};

const start = async () => {
  index = await getJson("/index", {});
  $("name").textContent = index.a.name;
  document.title = `Search ${index.a.name}`;
  $("about").textContent = `${number(index.a.documents)} documents · publication ${index.a.publication}`;
  $("hybrid-label").hidden = !index.a.hybrid || index.b?.hybrid === false;
  $("compare-label").hidden = !index.b;
  makeFilters();
  const state = new URLSearchParams(location.search);
  for (const name of ["q", "k", "threshold"]) if (state.has(name)) $(name).value = state.get(name);
  if (!$("k").value) $("k").value = "10"; // the address named another number
  for (const name of ["hybrid", "compare"]) $(name).checked = state.get(name) === "true" && !$(`${name}-label`).hidden;
  $("form").addEventListener("submit", (event) => { event.preventDefault(); search(); });
  for (const name of ["q", "threshold"]) $(name).addEventListener("input", later);
  for (const name of ["k", "hybrid", "compare"]) $(name).addEventListener("change", search);
  $("filters").addEventListener("toggle", () => { if ($("filters").open) search(); });
  $("clear").addEventListener("click", () => {
    for (const choice of Object.values(chosen)) choice.values ? choice.values.clear() : Object.assign(choice, { from: null, to: null });
    for (const input of document.querySelectorAll("#attributes input")) input.type === "checkbox" ? (input.checked = false) : (input.value = "");
    search();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input:not([type=checkbox], [type=range]), select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      $("q").focus();
      $("q").select();
    }
  });
  await search();
};

start().catch(fail);
