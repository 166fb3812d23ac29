// The overview: the curves that matter, all metrics behind a search, several runs in one chart.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Bands, type Curve, type Curves, type Evaluation, type Explained, type Value, get, go, news, route, runs, set, states } from "./api";
import { useAsked } from "./asked";
import { Chart, colour, dashed, type Line } from "./chart";
import { clean, number } from "./text";
import { chosen, step, theme } from "./shell";

export const glossary = signal<{ curves: Curve[]; metrics: Explained[] }>({ curves: [], metrics: [] });

// open has the keys in capitals replaced by those that the runs have.
function open(keys: string[], names: Set<string>): string[] {
  return keys.flatMap((k) => {
    const cut = k.lastIndexOf("/") + 1;
    if (k.slice(cut) !== k.slice(cut).toUpperCase() || !/[A-Z]/.test(k.slice(cut))) return [k];
    const known = new Set(glossary.value.metrics.map((m) => m.key));
    return [...names].filter((n) => n.startsWith(k.slice(0, cut)) && !known.has(n)).sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  });
}

// points is how many of a curve are asked for: charts are no wider. The server keeps the lowest and the highest value of what it leaves out.
const points = 1000;

// useCurves loads the series of the chosen runs and keeps them as the runs go on.
export function useCurves(keys: string[]): Record<string, Curves> {
  const [all, setAll] = useState<Record<string, Curves>>({}), have = useRef<Record<string, Curves>>({}), busy = useRef(false), [again, setAgain] = useState(0);
  const names = chosen.value, wanted = keys.filter((k) => !k.startsWith("eval/")).sort(), kind = JSON.stringify([names, wanted]), last = useRef("");
  const came = names.map(news).join();
  useEffect(() => {
    if (busy.current) return; // what came meanwhile is asked for behind it
    busy.current = true;
    const asked = came, same = last.current === kind;
    Promise.allSettled(names.map(async (run) => {
      const old = same ? have.current[run] : undefined, n = old?.steps.length ?? 0, now = states.value[run]?.steps ?? 0;
      const more = old !== undefined && n > 0 && n < 2 * points && now >= old.total; // only what is new, and the last step once more
      const c = await get<Curves>("curves", { run, key: wanted, points, from: more ? old.steps[n - 1] : undefined });
      if (!more || c.state.edition !== old.state.edition || c.steps[0] !== old.steps[n - 1]) return [run, more ? await get<Curves>("curves", { run, key: wanted, points }) : c] as [string, Curves];
      const series: Curves["series"] = {};
      for (const key of wanted) if (c.series[key] || old.series[key]) series[key] = [...(old.series[key]?.slice(0, n - 1) ?? new Array(n - 1).fill(null)), ...(c.series[key] ?? [])];
      return [run, { ...c, thinned: old.thinned || c.thinned, steps: [...old.steps.slice(0, n - 1), ...c.steps], series }] as [string, Curves];
    })).then((got) => { have.current = Object.fromEntries(got.flatMap((g) => (g.status === "fulfilled" ? [g.value] : []))); last.current = kind; setAll(have.current); }) // the header says what cannot be read
      .finally(() => { busy.current = false; if (latest.current !== asked + kind) setAgain((n) => n + 1); });
  }, [kind, came, again]);
  const latest = useRef("");
  latest.current = came + kind;
  return all;
}

// useBands loads the chosen runs put together, of all their steps: thinned curves of several runs have other steps.
function useBands(keys: string[], wanted: boolean): Bands | undefined {
  const names = chosen.value, some = keys.filter((k) => !k.startsWith("eval/")).sort(), key = JSON.stringify([wanted && names.length > 1, names, some]), [got, setGot] = useState<{ key: string; bands: Bands }>();
  useAsked(key, names.map(news).join(), async (stop) => {
    if (!wanted || names.length < 2) return setGot(undefined);
    await get<Bands>("bands", { run: names, key: some, points }, stop).then((bands) => setGot({ key, bands })).catch(() => {}); // the header says what cannot be read
  });
  return got?.key === key ? got.bands : undefined; // never those of other runs
}

// Values are those of the metrics of runs at steps: of a step, of a run, of a key.
type Values = Record<number, Record<string, Record<string, Value>>>;

// useValues loads what thinned curves do not tell: the exact values at steps, at Infinity those of the last one.
function useValues(keys: string[], all: Record<string, Curves>, steps: number[]): Values {
  const [got, setGot] = useState<Values>({});
  const names = chosen.value.filter((n) => all[n]?.thinned), wanted = keys.filter((k) => !k.startsWith("eval/")).sort();
  const key = JSON.stringify([names, wanted, steps, names.map((n) => [all[n].state.edition, steps.includes(Infinity) ? all[n].total : 0])]);
  useEffect(() => {
    if (!names.length) return;
    const stop = new AbortController();
    Promise.all(steps.map(async (s) => [s, Object.fromEntries(await Promise.all(names.map(async (run) =>
      [run, (await get<{ values: Record<string, Value> }>("values", { run, key: wanted, step: s === Infinity ? undefined : s - 1 }, stop.signal)).values] as const)))] as const))
      .then((v) => setGot(Object.fromEntries(v))).catch(() => {});
    return () => stop.abort();
  }, [key]);
  return got;
}

// usePointed are the steps of thinned curves that are pointed at, once the pointer has rested for a moment, and a function that cards tell them to.
// Cards of several runs may have other steps.
function usePointed(): [number[], (title: string, step: number | null) => void] {
  const [steps, setSteps] = useState<number[]>([]), now = useRef(new Map<string, number>()), later = useRef(0);
  return [steps, (title, step) => {
    if (step === null) now.current.delete(title); else now.current.set(title, step);
    clearTimeout(later.current);
    later.current = window.setTimeout(() => setSteps([...new Set(now.current.values())].sort((a, b) => a - b)), 100);
  }];
}

type Shown = Line & { run: string; key: string; thinned: boolean };

function lines(keys: string[], all: Record<string, Curves>): Shown[] {
  const names = chosen.value.filter((n) => all[n]), several = names.length > 1, out: Shown[] = [];
  const shown = several ? keys.slice(0, 1) : keys;
  names.forEach((run, r) => shown.forEach((key, k) => {
    const c = all[run], title = runs.value.find((x) => x.name === run)?.title ?? run;
    const line = { label: several ? title : key, colour: several ? chosen.value.indexOf(run) : k, run, key, thinned: c.thinned };
    if (key.startsWith("eval/")) {
      const of = key.slice(5), e = c.evaluations.filter((e) => (e.name === "before" || e.name === "after" || e.name.startsWith("step-")) && evaluated(e, of) !== undefined);
      if (e.length) out.push({ ...line, thinned: false, x: e.map((e) => e.step), y: e.map((e) => evaluated(e, of)!), points: true });
      return;
    }
    const y = c.series[key];
    if (y && y.some((v) => v !== null)) out.push({ ...line, x: c.steps.map((s) => s + 1), y });
  }));
  return out;
}

// evaluated is a figure of an evaluation; undefined: it has none.
function evaluated(e: Evaluation, of: string): number | undefined {
  if (of.startsWith("pass/")) return e.pass?.[of.slice(5)] ?? undefined;
  const scored = of === "reward" || of === "accuracy";
  return scored && e.loss !== undefined ? undefined : e[of as "reward" | "accuracy" | "loss" | "reverse_kl"] ?? undefined;
}

// banded are the lines of a band: the highest and the lowest of several runs, and their mean. Evaluations are few: none is left out of their lines.
function banded(some: Shown[], bands: Bands): Line[] | undefined {
  const key = some[0].key, of = bands.series[key], line = (label: string, x: number[], y: Line["y"]): Line => ({ label, x, y, colour: 0 });
  if (!key.startsWith("eval/")) {
    const x = bands.steps.map((s) => s + 1);
    return of && [line("highest", x, of.high), line("lowest", x, of.low), line("mean", x, of.mean)];
  }
  const at = new Map<number, number[]>();
  for (const l of some) l.x.forEach((x, i) => { const v = l.y[i]; if (v !== null && v !== undefined) at.set(x, [...(at.get(x) ?? []), v]); });
  const x = [...at.keys()].sort((a, b) => a - b), all = x.map((k) => at.get(k)!);
  return [line("highest", x, all.map((v) => Math.max(...v))), line("lowest", x, all.map((v) => Math.min(...v))), line("mean", x, all.map((v) => v.reduce((a, b) => a + b, 0) / v.length))];
}

// at is the value of a line at a step, or before it, and the step that it is of. Step 0 is before training.
function at(l: Line, s: number): { x: number; y: number | null } {
  for (let i = l.x.length - 1; i >= 0; i--) if (l.x[i] <= s) if (l.y[i] !== null && l.y[i] !== undefined) return { x: l.x[i], y: l.y[i] };
  return { x: 0, y: null };
}

// valueOf is what at is, of a thinned line; undefined: it has not come yet.
function valueOf(l: Shown, s: number, exact: Values): { x: number; y: number | null | undefined } {
  const of = exact[s]?.[l.run], v = of?.[l.key];
  return v ? { x: v.step + 1, y: v.value } : { x: 0, y: of ? null : undefined };
}

type CardProps = { c: Curve; all: Record<string, Curves>; bands?: Bands; exact: Values; onPoint: (title: string, step: number | null) => void };

function Card({ c, all, bands, exact, onPoint }: CardProps) {
  const names = useMemo(() => new Set(Object.values(all).flatMap((x) => x.names)), [all]);
  const keys = open(c.keys, names), some = useMemo(() => lines(keys, all), [all, chosen.value.join(), c.title]), [point, setPoint] = useState<number | null>(null);
  const band = useMemo(() => (bands && some.length ? banded(some, bands) : undefined), [some, bands]);
  if (!some.length) return null;
  const several = chosen.value.length > 1, s = point ?? (step.value || Infinity), left = several ? keys.filter((k) => some[0].key !== k && Object.values(all).some((x) => x.names.includes(k))) : [];
  const shown = some.slice(0, 8).map((l) => ({ l, ...(l.thinned ? valueOf(l, s, exact) : at(l, s)) })), same = shown.every((v) => v.x === (s === Infinity ? shown[0].x : s));
  return <section class="card" aria-label={c.title}>
    <h3>{c.title}{c.unit && c.unit !== c.title.toLowerCase() && <small> {c.unit}</small>}</h3>
    <Chart title={c.title} lines={band ?? some} step={step.value} band={band !== undefined} theme={theme.value} onStep={(s) => go("overview", { ...Object.fromEntries([...route.value.q.keys()].map((k) => [k, route.value.q.getAll(k)])), step: s })} onPoint={(s) => { setPoint(s); onPoint(c.title, some.some((l) => l.thinned) ? s : null); }} />
    <ul class="legend">{shown.map(({ l, x, y }) => <li key={l.label}>
      <Swatch n={l.colour} /> <span class="name">{clean(l.label)}</span> <b>{y === undefined ? "…" : number(y)}</b>{!same && x > 0 && <span class="name"> at step {x}</span>}</li>)}
      {point !== null && <li class="name point">step {point}</li>}</ul>
    {left.length > 0 && <p class="worry">Beside another run only {clean(some[0].key)} is drawn, not {left.map(clean).join(", ")}; find them above.</p>}
    <p>{c.means}</p>{c.worry && <p class="worry">{c.worry}</p>}
  </section>;
}

export function Swatch({ n }: { n: number }) {
  void theme.value;
  return <svg class="swatch" width="10" height="10" aria-hidden="true">{dashed(n) ? [0, 6].map((x) => <rect key={x} x={x} width="4" height="10" fill={colour(n)} />) : <rect width="10" height="10" rx="2" fill={colour(n)} />}</svg>;
}

const mostCards = 24;

export function Overview() {
  const q = route.value.q, word = q.get("metric") ?? "", band = q.get("band") === "1";
  const seen = useCurves([]); // the names
  const names = new Set(Object.values(seen).flatMap((x) => x.names));
  const first = open(glossary.value.curves.flatMap((c) => c.keys), names);
  const explained = new Map(glossary.value.metrics.map((m) => [m.key, m]));
  const about = (key: string): Explained | undefined => explained.get(key) ?? glossary.value.metrics.find((m) => { const cut = m.key.lastIndexOf("/") + 1; return /^[A-Z]+$/.test(m.key.slice(cut)) && key.startsWith(m.key.slice(0, cut)); });
  const hits = word ? [...names].sort().filter((k) => (k + " " + (about(k)?.doc ?? "")).toLowerCase().includes(word.toLowerCase())) : [];
  const keys = [...first, ...hits.slice(0, mostCards)], all = useCurves(keys), [pointed, onPoint] = usePointed(), exact = { ...useValues(keys, all, pointed), ...useValues(keys, all, [step.value || Infinity]) }, bands = useBands(keys, band);
  const failed = runs.value.find((r) => r.name === chosen.value[0])?.failed !== undefined;
  const empty = chosen.value.length > 0 && Object.keys(seen).length > 0 && names.size === 0;
  return <>
    <form class="bar" role="search" onSubmit={(e) => e.preventDefault()}>
      <label>Find a metric <input type="search" id="metric" value={word} placeholder={`one of ${names.size}`} onInput={(e) => set({ metric: e.currentTarget.value })} /></label>
      {chosen.value.length > 1 && <label class="check"><input type="checkbox" id="band" checked={band} onChange={(e) => set({ band: e.currentTarget.checked ? 1 : undefined })} /> mean and band of the runs</label>}
    </form>
    {empty && <p class="note">{failed ? "No step was finished." : "No step is finished yet. The curves appear with the first one."}</p>}
    {word ? <>
      <h2>{hits.length} {hits.length === 1 ? "metric" : "metrics"} with “{word}”{hits.length > mostCards && `, the first ${mostCards}`}</h2>
      <div class="cards">{hits.slice(0, mostCards).map((k) => {
        const m = about(k);
        return <Card key={k} all={all} bands={bands} exact={exact} onPoint={onPoint} c={{ title: k, keys: [k], unit: m?.unit, means: m ? `${m.doc[0].toUpperCase()}${m.doc.slice(1)}.` : "", worry: "" }} />;
      })}</div></>
      : <><h2 class="sr">Curves</h2><div class="cards">{glossary.value.curves.map((c) => <Card key={c.title} c={c} all={all} bands={bands} exact={exact} onPoint={onPoint} />)}</div></>}
  </>;
}
