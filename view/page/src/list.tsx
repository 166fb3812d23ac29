// The list of trajectories: filters, orders, and as many rows as fit on the screen.
import { useEffect, useRef, useState } from "preact/hooks";
import { address, type Entry, get, go, href, type List, listed, news, place, type Query, route, set, states } from "./api";
import { useAsked } from "./asked";
import { alone, clean, count as counted, number, phase, sampledFor, seconds, words } from "./text";
import { chosen, ownStep } from "./shell";

const height = 32, margin = 8;

const columns: { key: string; name: string; of: (e: Entry) => string; wide?: boolean; left?: boolean; sort?: boolean }[] = [
  { key: "id", name: "trajectory", of: (e) => e.id, left: true },
  { key: "step", name: "step", of: (e) => sampledFor(e).replace("the evaluation ", ""), sort: true },
  { key: "task", name: "task", of: (e) => e.task, left: true, wide: true, sort: true },
  { key: "reward", name: "reward", of: (e) => (e.origin ? "–" : number(e.reward)), sort: true },
  { key: "stop", name: "stop reason", of: (e) => words(e.stop) + (e.origin ? ` (${e.origin})` : ""), left: true, sort: true },
  { key: "turns", name: "turns", of: (e) => String(e.turns), wide: true, sort: true },
  { key: "tokens", name: "tokens", of: (e) => String(e.tokens), wide: true, sort: true },
  { key: "calls", name: "calls", of: (e) => String(e.calls) + (e.failed_calls ? `, ${e.failed_calls} failed` : ""), wide: true, sort: true },
  { key: "staleness", name: "staleness", of: (e) => (e.staleness < 0 ? "–" : String(e.staleness)), wide: true, sort: true },
  { key: "seconds", name: "time", of: (e) => seconds(e.seconds), wide: true, sort: true },
];

// What the address says of the filter; here: only the step of the slider.
export function filters(): Query {
  const q = route.value.q, out: Query = {};
  for (const key of ["phase", "task", "group", "tool", "cause", "stop", "origin", "ended", "min", "max", "stale", "failed", "failed_call", "text", "sort", "order"]) out[key] = q.get(key) ?? undefined;
  const from = q.get("from"), to = q.get("to");
  if (from) out.from = Number(from) - 1;
  if (to) out.to = Number(to);
  if (q.get("here") === "1" && ownStep.value > 0) { out.from = ownStep.value - 1; out.to = ownStep.value; }
  return out;
}

// mistake says which field of the filter cannot be meant.
function mistake(): string {
  const q = route.value.q, value = (k: string) => q.get(k) ?? "";
  for (const [key, label, whole] of [["from", "Step from", true], ["to", "Step to", true], ["min", "Reward from", false], ["max", "Reward to", false], ["stale", "Staleness at least", true]] as [string, string, boolean][]) {
    const n = Number(value(key));
    if (!Number.isFinite(n) || (whole && !Number.isInteger(n))) return `${label}: “${clean(value(key))}” is no ${whole ? "whole " : ""}number.`;
  }
  if (value("to") && Number(value("to")) < 1) return `Step to: there is no step ${value("to")}; they count from 1.`;
  for (const [a, b, label] of [["from", "to", "Step"], ["min", "max", "Reward"]]) if (value(a) && value(b) && Number(value(a)) > Number(value(b))) return `${label}: from ${value(a)} to ${value(b)} is nothing; exchange the two.`;
  return "";
}

// byNumber sorts texts with the numbers in them as numbers.
const byNumber = new Intl.Collator("en", { numeric: true }).compare;

// An end is of the stop reason, the error and the first failed call together: who changes one of them asks for more than one end.
const ofEnd = ["stop", "origin", "tool", "cause"];

function Choice({ name, label, values }: { name: string; label: string; values: string[] }) {
  const now = route.value.q.get(name) ?? "";
  return <label>{label} <select id={`f-${name}`} value={now} onChange={(e) => set({ [name]: e.currentTarget.value, ...(ofEnd.includes(name) ? { ended: undefined } : {}) })}>
    <option value="">any</option>{[...new Set([...values, ...(now ? [now] : [])])].sort(byNumber).map((v) => <option key={v} value={v} selected={v === now}>{clean(name === "phase" ? phase(v) : words(v))}</option>)}</select></label>;
}

// Field is a text of the filter. The address takes it when the typing pauses; until then it is the field's own.
function Field({ name, label, type = "text", hint = "" }: { name: string; label: string; type?: string; hint?: string }) {
  const late = useRef(0), [typed, setTyped] = useState<string>();
  useEffect(() => () => clearTimeout(late.current), []);
  const take = (v: string) => {
    setTyped(v);
    clearTimeout(late.current);
    late.current = window.setTimeout(() => { if (address().page === "trajectories") set({ [name]: v }); setTyped(undefined); }, 150); // another view has no such filter
  };
  return <label>{label} <input id={`f-${name}`} class={type === "number" ? "num" : undefined} type="search" inputMode={type === "number" ? "decimal" : undefined} value={typed ?? route.value.q.get(name) ?? ""} placeholder={hint} onInput={(e) => take(e.currentTarget.value)} /></label>;
}

// keep is what a trajectory's address takes along.
const keep = (): Query => Object.fromEntries(["run", "with", "step"].map((k) => [k, route.value.q.getAll(k)]));

export function Trajectories() {
  const run = chosen.value[0], q = filters(), wrong = mistake(), key = JSON.stringify([run, q]);
  const [list, setList] = useState<List>(), [rows, setRows] = useState<Entry[]>([]), [error, setError] = useState(""), [top, setTop] = useState(0), [unfolded, setUnfolded] = useState(false), [room, setRoom] = useState(600);
  const box = useRef<HTMLDivElement>(null), more = useRef(false), focus = useRef(-1), held = useRef<Element | null>(null), asked = useRef("");
  const state = run ? states.value[run] : undefined;
  const count = state ? `${state.loaded ? state.trajectories : Math.floor(state.trajectories / 5000)}/${news(run!)}` : ""; // a step trains trajectories that are there
  useAsked(key, `${count}/${top > 0}`, async (stop) => {
    if (!run) return;
    if (wrong || asked.current !== key) { setList(undefined); setRows([]); setError(wrong); } // what another filter found is not shown under this one
    if (wrong) { asked.current = ""; return; }
    const keeps = asked.current === key && top > 0; // who reads further down keeps the rows; the total tells of new ones
    await get<List>("trajectories", { run, ...q }, stop).then(async (l) => {
      if (asked.current !== key && box.current) {
        const back = place.key === key ? place.top : 0, least = back > 0 ? Math.min(l.total, Math.ceil((back + box.current.clientHeight) / height)) : 0;
        for (let some = l.rows; some.length && l.rows.length < least; l.rows.push(...some)) some = (await get<List>("trajectories", { run, ...q, after: l.rows[l.rows.length - 1].id }, stop)).rows;
        requestAnimationFrame(() => { if (box.current) box.current.scrollTop = back; });
      }
      if (route.value.page === "trajectories") listed.value = Object.fromEntries([...route.value.q.keys()].filter((k) => !["run", "with", "step"].includes(k)).map((k) => [k, route.value.q.get(k) ?? undefined]));
      asked.current = key;
      setList(l);
      if (!keeps) setRows(l.rows);
      setError("");
    }).catch((e) => { if (e.name !== "AbortError") setError(e.message); });
  });
  useEffect(() => {
    const size = new ResizeObserver(() => box.current && setRoom(box.current.clientHeight));
    if (box.current) size.observe(box.current);
    return () => size.disconnect();
  }, []);
  const first = Math.max(0, Math.min(rows.length, Math.floor(top / height) - margin)), last = Math.min(rows.length, Math.ceil((top + room) / height) + margin);
  useEffect(() => {
    if (!list || last < rows.length - 40 || rows.length >= list.total || more.current || !rows.length || asked.current !== key) return;
    more.current = true;
    get<List>("trajectories", { run, ...q, after: rows[rows.length - 1].id })
      .then((l) => { if (asked.current === key) setRows((r) => [...r, ...l.rows]); })
      .catch(() => { asked.current = ""; setTop(0); if (box.current) box.current.scrollTop = 0; })
      .finally(() => (more.current = false));
  }, [last, rows.length, key]);
  useEffect(() => {
    if (held.current && !held.current.isConnected && document.activeElement === document.body) box.current?.focus({ preventScroll: true }); // a row that another list does not have took the focus with it
    if (focus.current < 0) return;
    const a = box.current?.querySelector<HTMLElement>(`[data-row="${focus.current}"] a`);
    if (a) { a.focus({ preventScroll: true }); focus.current = -1; }
  });
  // Arrow keys move between the rows.
  const move = (e: KeyboardEvent) => {
    const at = (e.target as HTMLElement).closest<HTMLElement>("[data-row]"), by: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9 };
    if (!alone(e) || !(e.key in by)) return;
    e.preventDefault();
    if (!rows.length) return;
    const el = box.current!, from = at ? Number(at.dataset.row) : focus.current >= 0 ? focus.current : Math.ceil(el.scrollTop / height) - 1; // where no row has the focus, from the first that is seen
    const next = Math.max(0, Math.min(rows.length - 1, from + by[e.key]));
    el.focus({ preventScroll: true }); // a row that is not drawn any more would take the focus with it
    focus.current = next;
    if (next * height < el.scrollTop) el.scrollTop = next * height;
    else if ((next + 2) * height > el.scrollTop + el.clientHeight) el.scrollTop = (next + 2) * height - el.clientHeight;
    setTop(el.scrollTop);
    el.querySelector<HTMLElement>(`[data-row="${next}"] a`)?.focus({ preventScroll: true });
  };
  const sort = route.value.q.get("sort") ?? "step", up = route.value.q.get("order") === "up", c = list?.choices ?? {};
  const order = (key: string) => set({ sort: key, order: sort === key ? (up ? undefined : "up") : key === "reward" || key === "task" || key === "stop" ? "up" : undefined });
  const active = [...new Set(route.value.q.keys())].filter((k) => !["run", "with", "step", "sort", "order"].includes(k) && route.value.q.get(k));
  return <>
    {chosen.value.length > 1 && <p class="note">Trajectories of {clean(run ?? "")}</p>}
    <form class={`bar filters ${unfolded || active.length ? "open" : ""}`} role="search" aria-label="filters" onSubmit={(e) => e.preventDefault()}>
      <button type="button" id="unfold" class="always narrow" aria-expanded={unfolded} onClick={() => setUnfolded(!unfolded)}>Filters</button>
      <Field name="text" label="Text" hint="anywhere in it" />
      <Choice name="phase" label="Phase" values={c.phase ?? []} />
      <Field name="from" label="Step from" type="number" /><Field name="to" label="to" type="number" />
      <label class="check"><input type="checkbox" id="f-here" checked={route.value.q.get("here") === "1"} onChange={(e) => set({ here: e.currentTarget.checked ? 1 : undefined })} /> only the slider’s step</label>
      <Field name="min" label="Reward from" type="number" /><Field name="max" label="to" type="number" />
      <Field name="task" label="Task" hint="id" />
      <Choice name="tool" label="Tool" values={c.tool ?? []} /><label>Calls <select id="f-failed_call" value={route.value.q.get("failed_call") ?? ""} onChange={(e) => set({ failed_call: e.currentTarget.value })}>{[["", "any"], ["1", "one failed"], ["0", "none failed"]].map(([v, name]) => <option key={v} value={v} selected={v === (route.value.q.get("failed_call") ?? "")}>{name}</option>)}</select></label>
      <Choice name="cause" label="Call failed by" values={c.cause ?? []} />
      <Choice name="stop" label="Stop reason" values={c.stop ?? []} /><Choice name="origin" label="Error from" values={c.origin ?? []} />
      {route.value.q.get("ended") === "1" && <label class="check"><input type="checkbox" id="f-ended" checked onChange={() => set({ ended: undefined })} /> ended just so, the failed call being its first</label>}
      <Field name="stale" label="Staleness at least" type="number" />
      <button type="button" id="lowest" class="always" onClick={() => set({ sort: "reward", order: "up" })}>Lowest reward first</button>
      {active.length > 0 && <button type="button" onClick={() => set(Object.fromEntries(active.map((k) => [k, undefined])))}>Clear filters</button>}
    </form>
    <p class="note" role="status" id="found">{error ? error : list ? <><b>{list.total}</b> of {counted(list.state.trajectories, "trajectory", "trajectories")}{list.mean !== undefined && <>, mean reward <b>{number(list.mean)}</b></>}
      {state && !state.loaded && ", reading more"}{state && state.unread > 0 && `; the text of ${state.unread} is not searched`}{state && state.damaged > 0 && `; ${state.damaged} are damaged`}</> : "reading"}</p>
    <div class="list" ref={box} id="list" tabIndex={0} role="region" aria-label="trajectories; arrow keys move between them" onScroll={(e) => { setTop(e.currentTarget.scrollTop); if (asked.current === key) { place.key = key; place.top = e.currentTarget.scrollTop; } }} onKeyDown={move} onFocusIn={(e) => (held.current = e.target as Element)}>
      <table aria-rowcount={(list?.total ?? 0) + 1}>
        <thead><tr>{columns.map((c) => <th key={c.key} scope="col" class={`${c.left ? "left" : ""} ${c.wide ? "wide" : ""} col-${c.key}`} aria-sort={sort === c.key ? (up ? "ascending" : "descending") : undefined}>
          {c.sort ? <button type="button" onClick={() => order(c.key)}>{c.name}{sort === c.key ? (up ? " ↑" : " ↓") : ""}</button> : c.name}</th>)}</tr></thead>
        <tbody>
          {first > 0 && <tr class="gap" aria-hidden="true" style={{ height: first * height + "px" }}><td /></tr>}
          {rows.slice(first, last).map((e, i) => <tr key={e.id} data-row={first + i} data-id={e.id} aria-rowindex={first + i + 2} class={e.origin ? "bad" : ""} onClick={(x) => { if (!(x.target as HTMLElement).closest("a") && !getSelection()?.toString()) go("trajectory", { ...keep(), id: e.id }); }}>
            {columns.map((c) => <td key={c.key} class={`${c.left ? "left" : ""} ${c.wide ? "wide" : ""} col-${c.key}`}>
              {c.key === "id" ? <a href={href("trajectory", { id: e.id })}>{clean(e.id)}</a> : clean(c.of(e))}</td>)}</tr>)}
          {last < rows.length && <tr class="gap" aria-hidden="true" style={{ height: (rows.length - last) * height + "px" }}><td /></tr>}
        </tbody>
      </table>
      {list && !list.total && <p class="note">{active.length ? "Nothing fits these filters. Clear some of them above." : state && state.trajectories === 0 ? "No trajectory has ended yet. They appear here as they end." : "Nothing fits these filters."}</p>}
    </div>
  </>;
}
