// Write the column's name to each cell of a table with a head: on a phone a row becomes a block (site.css).
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils:has(thead)")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    if (names.length < 3) continue;
    table.classList.add("folds");
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.children].forEach((cell, number) => number && names[number] && (cell.dataset.label = names[number]));
  }
});
