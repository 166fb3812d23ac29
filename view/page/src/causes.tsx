// Causes: what moved the reward of a step, what else changed, which tools fail and why, which tasks got worse, which tokens engine and trainer disagree about.
import { useState } from "preact/hooks";
import { get, href, news, type Query, route, set, states } from "./api";
import { useAsked } from "./asked";
import { clean, count, number, phase, seconds, words } from "./text";
import { chosen, ownStep as step } from "./shell";

type Change = { key: string; before: number | null; after: number | null; usual: number | null; times: number | null };
type Drawn = { tasks: number; known: number; mean: number | null; before: number | null };
type End = { stop: string; origin?: string; tool?: string; cause?: string; count: number; share: number; before: number; mean: number | null; was: number | null; effect: number | null };
type Ends = { steps: number; mean: number | null; before: number | null; noise: number | null; ends: End[] };
type Turned = { step: number; before: number; after: number };
type Tool = { turned?: Turned; trend: (number | null)[]; tool: string; calls: number; failed: number; causes: Record<string, number>; whys: { cause: string; text: string; calls: number }[]; seconds: number | null };
type Task = { task: string; tries: number; before: number; after: number; change: number };
type Evaluated = { phase: string; step: number };
type Worse = { compared: number; worse: number; before?: Evaluated; after?: Evaluated; tasks: Task[] };
type Difference = { trajectory: string; sample: number; at: number; id: number; text: string; engine: number; trainer: number; difference: number; times: number };

// Answer is whole when the run had been read to its end before it was asked for: until then it is of a part.
type Answer<T> = { v?: T; whole: boolean; error: string };

// useAnswer asks anew as the run goes on. What another run or another step answered is never shown in its place.
function useAnswer<T>(path: string, q: Query): Answer<T> {
  const run = chosen.value[0], now = states.value[run ?? ""], whole = now?.loaded ?? false, key = JSON.stringify([run, path, q]), [got, setGot] = useState<Answer<T> & { key: string }>();
  useAsked(key, `${news(run ?? "")}/${whole}`, async (stop) => {
    if (run) await get<T>(path, { run, ...q }, stop).then((v) => setGot({ key, v, whole, error: "" })).catch((e) => { if (e.name !== "AbortError") setGot({ key, whole, error: e.message }); });
  });
  return got?.key === key ? got : { whole, error: "" };
}

export function Causes() {
  const run = chosen.value[0] ?? "", all = states.value[run]?.steps ?? 0, at = (step.value > 0 ? step.value : all) - 1;
  if (!states.value[run]) return <p class="note" role="status">reading</p>;
  if (at < 0) return <p class="note">No step is finished yet.</p>;
  return <>
    <h2>Causes, step {at + 1}{chosen.value.length > 1 && ` of ${clean(run)}`}</h2>
    <p class="note">The slider above chooses another step.</p>
    <div class="causes">
      <Reward at={at} /><Tools at={at} /><Changes at={at} /><Tasks split={step.value > 0 ? at : Math.floor(all / 2)} /><Differences at={at} />
    </div></>;
}

// Reading says that a table is of what was read so far.
function Reading({ whole }: { whole: boolean }) {
  const s = states.value[chosen.value[0] ?? ""];
  return s && !whole ? <p class="none" role="status">Read {count(s.trajectories, "trajectory", "trajectories")} so far; the rest follows.</p> : null;
}

const percent = (v: number | null): string => (v === null ? "–" : `${(100 * v).toFixed(0)}%`);

// signed is a change, with its sign, which is read before its size.
const signed = (v: number | null): string => (v === null ? "–" : `${v < 0 ? "−" : "+"}${number(Math.abs(v))}`);

const callOf = (tool?: string): string => (tool ? `a call of ${clean(tool)}` : "a call that could not be read");

function ended(e: End): string {
  return `${words(clean(e.stop))}${e.origin ? ` (failed: ${words(clean(e.origin))})` : ""}${e.cause ? `, ${callOf(e.tool)} failed: ${words(clean(e.cause))}` : ""}`;
}

// most is what moved the mean most in a direction: an end without a failed call, or all ends in which the same call failed, taken together.
function most(ends: End[], way: number): End | undefined {
  const by = new Map<string, End>();
  for (const x of ends) {
    if (x.effect === null) continue;
    const key = JSON.stringify(x.cause ? [x.tool, x.cause] : [x.stop]), of = by.get(key);
    by.set(key, of ? { ...of, share: of.share + x.share, before: of.before + x.before, effect: of.effect! + x.effect } : x);
  }
  return [...by.values()].filter((x) => x.effect! * way > 0).sort((a, b) => way * (b.effect! - a.effect!))[0];
}

// spans are how many steps before a step it can be held against. More of them are surer, but while a policy learns fast their mean lies behind.
const spans = [1, 5, 20], usualSpan = 5;

// Reward says what moved the mean reward of a step: whether its tasks were harder, and how its trajectories ended.
function Reward({ at }: { at: number }) {
  const asked = Number(route.value.q.get("span")), span = spans.includes(asked) ? asked : usualSpan;
  const { v, whole, error } = useAnswer<{ ends: Ends; drawn: Drawn }>("step", { step: at, span }), e = v?.ends, d = v?.drawn, change = e && e.mean !== null && e.before !== null ? e.mean - e.before : null;
  const chance = !!e && change !== null && Math.abs(change) < 2 * (e.noise ?? 0), first = e && change !== null && !chance ? most(e.ends, Math.sign(change)) : undefined, steps = e && (e.steps === 1 ? "the step" : `the ${e.steps} steps`);
  const short = d && e && d.before !== null && e.before !== null && change !== null && 2 * d.known >= d.tasks ? (e.before - d.before) / -change : NaN; // what part of the change its tasks had before too
  const harder = short >= 0.5 ? true : short <= 0.25 ? false : undefined;
  return <section class="card whole" aria-labelledby="why"><h3 id="why">Why the reward moved at step {at + 1}</h3>
    <div class="bar"><label>Held against <select id="span" value={String(span)} onChange={(x) => set({ span: x.currentTarget.value })}>{spans.map((n) => <option key={n} value={String(n)} selected={n === span}>{n === 1 ? "the step before" : `the ${n} steps before`}</option>)}</select></label></div><Reading whole={whole} />
    {error && <p class="alert">{error}</p>}
    {e && whole && (change === null ? <p class="none">{e.steps === 0 ? "There is no step before it that sampled trajectories." : "None of its trajectories earned a reward that counts."}</p> : <>
      <p id="moved">Its trajectories earned <b>{number(e.mean)}</b> in the mean, {Math.abs(change) < 5e-5 ? "as much as those of" : <><b class={change < 0 ? "down" : "answer"}>{number(Math.abs(change))} {change < 0 ? "less" : "more"}</b> than those of</>} {steps} before, which earned {number(e.before)}.
        {chance && Math.abs(change) >= 5e-5 && <> Chance does as much: two standard errors of the difference are {number(2 * e.noise!)}.</>}
        {first && Math.abs(change) >= 5e-5 && <> Most of it comes with trajectories {first.cause ? "in which" : "that ended with"} <b>{first.cause ? `${callOf(first.tool)} failed: ${words(clean(first.cause))}` : ended(first)}</b>: {percent(first.before)} of all before, {percent(first.share)} now.</>}</p>
      {d && d.known > 0 && <p id="drawn">{d.known === d.tasks ? `Its ${count(d.tasks, "task")}` : `${d.known} of its ${count(d.tasks, "task")}`} had been tried in them: they earned <b>{number(d.mean)}</b> now, <b>{number(d.before)}</b> then.{harder !== undefined && !chance && Math.abs(change) >= 5e-5 && (harder ? ` The step drew ${change < 0 ? "harder" : "easier"} tasks.` : ` So it is not that it drew ${change < 0 ? "harder" : "easier"} tasks.`)}</p>}
      <Scroll name="ends"><table id="ends"><thead><tr><th scope="col" class="left">trajectories ended with</th><th scope="col" class="wide">number</th><th scope="col">share</th><th scope="col">before</th><th scope="col" class="wide">mean reward</th><th scope="col" class="wide">before</th><th scope="col">moves the mean by</th></tr></thead>
        <tbody>{e.ends.slice(0, 20).map((x) => <tr key={ended(x)}><td class="left">{x.count ? <a href={href("trajectories", { here: 1, phase: "train", step: at + 1, stop: x.stop, origin: x.origin, tool: x.tool, cause: x.cause, ended: 1, sort: "reward", order: "up" })}>{ended(x)}</a> : ended(x)}</td>
          <td class="wide">{x.count}</td><td>{percent(x.share)}</td><td>{percent(x.before)}</td><td class="wide">{x.origin ? "–" : number(x.mean)}</td><td class="wide">{x.origin ? "–" : number(x.was)}</td><td class={x.effect !== null && x.effect < 0 ? "down" : ""}>{x.origin ? "not counted" : signed(x.effect)}</td></tr>)}</tbody></table></Scroll>
      <p class="none">The last column adds up to the change: an end that earns less than the mean before moves it down where it becomes more frequent.</p></>)}
    <p><a href={href("trajectories", { here: 1, phase: "train", step: at + 1, sort: "reward", order: "up" })}>The trajectories of step {at + 1}, lowest reward first</a></p></section>;
}

function Changes({ at }: { at: number }) {
  const { v, error } = useAnswer<{ changes: Change[] }>("step", { step: at });
  const seen = v?.changes.filter((c) => number(c.before) !== number(c.after));
  return <section class="card"><h3>Metrics that changed at step {at + 1}</h3>{at > 0 && <p>Against step {at}: the rewards, then the most unusual, by how many times as large they are as the changes of the 20 steps before.</p>}
    {error ? <p class="alert">{error}</p> : v && !v.changes.length ? <p class="none">There is no step before it.</p> : <Scroll name="changes"><table id="changes"><thead><tr><th scope="col" class="left">metric</th><th scope="col">before</th><th scope="col">at the step</th><th scope="col">unusual</th></tr></thead>
      <tbody>{seen?.slice(0, 25).map((c) => <tr key={c.key}><td class="left"><a href={href("overview", { metric: c.key })}>{clean(c.key)}</a></td><td>{number(c.before)}</td><td>{number(c.after)}</td><td>{c.times == null ? "never before" : `${c.times.toFixed(1)}×`}</td></tr>)}</tbody></table></Scroll>}</section>;
}

// Trend draws the share of failed calls over the steps, a bar for each part of them.
function Trend({ t }: { t: Tool }) {
  const wide = 3, high = 22;
  return <svg class="trend" width={t.trend.length * wide} height={high} role="img" aria-label={`failed calls of ${clean(t.tool)} over the steps of training, from ${percent(t.trend.find((v) => v !== null) ?? null)} to ${percent(t.trend.findLast((v) => v !== null) ?? null)}`}>
    <rect class="floor" x="0" y={high - 1} width={t.trend.length * wide} height="1" />
    {t.trend.map((v, i) => v !== null && v > 0 && <rect key={i} x={i * wide} y={(high - 1) * (1 - v)} width={wide - 1} height={Math.max(1, (high - 1) * v)}><title>{percent(v)}</title></rect>)}</svg>;
}

function Tools({ at }: { at: number }) {
  const all = step.value <= 0, { v, whole, error } = useAnswer<{ tools: Tool[] }>("tools", all ? {} : { from: at, to: at + 1, phase: "train" });
  const link = (t: Tool, cause: string) => href("trajectories", { tool: t.tool, cause, ...(all ? {} : { here: 1, phase: "train" }) });
  return <section class="card whole"><h3>Tools: which fail, and why</h3><p>{all ? "Calls of all trajectories." : `Calls of the trajectories that were sampled for step ${at + 1}.`} A cause leads to its trajectories.</p><Reading whole={whole} />
    {error ? <p class="alert">{error}</p> : v && !v.tools.length ? whole && <p class="none">No tool was called.</p> : <Scroll name="tools"><table id="tools"><thead><tr><th scope="col" class="left">tool</th><th scope="col">calls</th><th scope="col">failed</th><th scope="col" class="left wide">over the run</th><th scope="col" class="wide">mean time</th><th scope="col" class="left">causes, and what failed calls said most</th></tr></thead>
      <tbody>{v?.tools.slice(0, 50).map((t) => <tr key={t.tool}><td class="left">{clean(t.tool) || "calls that could not be read"}</td><td>{t.calls}</td><td>{t.failed} ({((100 * t.failed) / t.calls).toFixed(0)}%)</td><td class="left wide">{t.failed > 0 || t.turned ? <Trend t={t} /> : ""}</td><td class="wide">{seconds(t.seconds)}</td>
        <td class="left">{t.turned && <p class="turned">Since <a href={href("causes", { step: t.turned.step + 1 })}>step {t.turned.step + 1}</a> {percent(t.turned.after)} of its calls fail, before it {percent(t.turned.before)}.</p>}
          {Object.entries(t.causes).sort((a, b) => b[1] - a[1]).map(([c, n]) => <span key={c}><a href={link(t, c)}>{words(clean(c))} {n}</a> </span>)}
          {t.whys.length > 0 && <ul class="whys">{t.whys.map((w) => <li key={w.cause + w.text}>{w.calls}×: {clean(w.text)}</li>)}</ul>}</td></tr>)}</tbody></table></Scroll>}</section>;
}

// evaluation is what an evaluation is called; one after training with its step, because a run that goes on has several.
const evaluation = (e: Evaluated): string => phase(e.phase) + (e.phase === "eval-after" ? ` (step ${e.step})` : "");

function Tasks({ split }: { split: number }) {
  const { v, whole, error } = useAnswer<{ trained: Worse; held_out: Worse }>("tasks", { split });
  return <section class="card"><h3>Tasks that got worse</h3><Reading whole={whole} />
    {error && <p class="alert">{error}</p>}
    {v && whole && <>
      {v.held_out.before && <><p>Held-out tasks, {evaluation(v.held_out.before)} against {evaluation(v.held_out.after!)}: {v.held_out.worse === 0 ? `none of ${v.held_out.compared} got worse.` : `${v.held_out.worse} of ${v.held_out.compared} got worse, the largest loss first.`}</p><Losses name="held-out" tasks={v.held_out.tasks} /></>}
      <p>Tasks of training, mean reward in the steps before {split + 1} against those from it on: {v.trained.compared === 0 ? "none was sampled both before and after." : v.trained.worse === 0 ? `none of ${v.trained.compared} got worse.` : `${v.trained.worse} of ${v.trained.compared} got worse, the largest loss first.`} Failed trajectories are left out.</p>
      <Losses name="tasks" tasks={v.trained.tasks} /></>}</section>;
}

function Losses({ name, tasks }: { name: string; tasks: Task[] }) {
  if (!tasks.length) return null;
  return <Scroll name={name}><table id={name}><thead><tr><th scope="col" class="left">task</th><th scope="col">tries</th><th scope="col">before</th><th scope="col">after</th><th scope="col">change</th></tr></thead>
    <tbody>{tasks.slice(0, 50).map((t) => <tr key={t.task}><td class="left"><a href={href("trajectories", { task: t.task, sort: "step" })}>{clean(t.task)}</a></td><td>{t.tries}</td><td>{number(t.before)}</td><td>{number(t.after)}</td><td class="down">{number(t.change)}</td></tr>)}</tbody></table></Scroll>;
}

function Differences({ at }: { at: number }) {
  const { v, whole, error } = useAnswer<{ trajectories: number; tokens: number; recorded: number; differences: Difference[] }>("differences", { step: at }), largest = Math.abs(v?.differences[0]?.difference ?? 0);
  return <section class="card"><h3>Engine against trainer, by token</h3><p>Tokens trained at step {at + 1} whose two logprobs are furthest apart{v && `, of ${v.tokens} in ${count(v.trajectories, "trajectory", "trajectories")}`}. Equal ones are one line.{largest > 0 && largest < 1e-5 && <b> All of them are below 0.00001 nats: rounding, nothing to look for.</b>}</p><Reading whole={whole} />
    {error ? <p class="alert">{error}</p> : v && !v.differences.length ? whole && <p class="none">{v.recorded > 0 && v.trajectories === 0 ? "What was trained at this step is recorded: no engine sampled its tokens, so there is nothing to compare." : "None differ, or nothing was trained at this step."}</p> : <Scroll name="differences"><table id="differences"><thead><tr><th scope="col" class="left">token</th><th scope="col">times</th><th scope="col">engine</th><th scope="col">trainer</th><th scope="col">difference</th><th scope="col" class="left">in</th></tr></thead>
      <tbody>{v?.differences.map((d) => <tr key={`${d.trajectory}/${d.sample}/${d.at}`}><td class="left"><code>{clean(d.text).replace(/\n/g, "↵").replace(/ /g, "␣")}</code></td><td>{d.times}</td><td>{number(d.engine)}</td><td>{number(d.trainer)}</td><td>{number(d.difference)}</td>
        <td class="left"><a href={href("trajectory", { id: d.trajectory, sample: d.sample || undefined, token: d.at, show: "tokens", colour: "difference" })}>{clean(d.trajectory)}</a></td></tr>)}</tbody></table></Scroll>}</section>;
}

const Scroll = ({ name, children }: { name: string; children: preact.ComponentChildren }) => <div class="scroll" tabIndex={0} role="region" aria-label={name}>{children}</div>;
