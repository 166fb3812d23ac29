// One trajectory: what it was paid, the conversation, the tokens, its group.
import { useRef, useState } from "preact/hooks";
import { type Call, get, href, listed, type Message, news, type Part, type Query, Refused, route, set, states, type Trajectory, type Turn } from "./api";
import { clean, count, number, sampledFor, seconds, words } from "./text";
import { chosen } from "./shell";
import { useAsked } from "./asked";
import { Graph, Tree } from "./branches";
import { Tokens } from "./tokens";

// Got is a trajectory that was asked for, while the run had so many evaluations, first at a revision. What is settled can no longer change, unless the
// run makes its steps again or evaluates once more.
type Got = { key: string; t?: Trajectory; error: string; settled: boolean; evaluations?: number; revision?: number };

// useTrajectory loads a trajectory. One that is followed is asked for again as the run goes on, while its group may grow: until the step is stored that
// trained it, it is known that none will, or its evaluation has ended. Another evaluation may try the same task, so that a settled one is asked for
// again then. The server may hear of an evaluation before it reads the last of its trajectories: an answer settles when the run has changed since the
// first one with as many evaluations.
function useTrajectory(id: string, followed = false): [Trajectory | undefined, string] {
  const run = chosen.value[0], state = states.value[run ?? ""], key = JSON.stringify([run, id]), [all, setGot] = useState<Got>(), seen = useRef("");
  const got = all?.key === key ? all : undefined;
  if (!got?.settled) seen.current = `${news(run ?? "")}/${state?.loaded && state.trajectories}`; // its group is known when all trajectories are read
  useAsked(key, `${state?.edition}/${followed && state?.evaluations}/${seen.current}`, async (stop) => {
    if (!run || !id) return;
    try {
      const t = await get<Trajectory>("trajectory", { run, id }, stop);
      const evaluations = state?.evaluations, known = got !== undefined && got.evaluations === evaluations, revision = known ? got.revision : state?.revision, phase = t.entry.phase, learned = phase === "train" || phase === "sft";
      const over = phase.startsWith("eval-") ? t.ended : !learned || t.entry.dropped || t.entry.trained >= 0 && (state?.steps ?? 0) > t.entry.trained;
      const settled = !followed || !!state?.loaded && over && known && state.revision !== revision;
      setGot({ key, t, error: "", settled, evaluations, revision });
    } catch (e) {
      if (stop.aborted) return;
      const gone = e instanceof Refused && e.status === 404; // any other failure keeps what is shown
      setGot(got?.t && !gone ? { ...got, settled: false } : { key, error: (e as Error).message, settled: false });
    }
  });
  return [got?.t, got?.error ?? ""];
}

// where is what a trajectory was sampled for, in a sentence.
const where = (e: { phase: string; step: number }): string => `${e.phase.startsWith("eval-") ? "" : "step "}${clean(sampledFor(e))}`;

// to is the address of a trajectory, or of a sample or a token of it, with the colour and the view of this one.
const to = (id: string, q: Query = {}): string => href("trajectory", { id, colour: route.value.q.get("colour") ?? undefined, show: route.value.q.get("show") ?? undefined, ...q });

// mostBeside is how many trajectories of a group stand side by side.
const mostBeside = 16;

export function One() {
  const q = route.value.q, id = q.get("id") ?? "", [t, error] = useTrajectory(id, true), show = q.get("show") ?? "both", k = Number(q.get("sample") ?? 0);
  if (error) return <p class="note" role="alert">{error} <a href={href("trajectories")}>All trajectories of this run</a></p>;
  if (!t || t.entry.id !== id) return <p class="note" role="status">reading</p>;
  const e = t.entry, s = t.samples[k] ?? t.samples[0], beside = q.get("beside") === "1", against = q.get("against") ?? "";
  const others = t.tries.filter((o) => o.phase !== e.phase || o.step !== e.step || o.group !== e.group);
  const from = Math.max(0, Math.min(t.siblings.findIndex((o) => o.id === e.id) - mostBeside / 2, t.siblings.length - mostBeside)), group = t.siblings.slice(from, from + mostBeside);
  return <>
    {Object.keys(listed.value).length > 0 && <p class="note"><a id="back" href={href("trajectories", listed.value)}>Back to the list</a></p>}
    <h2 id="title">{clean(e.id)}</h2>
    <dl class="tiles">
      <div><dt>reward</dt><dd id="reward">{e.origin ? "–" : number(e.reward)}</dd></div>
      <div><dt>stop reason</dt><dd>{words(e.stop)}</dd></div>
      <div><dt>step</dt><dd>{sampledFor(e)}{e.trained >= 0 && e.trained !== e.step ? `, trained at ${e.trained + 1}` : ""}</dd></div>
      <div><dt>staleness</dt><dd>{e.trained < 0 ? "not trained" : e.staleness < 0 ? "–" : e.staleness}</dd></div>
      <div><dt>turns</dt><dd>{e.turns}</dd></div>
      <div><dt>tokens sampled</dt><dd>{e.tokens}</dd></div>
      <div><dt>tool calls</dt><dd>{e.calls}{e.failed_calls > 0 && `, ${e.failed_calls} failed`}</dd></div>
      <div><dt>time</dt><dd>{seconds(e.seconds)}</dd></div>
    </dl>
    {t.error && <p class="alert" role="alert"><b>It failed ({words(e.origin ?? "")}, {t.failure}):</b> {clean(t.error)}</p>}
    <Parts t={t} />
    <nav class="bar" aria-label="group">
      <span>Group of task <a href={href("trajectories", { task: e.task, phase: e.phase })}>{clean(e.task)}</a>:</span>
      <ul class="group">{t.siblings.map((o) => <li key={o.id}><a href={to(o.id)} aria-current={o.id === e.id ? "page" : undefined}
        title={o.id}>{o.index}{o.branch && `.${o.branch}`}: {o.origin ? "failed" : number(o.reward)}</a></li>)}</ul>
      {t.siblings.length > 1 && <label class="check"><input type="checkbox" id="beside" checked={beside} onChange={(x) => set({ beside: x.currentTarget.checked ? 1 : undefined, against: undefined })} /> side by side</label>}
      {others.length > 0 && <label>Beside the task at <select id="against" value={against} onChange={(x) => set({ against: x.currentTarget.value, beside: undefined })}>
        <option value="" selected={!against}>no other step</option>{others.map((o) => <option key={o.first} value={o.first} selected={o.first === against}>
          {where(o)}: reward {number(o.mean)}{o.tries > 1 && `, ${o.tries} tries`}</option>)}</select></label>}
      <label>Show <select id="show" value={show} onChange={(x) => set({ show: x.currentTarget.value })}>{["both", "conversation", "tokens"].map((v) => <option key={v} value={v} selected={v === show}>{v}</option>)}</select></label>
    </nav>
    {!against && <Tree t={t} link={to} />}
    {!beside && !against && <Graph t={t} sample={t.samples[k] ? k : 0} link={to} />}
    {against ? <Against t={t} id={against} />
      : beside ? <>{group.length < t.siblings.length && <p class="note" id="part">{group.length} of the {t.siblings.length} trajectories of the group stand here, those around {clean(e.id)}.</p>}
        <div class="beside" tabIndex={0} role="region" aria-label="the group side by side">{group.map((o) => <Sibling key={o.id} id={o.id} />)}</div></> : <div class={show === "both" ? "both" : ""}>
      {show !== "tokens" && <section aria-labelledby="said"><h3 id="said">Conversation</h3><Conversation t={t} /></section>}
      {show !== "conversation" && s && <section aria-labelledby="toks"><h3 id="toks">Tokens</h3>
        {t.samples.length > 1 && <div class="bar"><label>Sample <select id="sample" value={String(k)} onChange={(x) => set({ sample: x.currentTarget.value, token: undefined })}>
          {t.samples.map((x, i) => <option key={i} value={String(i)} selected={i === k}>{i}{x.role ? ` (${clean(x.role)})` : ""}, {x.ids.length} tokens</option>)}</select></label><span class="means">A turn whose prompt does not go on from the tokens before it begins a sample of its own.</span></div>}
        <Tokens s={s} name={e.id} /></section>}
    </div>}
  </>;
}

// Against shows a trajectory beside one of the same task at another step, and marks what differs.
function Against({ t, id }: { t: Trajectory; id: string }) {
  const [o, error] = useTrajectory(id);
  const turn = o ? Array.from({ length: Math.max(t.turns.length, o.turns.length) }, (_, i) => i).find((i) => !alike(t.turns[i], o.turns[i])) : undefined;
  return <>{o && <p class="note" id="differs" role="status">{turn === undefined ? "Their turns are the same." : `They differ from turn ${turn + 1} on. What differs is marked.`}</p>}
    <div class="beside" tabIndex={0} role="region" aria-label="the task at two steps"><Column id={t.entry.id} t={t} other={o} error="" /><Column id={id} t={o} other={t} error={error} /></div></>;
}

// alike tells whether two turns say and hear the same.
function alike(a?: Turn, b?: Turn): boolean {
  return !!a && !!b && a.completion === b.completion && a.calls.length === b.calls.length && a.calls.every((c, i) => c.tool === b.calls[i].tool && c.observation === b.calls[i].observation && c.cause === b.calls[i].cause);
}

function Sibling({ id }: { id: string }) {
  const [t, error] = useTrajectory(id);
  return <Column id={id} t={t} error={error} />;
}

function Column({ id, t, other, error }: { id: string; t?: Trajectory; other?: Trajectory; error: string }) {
  return <article aria-label={id}><h3><a href={to(id)}>{clean(id)}</a></h3>
    {error && <p class="note">{error}</p>}
    {t && <><p class="note">{where(t.entry)}, reward <b>{t.entry.origin ? "–" : number(t.entry.reward)}</b>, {words(t.entry.stop)}, {count(t.entry.turns, "turn")}, {count(t.entry.tokens, "token")}, tool calls {t.entry.calls}{t.entry.failed_calls > 0 && `, ${t.entry.failed_calls} failed`}</p><Parts t={t} /><Conversation t={t} other={other} short /></>}</article>;
}

// total is the sum of numbers; 0 where they cancel out but for what rounding leaves.
function total(all: number[]): number {
  const sum = all.reduce((a, b) => a + b, 0), size = all.reduce((a, b) => a + Math.abs(b), 0);
  return Math.abs(sum) < 1e-12 * size ? 0 : sum;
}

function Parts({ t }: { t: Trajectory }) {
  const parts = Object.entries(t.parts).sort(), paid = t.turns.flatMap((x) => x.reward ?? []);
  if (!parts.length && !paid.length) return null;
  return <p class="parts">Reward: {parts.map(([name, v]) => <span key={name}>{clean(name)} <b>{number(v)}</b></span>)}{paid.length > 0 && <span>of it paid for {count(paid.length, "turn")} <b>{number(total(paid))}</b></span>}</p>;
}

function Bubble({ role, children, facts }: { role: string; children: preact.ComponentChildren; facts?: string }) {
  return <li class={`said ${/^(system|user|assistant|tool)$/.test(role) ? role : "other"}`}><div class="who"><b>{clean(role)}</b>{facts && <span> {facts}</span>}</div>{children}</li>;
}

// Text is what was said; with another text it marks what that one does not have, between what both begin and end with, by words.
function Text({ text, other }: { text: string; other?: string }) {
  if (!text) return <p class="none">empty</p>;
  if (other === undefined || other === text) return <pre class="text">{clean(text)}</pre>;
  const a = text.match(/\s+|[^\s]+/g) ?? [], b = other.match(/\s+|[^\s]+/g) ?? [], most = Math.min(a.length, b.length);
  let from = 0, behind = 0;
  while (from < most && a[from] === b[from]) from++;
  while (behind < most - from && a[a.length - 1 - behind] === b[b.length - 1 - behind]) behind++;
  const to = a.length - behind;
  return <pre class="text">{clean(a.slice(0, from).join(""))}<mark>{clean(a.slice(from, to).join(""))}</mark>{clean(a.slice(to).join(""))}</pre>;
}

function Shown({ p }: { p: Part }) {
  if (p.type === "image") {
    return p.image && /^data:image\/(png|jpeg|gif|webp);base64,/.test(p.image) ? <img src={p.image} alt="image of the message" /> : <p class="none">an image at another address: {clean(p.image ?? "")}</p>;
  }
  return <Text text={p.text ?? ""} />;
}

function Said({ m }: { m: Message }) {
  return <Bubble role={m.role} facts={m.role === "prompt" ? "the tokens that the first turn was given" : undefined}>{m.thought && <details><summary>reasoning</summary><Text text={m.thought} /></details>}{m.parts?.map((p, i) => <Shown key={i} p={p} />)}{m.calls?.map((c, i) => <p class="call" key={i}>{clean(c.tool)}<code>{clean(c.arguments)}</code></p>)}</Bubble>;
}

// long folds what would fill the screen.
const long = 3000;

function Observation({ c, other, short }: { c: Call; other?: Call; short?: boolean }) {
  const facts = [seconds(c.seconds), c.cached && "from the cache", c.retries && count(c.retries, "retry", "retries"), c.terminal && "ended the trajectory"].filter(Boolean).join(", ");
  const text = c.observation.length > long ? <details open={!short}><summary>{c.observation.length} characters</summary><Text text={c.observation} other={other?.observation} /></details> : <Text text={c.observation} other={other?.observation} />;
  return <Bubble role="tool" facts={`${clean(c.tool) || "a call that could not be read"}, ${facts}`}>
    <p class="call"><code>{clean(c.arguments)}</code></p>
    {c.cause && <p class="cause">failed: {words(clean(c.cause))}{c.failure && `, by the ${c.failure}`}</p>}
    {text}
    {c.outcome && <p class="outcome">environment: reward <b>{number(c.outcome.reward)}</b>{c.outcome.success && ", success"}{c.outcome.terminated && ", terminated"}{c.outcome.truncated && ", truncated"}</p>}
    {c.outcome?.state && <details><summary>state of the environment</summary><Text text={c.outcome.state} /></details>}
    {c.info && <details><summary>what the tool recorded</summary><Text text={c.info} /></details>}
  </Bubble>;
}

function Completion({ n, x, t, other }: { n: number; x: Turn; t: Trajectory; other?: Turn }) {
  const facts = [`turn ${n + 1}`, x.role && clean(x.role), count(x.end - x.start, "token"), seconds(x.engine_seconds), x.finish === "length" ? "cut by a token limit" : words(x.finish), x.cached > 0 && `${x.cached} prompt tokens cached`, x.reward != null && `paid ${number(x.reward)}`,
    x.entropy && `entropy ${number(x.entropy, 2)}`, t.samples.length > 1 && `sample ${x.sample}`, x.after !== n - 1 && (x.after < 0 ? "begins at the prompt" : `goes on from turn ${x.after + 1}`), ...(x.begun ?? []).map((b, i) => `${i ? "then " : ""}its first ${b.end} tokens sampled by ${clean(b.by)}`), x.shared && x.shared !== t.entry.id && `${x.begun ? "the rest " : ""}sampled by ${clean(x.shared)}`].filter(Boolean).join(", ");
  return <Bubble role="assistant" facts={facts}><Text text={x.completion} other={other?.completion} />
    {x.parse_errors > 0 && <p class="cause">{count(x.parse_errors, "call")} could not be read</p>}
    {x.answer !== undefined && <p class="answer">final answer: <b>{clean(x.answer)}</b></p>}</Bubble>;
}

// nothing is what a turn is held against that the other trajectory does not have.
const nothing = { completion: "", calls: [{ observation: "" }] } as unknown as Turn;

function Conversation({ t, other, short }: { t: Trajectory; other?: Trajectory; short?: boolean }) {
  const fields = Object.entries(t.task ?? {});
  return <><ol class="talk">
    {t.prompt.map((m, i) => <Said key={`p${i}`} m={m} />)}
    {t.turns.map((x, i) => [
      x.messages !== undefined && <li class="said other" key={`m${i}`}><details><summary>what the agent sent for turn {i + 1}</summary><Text text={JSON.stringify(x.messages, null, 1)} /></details></li>,
      <Completion key={`t${i}`} n={i} x={x} t={t} other={other && (other.turns[i] ?? nothing)} />,
      ...x.calls.map((c, k) => <Observation key={`c${i}-${k}`} c={c} other={other && (other.turns[i]?.calls[k] ?? nothing.calls[0])} short={short} />),
    ])}</ol>
    {fields.length > 0 && !short && <details class="fields"><summary>fields of the task</summary><Text text={fields.map(([k, v]) => `${k}: ${typeof v === "string" ? v : JSON.stringify(v)}`).join("\n")} /></details>}</>;
}
