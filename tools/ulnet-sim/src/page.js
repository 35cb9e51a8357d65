"use strict";
const all = [...document.querySelectorAll("svg[data-end]")].map((svg) => {
  const line = document.createElementNS(svg.namespaceURI, "line");
  line.setAttribute("class", "cursor"); line.setAttribute("visibility", "hidden");
  line.setAttribute("y1", 0); line.setAttribute("y2", svg.viewBox.baseVal.height);
  svg.append(line);
  const label = document.createElementNS(svg.namespaceURI, "text");
  label.setAttribute("y", 11); svg.append(label);
  return { svg, line, label, left: +svg.dataset.left, right: +svg.dataset.right, end: +svg.dataset.end };
});
for (const from of all) {
  from.svg.addEventListener("pointermove", (event) => {
    const box = from.svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * from.svg.viewBox.baseVal.width;
    const part = (x - from.left) / (from.right - from.left);
    for (const { line, label, left, right, end } of all) {
      const at = left + part * (right - left);
      line.setAttribute("x1", at); line.setAttribute("x2", at); label.setAttribute("x", at + 4);
      const shown = part >= 0 && part <= 1;
      line.setAttribute("visibility", shown ? "visible" : "hidden");
      label.textContent = shown ? (part * end).toFixed(3) + " s" : "";
    }
  });
}
const rows = [...document.querySelectorAll("#moments tr")], filter = document.getElementById("filter");
const narrow = () => {
  const word = filter.value.toLowerCase();
  let n = 0;
  for (const row of rows) {
    row.hidden = !row.textContent.toLowerCase().includes(word);
    n += !row.hidden;
  }
  document.getElementById("count").textContent = n + " of " + rows.length + " moments";
};
filter.addEventListener("input", narrow);
filter.value = decodeURIComponent(location.hash.slice(1));
narrow();
