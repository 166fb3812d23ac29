// Causes: what changed at a step, which tools fail and why, which tasks got worse, which tokens engine and trainer disagree about.
import { useEffect, useState } from "preact/hooks";
import { get, href, type Query, states } from "./api";
import { clean, number, seconds, words } from "./text";
import { chosen, step } from "./shell";

type Change = { key: string; before: number | null; after: number | null; usual: number | null; times: number | null };
type Tool = { tool: string; calls: number; failed: number; causes: Record<string, number>; seconds: number | null };
type Task = { task: string; tries: number; before: number; after: number; change: number };
type Difference = { trajectory: string; sample: number; at: number; id: number; text: string; engine: number; trainer: number; difference: number };

function useAnswer<T>(path: string, q: Query): T | undefined {
  const run = chosen.value[0], [v, setV] = useState<T>(), now = states.value[run ?? ""], key = JSON.stringify([run, path, q]);
  useEffect(() => {
    if (!run) return;
    const stop = new AbortController();
    get<T>(path, { run, ...q }, stop.signal).then(setV).catch(() => {});
    return () => stop.abort();
  }, [key, now?.steps, now?.loaded]);
  return v;
}

// Number of the step that is looked at, from 0: the slider's, or the last one.
function here(): number {
  const last = (states.value[chosen.value[0] ?? ""]?.steps ?? 1) - 1;
  return step.value > 0 ? step.value - 1 : last;
}

export function Causes() {
  const at = here(), all = states.value[chosen.value[0] ?? ""]?.steps ?? 0, split = step.value > 0 ? at : Math.floor(all / 2);
  return <>
    <h2>Causes, step {at + 1}</h2>
    <p class="note">The slider above chooses another step.</p>
    <div class="causes">
      <Changes at={at} /><Tools at={at} /><Tasks split={split} /><Differences at={at} />
    </div></>;
}

function Changes({ at }: { at: number }) {
  const v = useAnswer<{ changes: Change[] }>("step", { step: at });
  return <section class="card"><h3>What changed at step {at + 1}</h3><p>Against step {at}, the most unusual first: how many times as large as the changes of the 20 steps before.</p>
    {v && !v.changes.length ? <p class="none">There is no step before it.</p> : <Scroll name="changes"><table><thead><tr><th scope="col" class="left">metric</th><th scope="col">before</th><th scope="col">at the step</th><th scope="col">unusual</th></tr></thead>
      <tbody>{v?.changes.filter((c) => c.before !== c.after).slice(0, 25).map((c) => <tr key={c.key}><td class="left"><a href={href("overview", { metric: c.key })}>{clean(c.key)}</a></td><td>{number(c.before)}</td><td>{number(c.after)}</td><td>{c.times == null ? "never before" : `${c.times.toFixed(1)}×`}</td></tr>)}</tbody></table></Scroll>}
    <p><a href={href("trajectories", { here: 1, step: at + 1, sort: "reward", order: "up" })}>The trajectories of step {at + 1}, lowest reward first</a></p></section>;
}

function Tools({ at }: { at: number }) {
  const whole = step.value <= 0, v = useAnswer<{ tools: Tool[] }>("tools", whole ? {} : { from: at, to: at + 1 });
  return <section class="card"><h3>Tools: which fail, and why</h3><p>{whole ? "Calls of all trajectories." : `Calls of the trajectories of step ${at + 1}.`} A cause leads to its trajectories.</p>
    {v && !v.tools.length ? <p class="none">No tool was called.</p> : <Scroll name="tools"><table id="tools"><thead><tr><th scope="col" class="left">tool</th><th scope="col">calls</th><th scope="col">failed</th><th scope="col">mean time</th><th scope="col" class="left">causes</th></tr></thead>
      <tbody>{v?.tools.slice(0, 50).map((t) => <tr key={t.tool}><td class="left">{clean(t.tool) || "(no name)"}</td><td>{t.calls}</td><td>{t.failed} ({((100 * t.failed) / t.calls).toFixed(0)}%)</td><td>{seconds(t.seconds)}</td>
        <td class="left">{Object.entries(t.causes).sort((a, b) => b[1] - a[1]).map(([c, n]) => <span key={c}><a href={href("trajectories", { tool: t.tool, cause: c, here: whole ? undefined : 1 })}>{words(clean(c))} {n}</a> </span>)}</td></tr>)}</tbody></table></Scroll>}</section>;
}

function Tasks({ split }: { split: number }) {
  const v = useAnswer<{ tasks: Task[]; total: number }>("tasks", { split });
  return <section class="card"><h3>Tasks that got worse</h3><p>Mean reward in the steps before {split + 1}, and from it on; the largest loss first. Failed trajectories are left out.</p>
    {v && !v.tasks.length ? <p class="none">No task was sampled both before and after.</p> : <Scroll name="tasks"><table id="tasks"><thead><tr><th scope="col" class="left">task</th><th scope="col">tries</th><th scope="col">before</th><th scope="col">after</th><th scope="col">change</th></tr></thead>
      <tbody>{v?.tasks.slice(0, 50).map((t) => <tr key={t.task}><td class="left"><a href={href("trajectories", { task: t.task, sort: "step" })}>{clean(t.task)}</a></td><td>{t.tries}</td><td>{number(t.before)}</td><td>{number(t.after)}</td><td class={t.change < 0 ? "down" : ""}>{t.change > 0 ? "+" : ""}{number(t.change)}</td></tr>)}</tbody></table></Scroll>}</section>;
}

function Differences({ at }: { at: number }) {
  const v = useAnswer<{ trajectories: number; tokens: number; differences: Difference[] }>("differences", { step: at });
  return <section class="card"><h3>Engine against trainer, by token</h3><p>Tokens trained at step {at + 1} whose two logprobs are furthest apart{v && `, of ${v.tokens} in ${v.trajectories} trajectories`}.</p>
    {v && !v.differences.length ? <p class="none">None differ, or nothing was trained at this step.</p> : <Scroll name="differences"><table id="differences"><thead><tr><th scope="col" class="left">token</th><th scope="col">engine</th><th scope="col">trainer</th><th scope="col">difference</th><th scope="col" class="left">in</th></tr></thead>
      <tbody>{v?.differences.map((d) => <tr key={`${d.trajectory}/${d.sample}/${d.at}`}><td class="left"><code>{clean(d.text).replace(/\n/g, "↵").replace(/ /g, "␣")}</code></td><td>{number(d.engine)}</td><td>{number(d.trainer)}</td><td>{number(d.difference)}</td>
        <td class="left"><a href={href("trajectory", { id: d.trajectory, sample: d.sample || undefined, token: d.at, show: "tokens", colour: "difference" })}>{clean(d.trajectory)}</a></td></tr>)}</tbody></table></Scroll>}</section>;
}

const Scroll = ({ name, children }: { name: string; children: preact.ComponentChildren }) => <div class="scroll" tabIndex={0} role="region" aria-label={name}>{children}</div>;
