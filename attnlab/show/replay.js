// A replay of recorded steps: one picture, one overlay that changes, and keys to move through it.
// It asks for nothing from anywhere, so it is alive in a saved page with no kernel and no network.

const CSS = `
.al-replay{--p:var(--al-paper,#ffffff);--i:var(--al-ink,#1b1f24);--q:var(--al-quiet,#5f6872);--r:var(--al-rule,#e3e6ea);
  --d:var(--al-dense,#3b6fb6);display:inline-block;max-width:100%;box-sizing:border-box;background:var(--p);color:var(--i);
  border:1px solid var(--r);border-radius:10px;font:15px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
.al-replay svg.al{display:block}
.al.al-replay .al-card{stroke:none!important}
.al-replay .al-bar{display:flex;align-items:center;gap:8px;padding:0 24px 18px}
.al-replay button{width:38px;height:34px;padding:0;display:grid;place-items:center;cursor:pointer;background:var(--p);
  color:var(--i);border:1px solid var(--r);border-radius:7px}
.al-replay button:hover:enabled{border-color:var(--d)}
.al-replay button:disabled{opacity:.4;cursor:default}
.al-replay button svg{width:18px;height:18px;fill:currentColor}
.al-replay input{flex:1;min-width:60px;margin:0 4px;height:24px;accent-color:var(--d);cursor:pointer;border-radius:6px}
.al-replay output{min-width:4em;white-space:nowrap;text-align:right;color:var(--q);font-variant-numeric:tabular-nums}
.al-replay :focus-visible{outline:3px solid var(--d);outline-offset:2px}
.al-replay .al-unseen{position:absolute;width:1px;height:1px;margin:0;overflow:hidden;clip-path:inset(50%)}`;

const ICONS = {
  back: "M11.5 3.5v11L4 9zM13 3.5h2v11h-2z",
  play: "M5 3l10 6-10 6z",
  pause: "M4.5 3h3v12h-3zM10.5 3h3v12h-3z",
  forth: "M6.5 3.5v11L14 9zM3 3.5h2v11H3z",
};
const icon = (name) => `<svg viewBox="0 0 18 18" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`;

// Shows the frames in `element` and returns { set, destroy }. A frame is { overlay, lines }: SVG for the overlay group, and
// the sentence as the lines in which it is written under the title. `onIndex` hears of every move made here.
export function mount(element, { base, frames, title, index = 0, onIndex = () => {} }) {
  const last = frames.length - 1;
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  // A whole replay takes about twelve seconds; a reader who asked for less motion gets unhurried steps.
  const pause = Math.max(still ? 700 : 50, Math.min(900, 12000 / frames.length));
  let timer = null;

  const root = document.createElement("div");
  root.className = "al al-replay";
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", title);
  // JupyterLab keeps its own shortcuts away from the keys used here.
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  root.innerHTML = `<style>${CSS}</style><div class="al-stage">${base}</div>
    <div class="al-bar">
      <button type="button" data-do="back" aria-label="Step back">${icon("back")}</button>
      <button type="button" data-do="play" aria-label="Play">${icon("play")}</button>
      <button type="button" data-do="forth" aria-label="Step forward">${icon("forth")}</button>
      <input type="range" min="0" max="${last}" step="1" aria-label="Step">
      <output></output>
    </div>
    <p class="al-unseen" role="status" aria-live="polite"></p>`;
  element.replaceChildren(root);

  const find = (selector) => root.querySelector(selector);
  const picture = find("svg.al");
  const overlay = find(".al-overlay");
  const lines = [...find(".al-sentence").children];
  const [range, counter, status] = [find("input"), find("output"), find("[role=status]")];
  const [back, play, forth] = ["back", "play", "forth"].map((name) => find(`[data-do=${name}]`));

  function draw() {
    const sentence = frames[index].lines.join(" ");
    overlay.innerHTML = frames[index].overlay;
    lines.forEach((line, i) => (line.textContent = frames[index].lines[i] ?? ""));
    picture.setAttribute("aria-label", sentence);
    picture.querySelector("desc").textContent = sentence;
    range.value = index;
    range.setAttribute("aria-valuetext", sentence);
    counter.textContent = `${index + 1} / ${frames.length}`;
    // While it plays, a screen reader is left in peace; it reads the sentence when the replay stops.
    if (timer === null) status.textContent = sentence;
    back.disabled = index === 0;
    forth.disabled = index === last;
  }

  function go(to, tell = true) {
    const next = Math.max(0, Math.min(last, Math.round(Number(to)) || 0));
    if (next === index) return;
    index = next;
    draw();
    if (tell) onIndex(index);
  }

  function stop() {
    if (timer === null) return;
    clearInterval(timer);
    timer = null;
    play.innerHTML = icon("play");
    play.setAttribute("aria-label", "Play");
    draw();
  }

  function toggle() {
    if (timer !== null) return stop();
    if (last === 0) return;
    timer = setInterval(() => {
      if (!root.isConnected) return stop();
      go(index + 1);
      if (index === last) stop();
    }, pause);
    play.innerHTML = icon("pause");
    play.setAttribute("aria-label", "Pause");
    if (index === last) go(0);
  }

  // Moving by hand ends the playing.
  const move = (to) => {
    stop();
    go(to);
  };
  back.addEventListener("click", () => move(index - 1));
  forth.addEventListener("click", () => move(index + 1));
  play.addEventListener("click", toggle);
  range.addEventListener("input", () => move(range.value));
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const onButton = event.target.closest("button") !== null;
    const keys = {
      ArrowLeft: () => move(index - 1),
      ArrowRight: () => move(index + 1),
      Home: () => move(0),
      End: () => move(last),
      // On a button the space bar presses that button, as everywhere.
      " ": onButton ? null : toggle,
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });

  draw();
  return {
    set: (to) => go(to, false),
    destroy: () => {
      stop();
      root.remove();
    },
  };
}

// The entry point of anywidget: the kernel holds the same index.
export function render({ model, el }) {
  const shown = mount(el, {
    base: model.get("base"),
    frames: model.get("frames"),
    title: model.get("title"),
    index: model.get("index"),
    onIndex: (index) => {
      model.set("index", index);
      model.save_changes();
    },
  });
  const follow = () => shown.set(model.get("index"));
  model.on("change:index", follow);
  return () => {
    model.off("change:index", follow);
    shown.destroy();
  };
}

export default { render };
