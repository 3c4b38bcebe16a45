// Above each table of verdicts: a field for words and a button per verdict.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".filtered")) {
    const rows = [...place.querySelectorAll("tbody tr")];
    if (rows.length < 8) continue;
    const verdict = (row) => row.querySelector(".verdict")?.textContent ?? "";
    const bar = place.insertBefore(document.createElement("div"), place.firstChild);
    bar.className = "filter";
    const words = bar.appendChild(document.createElement("input"));
    words.type = "search";
    words.placeholder = `filter ${rows.length} rows`;
    words.setAttribute("aria-label", "only rows with these words");
    const chosen = new Set();
    const show = () => {
      const wanted = words.value.toLowerCase().split(/\s+/);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = (chosen.size > 0 && !chosen.has(verdict(row))) || !wanted.every((w) => text.includes(w));
      }
    };
    words.addEventListener("input", show);
    for (const name of new Set(rows.map(verdict))) {
      const button = bar.appendChild(document.createElement("button"));
      button.type = "button";
      button.append(rows.find((row) => verdict(row) === name).querySelector(".verdict").cloneNode(true));
      button.append(` ${rows.filter((row) => verdict(row) === name).length}`);
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        if (!chosen.delete(name)) chosen.add(name);
        button.setAttribute("aria-pressed", String(chosen.has(name)));
        show();
      });
    }
    // A link into the table leads to a row that is shown.
    const reveal = () => {
      const row = location.hash && document.getElementById(location.hash.slice(1))?.closest("tr");
      if (row) row.hidden = false;
    };
    window.addEventListener("hashchange", reveal);
  }
});
