// Now: what the run does, what it waits for and for whom, how busy its engine is, and what its pools lend.
import { useEffect, useState } from "preact/hooks";
import { get, href, post } from "./api";
import { clean, number, seconds } from "./text";
import { chosen } from "./shell";

type Wait = { part: string; count: number; oldest: string; seconds: number };
type Pool = { name: string; size: number; in_use: number; ready: number; starting: number; waiting: number; broken: boolean; failed: number; replaced: number; p50: number; p99: number; queue: string[] };
type Load = { server: string; running: number; slots: number; waiting: number; down?: string };
type Groups = { sampling: number; ended: number; training: number; batch: number; most: number; behind: number; staleness: number };
type State = {
  state: "running" | "silent" | "ended" | "unknown"; host?: string; pid?: number; age: number; up: number; doing?: string; for: number; ended?: string; error?: string; problem?: string;
  waits: Wait[]; engine: Load[]; pools: Pool[]; groups?: Groups; numbers: Record<string, number>; control: boolean;
};

// What a run can be asked for, with what that does. It looks between two steps.
const actions: [string, string, string][] = [
  ["pause", "Pause", "Before its next step the run waits until it is to resume."],
  ["resume", "Resume", "The run goes on after a pause."],
  ["checkpoint", "Checkpoint now", "When the step is done, the run saves a checkpoint and goes on."],
  ["stop", "Stop after this step", "When the step is done, the run saves itself and ends; agentfly train JOB --resume goes on with it."],
];

function Controls({ run }: { run: string }) {
  const [said, say] = useState("");
  const ask = async (action: string, name: string) => {
    if (action === "stop" && !confirm(`Stop ${clean(run)} after this step? It saves itself, and can be resumed.`)) return;
    say(`${name}: asking`);
    try { await post("control", { run, do: action }); say(`${name}: asked for; the run looks between two steps.`); }
    catch (e) { say(`${name}: ${e instanceof Error ? e.message : e}`); }
  };
  return <section class="card" aria-labelledby="c"><h3 id="c">Control</h3>
    <p class="bar">{actions.map(([action, name, means]) => <button key={action} type="button" id={`ask-${action}`} title={means} onClick={() => ask(action, name)}>{name}</button>)}</p>
    <p class="note" id="asked" role="status">{clean(said)}</p></section>;
}

// useNow asks every four seconds while the page can be seen: more often would take time from a run on the same machine.
function useNow(): [State | undefined, string] {
  const run = chosen.value[0], [v, setV] = useState<State>(), [error, setError] = useState("");
  useEffect(() => {
    if (!run) return;
    let late = 0, over = false;
    const stop = new AbortController();
    const ask = async () => {
      if (!document.hidden) {
        try { const n = await get<State>("now", { run }, stop.signal); if (over) return; setV(n); setError(""); }
        catch (e) { if (over) return; setError(e instanceof TypeError ? `The server of this page does not answer: ${e.message}` : e instanceof Error ? e.message : String(e)); }
      }
      late = window.setTimeout(ask, 4000);
    };
    setV(undefined);
    setError("");
    ask();
    return () => { over = true; stop.abort(); clearTimeout(late); };
  }, [run]);
  return [v, error];
}

export function Now() {
  const [n, error] = useNow();
  if (error) return <p class="alert" role="alert">{error}</p>;
  if (!n) return <p class="note" role="status">reading</p>;
  const where = `process ${n.pid} on ${clean(n.host ?? "")}`;
  return <>
    <h2>Now</h2>
    {n.state === "unknown" && <p class="note" id="standing">{clean(n.problem ?? "")}</p>}
    {n.state === "ended" && <p class={n.ended === "failed" ? "alert" : "note"} id="standing">The run is over: {clean(n.ended ?? "")}, {seconds(n.age)} ago, after {seconds(n.up)}.{n.error && ` ${clean(n.error)}`}</p>}
    {n.state === "silent" && <p class="alert" id="standing" role="alert">The run does not go on: its {where} wrote nothing for {seconds(n.age)} and did not say that it ended. It was killed, or hangs. What stands below is what it wrote last.</p>}
    {n.state === "running" && <p class="note" id="standing">Running: {where}, for {seconds(n.up)}, told {seconds(n.age)} ago.</p>}
    <div class="stack">
    {n.control && <Controls run={chosen.value[0]} />}
    {(n.state === "running" || n.state === "silent") && <>
      <dl class="tiles"><div><dt>does</dt><dd id="doing">{clean(n.doing || "opening the run")}</dd></div><div><dt>for</dt><dd>{seconds(n.for)}</dd></div></dl>
      <section class="card" aria-labelledby="w"><h3 id="w">It waits for</h3>
        {!n.waits.length ? <p class="none">Nothing outside its own process.</p> : <div class="scroll" tabIndex={0} role="region" aria-label="waits"><table id="waits"><thead><tr><th scope="col" class="left">part</th><th scope="col">waits</th><th scope="col">longest</th><th scope="col" class="left">of</th></tr></thead>
          <tbody>{n.waits.map((w) => <tr key={w.part}><td class="left">{clean(w.part)}</td><td>{w.count}</td><td>{seconds(w.seconds)}</td><td class="left">{clean(w.oldest)}</td></tr>)}</tbody></table></div>}</section>
      {n.groups && <section class="card" aria-labelledby="q"><h3 id="q">Groups of training tasks</h3>
        <dl class="tiles" id="groups"><div><dt>being sampled</dt><dd>{n.groups.sampling}</dd></div><div><dt>wait for their update</dt><dd>{n.groups.ended}</dd></div><div><dt>in the update</dt><dd>{n.groups.training}</dd></div>
          <div><dt>policy versions behind</dt><dd>{n.groups.behind}</dd></div></dl>
        <p class="note">An update takes {n.groups.batch}. At most {n.groups.most} are outstanding at once, and none is trained that is more than {n.groups.staleness} policy versions behind.</p></section>}
      {n.engine.length > 0 && <section class="card" aria-labelledby="g"><h3 id="g">Engine</h3>
        <div class="scroll" tabIndex={0} role="region" aria-label="slots"><table id="engine"><thead><tr><th scope="col" class="left">{n.engine.length > 1 ? "replica" : "where"}</th><th scope="col">slots in use</th><th scope="col">waiting</th><th scope="col" class="left">state</th></tr></thead>
          <tbody>{n.engine.map((l) => <tr key={l.server} class={l.down ? "bad" : ""}><td class="left">{l.server ? clean(l.server) : "in the run’s process"}</td><td>{l.running} of {l.slots}</td><td>{l.waiting}</td><td class={`left ${l.down ? "cause" : ""}`}>{l.down ? clean(l.down) : "serving"}</td></tr>)}</tbody></table></div></section>}
      {n.pools.length > 0 && <section class="card" aria-labelledby="p"><h3 id="p">Environments, sandboxes and interpreters</h3>
        <div class="scroll" tabIndex={0} role="region" aria-label="pools"><table id="pools"><thead><tr>{["pool", "in use", "ready", "starting", "waiting", "wait p50", "p99", "failed", "replaced", "next"].map((h, i) => <th key={h} scope="col" class={i === 0 || i === 9 ? "left" : ""}>{h}</th>)}</tr></thead>
          <tbody>{n.pools.map((p) => <tr key={p.name} class={p.broken ? "bad" : ""}><td class="left">{clean(p.name)}{p.broken && " (none can be made)"}</td><td>{p.in_use} of {p.size}</td><td>{p.ready}</td><td>{p.starting}</td><td>{p.waiting}</td><td>{seconds(p.p50)}</td><td>{seconds(p.p99)}</td><td>{p.failed}</td><td>{p.replaced}</td><td class="left">{p.queue.map(clean).join(", ")}</td></tr>)}</tbody></table></div></section>}
    </>}
    {Object.keys(n.numbers).length > 0 && <section class="card" aria-labelledby="e"><h3 id="e">Errors and memory of the last step</h3>
      <dl class="tiles">{Object.entries(n.numbers).sort().map(([k, v]) => <div key={k}><dt><a href={href("overview", { metric: k })}>{clean(k)}</a></dt><dd>{number(v)}</dd></div>)}</dl></section>}
    </div>
  </>;
}
