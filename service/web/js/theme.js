// Runs before the first paint, so that a chosen theme does not flash. Not a module: modules run too late for that.
"use strict";
(() => {
  const stored = localStorage.getItem("astargate-theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
})();
