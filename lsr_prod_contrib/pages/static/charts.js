"use strict";
// Draws the charts of the page. Their specs and rows are in the JSON element of the page.
(() => {
  const content = JSON.parse(document.getElementById("content").textContent);

  // Charts follow the width of their figure, which Vega-Lite measures when it draws and when the window changes.
  const draw = (figure) => {
    const chart = content.charts[figure.dataset.chart];
    const place = figure.querySelector(".canvas");
    const spec = {
      width: "container",
      autosize: { type: "fit-x", contains: "padding" },
      ...chart.spec,
      data: { values: chart.rows },
    };
    const options = {
      mode: "vega-lite",
      renderer: "svg",
      actions: false,
      ast: true, // the content security policy forbids eval
      defaultStyle: false,
      tooltip: { disableDefaultStyle: true },
    };
    return vegaEmbed(place, spec, options).then(() => {
      place.querySelector("svg").setAttribute("aria-hidden", "true");
      figure.dataset.drawn = "true";
    });
  };

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  Promise.all(figures.map(draw)).then(
    () => { document.documentElement.dataset.charts = "drawn"; },
    (error) => { console.error(error); },
  );
})();
