"use strict";
// The slider of the query page: which hits stay, drop out or move up if more query terms must be shared.
(() => {
  const slider = document.getElementById("required");
  if (!slider) return;
  const { data } = JSON.parse(document.getElementById("content").textContent);
  const list = document.getElementById("hit-list");
  const items = [...list.children];
  const outcome = document.getElementById("outcome");
  const dropped = document.getElementById("dropped");
  const number = new Intl.NumberFormat("en");
  const count = (n, one, many) => `${number.format(n)} ${n === 1 ? one : many}`;

  const show = () => {
    const required = Number(slider.value);
    const { matched } = data.thresholds[required - 1];
    const gone = [];
    let stay = 0;
    let entered = 0;
    items.forEach((item, place) => {
      const hit = data.hits[place];
      const [before, now] = [hit.ranks[0], hit.ranks[required - 1]];
      item.hidden = now === null;
      item.querySelector(".rank").textContent = now ?? "";
      let moved = "";
      if (now !== null && before === null) { entered += 1; moved = ", new"; }
      if (now !== null && before !== null) {
        stay += 1;
        if (before !== now) moved = `, was ${before}`;
      }
      if (now === null && before !== null) gone.push(hit);
      item.querySelector(".moved").textContent = moved;
    });
    [...items]
      .sort((a, b) => (data.hits[a.dataset.hit].ranks[required - 1] ?? Infinity)
        - (data.hits[b.dataset.hit].ranks[required - 1] ?? Infinity))
      .forEach((item) => list.append(item));

    document.getElementById("required-value").textContent = required;
    const sentences = [`${count(matched, "document matches", "documents match")}.`];
    if (required > 1) {
      sentences.push(`${count(stay, "hit stays", "hits stay")}, ${count(gone.length, "drops", "drop")} out, ${number.format(entered)} new.`);
    }
    outcome.textContent = sentences.join(" ");
    dropped.hidden = gone.length === 0;
    document.getElementById("dropped-list").replaceChildren(...gone.map((hit) => {
      const item = document.createElement("li");
      const name = document.createElement("bdi");
      name.textContent = hit.doc_id;
      item.append(name, `: shares ${count(hit.overlap, "term", "terms")}, was ${hit.ranks[0]}`);
      return item;
    }));
  };

  slider.value = "1"; // some browsers restore the value of a reloaded page
  slider.addEventListener("input", show);
  show();
})();
