"use strict";
// Filter and order of the queries of the side-by-side page.
(() => {
  const list = document.getElementById("list");
  if (!list) return;
  const { data } = JSON.parse(document.getElementById("content").textContent);
  const items = [...list.children];
  const filter = document.getElementById("filter");
  const order = document.getElementById("order");
  const shown = document.getElementById("shown");
  const searched = data.rows.map((row) => [
    row.query_id, row.text,
    ...row.pairs.flatMap((pair) => [pair.a, pair.b].filter((hit) => hit).map((hit) => `${hit.doc_id} ${hit.text}`)),
  ].join("\n").toLowerCase());
  const keys = {
    change: (row) => -row.change,
    loss: (row) => row.difference ?? Infinity, // queries without judgments come last
    win: (row) => -(row.difference ?? -Infinity),
  };

  const show = () => {
    const wanted = filter.value.trim().toLowerCase();
    let count = 0;
    items.forEach((item, place) => {
      item.hidden = !searched[place].includes(wanted);
      if (!item.hidden) count += 1;
    });
    const key = keys[order.value];
    const compare = key
      ? (a, b) => key(data.rows[a]) - key(data.rows[b]) || a - b
      : (a, b) => data.rows[a].query_id.localeCompare(data.rows[b].query_id, "en", { numeric: true });
    [...items.keys()].sort(compare).forEach((place) => list.append(items[place]));
    shown.textContent = `${count} of ${data.rows.length} queries shown, of ${data.queries} compared.`;
  };

  const setOpen = (open) => {
    for (const item of items) if (!item.hidden) item.querySelector("details").open = open;
  };

  document.getElementById("controls").hidden = false;
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
  filter.addEventListener("input", show);
  order.addEventListener("change", show);
  document.getElementById("open").addEventListener("click", () => setOpen(true));
  document.getElementById("close").addEventListener("click", () => setOpen(false));
})();
