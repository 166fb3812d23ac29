// What stands around every view: the run, those it is compared with, the step, the views.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { connected, folder, follow, get, go, href, left, listed, loadRuns, problem, route, runs, set, states } from "./api";
import { ago, clean, count, number } from "./text";
import { Causes } from "./causes";
import { Trajectories } from "./list";
import { Now } from "./now";
import { glossary, Overview, Swatch } from "./overview";
import { One } from "./trajectory";

// mostShown is how many runs are drawn at once.
const mostShown = 12;

// The runs that are asked for and there, the first one being that of lists and trajectories. Where that one is not there, none takes its place.
const wanted = computed(() => {
  const q = route.value.q, known = new Set(runs.value.map((r) => r.name));
  const first = q.get("run") ?? runs.value[0]?.name;
  if (first === undefined || !known.has(first)) return [];
  return [...new Set([first, ...q.getAll("with")])].filter((n) => known.has(n));
});

// The runs that are shown.
export const chosen = computed(() => wanted.value.slice(0, mostShown));

const steps = (run: string): number => states.value[run]?.steps ?? runs.value.find((r) => r.name === run)?.steps ?? 0;

// The last step of the runs that are shown.
const most = computed(() => Math.max(1, ...chosen.value.map(steps)));

// The step of the slider, as people count: the first is 1; 0 is none. It is one that a run has, whatever the address says.
export const step = computed(() => Math.min(most.value, Math.max(0, Math.floor(Number(route.value.q.get("step") ?? 0)) || 0)));

// The same of the first run alone, that of lists and causes: it may have fewer steps than one beside it.
export const ownStep = computed(() => Math.min(step.value, Math.max(1, steps(chosen.value[0] ?? ""))));

const saved = (() => { try { return localStorage.getItem("theme") ?? ""; } catch { return ""; } })();
const choice = signal(saved), dark = matchMedia("(prefers-color-scheme: dark)"), system = signal(dark.matches);
dark.addEventListener("change", () => (system.value = dark.matches));
export const theme = computed(() => choice.value || (system.value ? "dark" : "light"));
effect(() => {
  document.documentElement.dataset.theme = theme.value;
  try { choice.value ? localStorage.setItem("theme", choice.value) : localStorage.removeItem("theme"); } catch { /* a browser that keeps nothing */ }
});

const views = [["overview", "Overview"], ["trajectories", "Trajectories"], ["causes", "Causes"], ["now", "Now"]] as const;

export function App() {
  useEffect(() => {
    loadRuns();
    get<typeof glossary.value>("metrics").then((g) => (glossary.value = g)).catch(() => {});
    const again = setInterval(() => { if (!document.hidden) loadRuns(); }, 10000);
    return () => clearInterval(again);
  }, []);
  const asked = route.value.q.get("run"), newest = runs.value[0]?.name;
  useEffect(() => { if (asked === null && newest !== undefined) set({ run: newest }); }, [asked, newest]); // an address says of which run it is
  const names = chosen.value.join("\n");
  useEffect(() => follow(names ? names.split("\n") : []), [names]);
  const page = route.value.page, first = runs.value.find((r) => r.name === chosen.value[0]), state = states.value[first?.name ?? ""];
  useEffect(() => { document.title = `${first ? first.title + " · " : ""}${page} · AgentFly`; }, [page, first?.title]);
  return <>
    <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the view</a>
    <header>
      <div class="top">
        <h1>AgentFly</h1>
        <nav aria-label="views">{views.map(([name, title]) => <a key={name} href={name === "trajectories" ? href(name, listed.value) : href(name)} aria-current={page === name || (name === "trajectories" && page === "trajectory") ? "page" : undefined}>{title}</a>)}</nav>
        <span class="live" id="live">{first && (connected.value ? <><i class="dot" aria-hidden="true" /> connected</> : "not connected")}</span>
        <label class="theme"><span class="sr">Colours</span><select id="theme" value={choice.value} onChange={(e) => (choice.value = e.currentTarget.value)}>
          <option value="">system</option><option value="light">light</option><option value="dark">dark</option></select></label>
      </div>
      {runs.value.length > 0 && <div class="bar">
        <label>Run <select id="run" value={first?.name ?? ""} onChange={(e) => choose(e.currentTarget.value)}>
          {!first && <option value="" selected>none</option>}
          {runs.value.map((r) => <option key={r.name} value={r.name} selected={r.name === first?.name}>{clean(r.title)}</option>)}</select></label>
        {runs.value.length > 1 && <Compare />}
        <Slider />
        {state && <span class="state" id="state">{count(state.steps, "step")}, {state.loaded ? "" : "reading, "}{count(state.trajectories, "trajectory", "trajectories")}{state.loaded ? "" : " so far"}, written {ago(first!.age)}</span>}
      </div>}
      {chosen.value.map((n) => runs.value.find((r) => r.name === n)!).filter((r) => r.error).map((r) => <p class="alert" role="alert" key={r.name}>{clean(r.title)}: {clean(r.error!)}</p>)}
      {left.value > 0 && <p class="note" id="left">The {runs.value.length} runs that were written last are listed, {count(left.value, "older run")} {left.value === 1 ? "is" : "are"} not: agentfly view RUN shows one.</p>}
      {wanted.value.length > mostShown && <p class="note" id="undrawn">At most {mostShown} runs are drawn: {wanted.value.length - mostShown} of those that the address names {wanted.value.length - mostShown === 1 ? "is" : "are"} left out.</p>}
      {first?.failed !== undefined && <p class="alert" id="failed" role="alert">The run failed: {clean(first.failed)}</p>}
      {state?.fault && <p class="alert" role="alert">Nothing new is read of this run: {clean(state.fault)}</p>}
      {problem.value && <p class="alert" role="alert">{problem.value}</p>}
    </header>
    <main id="main" tabIndex={-1}>
      {!runs.value.length ? <p class="note">{folder.value && `No run in ${folder.value} yet. It appears here when it begins.`}</p>
        : !first ? <p class="note" id="unknown">There is no run {clean(asked ?? "")} in {folder.value} that can be shown. Choose one above.</p>
        : page === "trajectories" ? <Trajectories /> : page === "trajectory" ? <One /> : page === "causes" ? <Causes /> : page === "now" ? <Now /> : <Overview />}
    </main></>;
}

// choose goes to another run, with nothing of the one before that it does not have.
function choose(run: string) {
  listed.value = {};
  const of = route.value.page === "trajectory" ? "trajectories" : route.value.page;
  go(of, { ...Object.fromEntries([...route.value.q.keys()].filter((k) => ["metric", "band", "sort", "order"].includes(k)).map((k) => [k, route.value.q.get(k) ?? undefined])), run, with: route.value.q.getAll("with").filter((w) => w !== run), step: route.value.q.get("step") ?? undefined });
}

function Slider() {
  const now = step.value, last = most.value;
  return <span class="slider"><label for="step">Step</label> <input type="range" id="step" min="0" max={last} value={now} aria-valuetext={now ? `step ${now}` : "all steps"} onInput={(e) => set({ step: Number(e.currentTarget.value) || undefined })} />
    <output for="step" id="at">{now ? `${now} of ${last}` : "all"}</output></span>;
}

function Compare() {
  const others = runs.value.filter((r) => r.name !== chosen.value[0]), withs = new Set(route.value.q.getAll("with"));
  const box = useRef<HTMLDetailsElement>(null);
  useEffect(() => { // it closes when somebody goes on elsewhere
    const shut = (e: Event) => { if (box.current?.open && !(e.target instanceof Node && box.current.contains(e.target) && e.type !== "hashchange")) box.current.open = false; };
    const kinds = ["pointerdown", "focusin", "hashchange"];
    kinds.forEach((k) => addEventListener(k, shut));
    return () => kinds.forEach((k) => removeEventListener(k, shut));
  }, []);
  return <details class="compare" ref={box} onKeyDown={(e) => { if (e.key === "Escape" && box.current) { box.current.open = false; box.current.querySelector("summary")?.focus(); } }}><summary>Compare{chosen.value.length > 1 && ` (${chosen.value.length})`}</summary>
    <fieldset><legend>Shown beside it in the curves{chosen.value.length >= mostShown && `; at most ${mostShown} are drawn`}</legend>{others.map((r) => <label key={r.name} class="check"><input type="checkbox" name="with" value={r.name} checked={withs.has(r.name)} disabled={!withs.has(r.name) && chosen.value.length >= mostShown} onChange={(e) => {
      const next = new Set(withs);
      e.currentTarget.checked ? next.add(r.name) : next.delete(r.name);
      set({ with: [...next] });
    }} /> {withs.has(r.name) && <Swatch n={chosen.value.indexOf(r.name)} />} {clean(r.title)} <small>{count(r.steps, "step")}, reward {number(r.reward)}, {ago(r.age)}</small></label>)}</fieldset></details>;
}
