// Tokens of a sample, coloured by one of the numbers that are stored of each.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { route, type Sample, set } from "./api";
import { alone, clean, number } from "./text";

export type By = "mask" | "logprob" | "old" | "difference" | "ratio" | "advantage" | "entropy" | "version";

export const kinds: Record<By, { name: string; means: string }> = {
  mask: { name: "mask", means: "Coloured tokens were sampled by the policy and can be trained. The others are prompts and observations." },
  logprob: { name: "sampling logprob", means: "Log-probability that the engine sampled the token with. Strong colour: unlikely." },
  old: { name: "trainer logprob", means: "Log-probability by the trainer before the update. Strong colour: unlikely." },
  difference: { name: "trainer − engine", means: "Trainer’s minus engine’s logprob. 0 is what it should be, where both have the same weights." },
  ratio: { name: "ratio, trainer / engine", means: "exp(trainer’s − engine’s logprob), which corrections of the loss weigh a token by. 1 is what it should be." },
  advantage: { name: "advantage", means: "What the update used. Blue tokens were made more likely, orange ones less likely." },
  entropy: { name: "entropy", means: "How open the choice was for the trainer before the update, in nats: 0 where one token is certain, 0.69 where two are equally likely. Strong colour: open." },
  version: { name: "policy version", means: "Which version of the weights sampled the token. A trajectory of several versions was sampled while updates went on." },
};

// offered reports whether a sample can be coloured by a number: programs before the store's version 4 trained without keeping the entropy, and no engine
// sampled what is recorded.
function offered(s: Sample, by: By): boolean {
  if (by === "logprob" || by === "difference" || by === "ratio") return s.sampling.length > 0;
  return by !== "entropy" || s.entropy.length > 0 || !s.old.length;
}

// value of token i; undefined: it has none.
export function value(s: Sample, i: number, by: By): number | null | undefined {
  if (by === "mask") return s.mask[i];
  if (!s.mask[i]) return undefined;
  const old = s.old.length ? s.old[i] : undefined, engine = s.sampling[i];
  switch (by) {
    case "logprob": return engine;
    case "old": return old;
    case "difference": return old == null || engine == null ? undefined : old - engine;
    case "ratio": return old == null || engine == null ? undefined : Math.exp(old - engine);
    case "advantage": return s.advantages.length ? s.advantages[i] : undefined;
    case "entropy": return s.entropy.length ? s.entropy[i] : undefined;
    case "version": return s.versions[i];
  }
}

// Scale is what the colours mean: the class of a value, and the steps of the legend.
type Scale = { of: (v: number | null | undefined) => string; legend: { css: string; text: string }[] };

function scale(s: Sample, by: By): Scale {
  const none = (v: unknown): v is null | undefined => v === null || v === undefined;
  if (by === "mask") return { of: (v) => (v ? "c3" : "off"), legend: [{ css: "c3", text: "sampled" }, { css: "off", text: "not sampled" }] };
  const values = s.ids.map((_, i) => value(s, i, by)).filter((v): v is number => !none(v));
  if (by === "version") {
    const known = [...new Set(values)].sort((a, b) => a - b), of = (v: number) => `v${known.indexOf(v) % 6}`;
    return { of: (v) => (none(v) ? "off" : of(v)), legend: known.slice(0, 12).map((v) => ({ css: of(v), text: String(v) })) };
  }
  if (by === "logprob" || by === "old") {
    const level = (v: number) => Math.min(8, Math.floor(-v / 0.5) + 1);
    return { of: (v) => (none(v) ? "off" : `c${Math.max(1, level(v))}`), legend: [1, 2, 3, 4, 5, 6, 7, 8].map((k) => ({ css: `c${k}`, text: k === 8 ? "≤ −3.5" : `${k === 1 ? "0" : "−" + (k - 1) / 2}` })) };
  }
  if (by === "entropy") {
    const level = (v: number) => Math.max(1, Math.min(8, Math.floor(v / 0.5) + 1));
    return { of: (v) => (none(v) ? "off" : `c${level(v)}`), legend: [1, 2, 3, 4, 5, 6, 7, 8].map((k) => ({ css: `c${k}`, text: `${k === 8 ? "≥ " : ""}${(k - 1) / 2}` })) };
  }
  const shift = by === "ratio" ? Math.log : (v: number) => v;
  const most = values.map((v) => Math.abs(shift(v))).filter(Number.isFinite).reduce((a, b) => Math.max(a, b), 1e-6); // too many for arguments
  const of = (v: number) => { const k = Math.min(4, Math.ceil((Math.abs(shift(v)) / most) * 4 - 1e-9)); return k === 0 ? "z" : `${shift(v) < 0 ? "m" : "p"}${k}`; };
  const mid = (k: number) => (by === "ratio" ? Math.exp((most * k) / 4) : (most * k) / 4);
  return { of: (v) => (none(v) ? "off" : of(v)), legend: [-4, -3, -2, -1, 0, 1, 2, 3, 4].map((k) => ({ css: k === 0 ? "z" : `${k < 0 ? "m" : "p"}${Math.abs(k)}`, text: number(mid(k), 3) })) };
}

// Tokens of a block, which the browser lays out only where it is seen: it ends with a line where one ends soon.
const block = 200, most = 400;

// shown makes whitespace of a token visible and keeps the lines.
const shown = (t: string): string => (t === "" ? "·" : clean(t).replace(/\t/g, "→\t").replace(/\n/g, "↵\n"));

export function Tokens({ s, name }: { s: Sample; name: string }) {
  const q = route.value.q, asked = q.get("colour") as By, by = asked in kinds && offered(s, asked) ? asked : "mask";
  const want = q.has("token") ? Number(q.get("token")) : -1;
  const [at, setAt] = useState(-1), box = useRef<HTMLDivElement>(null);
  const sc = useMemo(() => scale(s, by), [s, by]);
  const classes = useMemo(() => s.ids.map((_, i) => sc.of(value(s, i, by))), [s, by]);
  const span = (i: number) => box.current?.querySelector<HTMLElement>(`[data-i="${i}"]`);
  const go = (i: number) => {
    span(at)?.classList.remove("on");
    setAt(i);
    const el = span(i);
    el?.classList.add("on");
    el?.scrollIntoView({ block: "nearest" });
  };
  useEffect(() => { if (want >= 0 && want < s.ids.length) { go(want); box.current?.focus({ preventScroll: true }); } }, [name, q.get("sample"), want]); // s is another object whenever the trajectory is asked for again
  const keys = (e: KeyboardEvent) => {
    const n = s.ids.length, sampled = (d: number) => { let i = at + d; while (i >= 0 && i < n && !s.mask[i]) i += d; return i >= 0 && i < n ? i : at; };
    const to: Record<string, () => number> = { ArrowRight: () => Math.min(n - 1, at + 1), ArrowLeft: () => Math.max(0, at - 1), ArrowDown: () => sampled(1), ArrowUp: () => sampled(-1), Home: () => 0, End: () => n - 1 };
    if (!alone(e) || !to[e.key]) return;
    e.preventDefault();
    go(to[e.key]());
  };
  const blocks = useMemo(() => {
    const out = [];
    for (let b = 0, e; b < s.ids.length; b = e) {
      for (e = b + 1; e < s.ids.length && e - b < most && !(e - b >= block && s.texts[e - 1].endsWith("\n")); e++);
      const from = b;
      out.push(<div class="block" key={b}>{s.texts.slice(b, e).map((t, i) => <span key={from + i} class={classes[from + i]} data-i={from + i}>{shown(t)}</span>)}</div>);
    }
    return out;
  }, [s, classes]);
  useEffect(() => { if (at >= 0) span(at)?.classList.add("on"); }, [blocks]);
  const over = (e: MouseEvent) => { const i = (e.target as HTMLElement).dataset.i; if (i !== undefined && Number(i) !== at) { span(at)?.classList.remove("on"); setAt(Number(i)); span(Number(i))?.classList.add("on"); } };
  const facts: [string, string][] = at < 0 || at >= s.ids.length ? [] : [
    ["token", `${at + 1} of ${s.ids.length}`], ["id", String(s.ids[at])], ["mask", String(s.mask[at])],
    ...(["logprob", "old", "difference", "ratio", "advantage", "entropy", "version"] as By[]).filter((k) => offered(s, k)).map((k): [string, string] => [kinds[k].name, (() => { const v = value(s, at, k); return v == null ? "–" : String(k === "version" ? v : +v.toPrecision(7)); })()]),
  ];
  return <>
    <div class="bar"><label>Colour by <select id="colour" value={by} onChange={(e) => set({ colour: e.currentTarget.value })}>
      {(Object.keys(kinds) as By[]).filter((k) => offered(s, k)).map((k) => <option key={k} value={k} selected={k === by}>{kinds[k].name}</option>)}</select></label>
      <ul class="scale" aria-label="legend">{sc.legend.map((l) => <li key={l.css + l.text}><span class={`key ${l.css}`}>{l.text}</span></li>)}</ul></div>
    <p class="means">{kinds[by].means}{by !== "mask" && by !== "logprob" && by !== "version" && !s.old.length && " This sample was not trained, so there is nothing to show."}</p>
    <output class="facts" id="token" aria-live="polite">{facts.length ? facts.map(([k, v]) => <span key={k}>{k} <b>{v}</b> </span>) : "Point at a token, or focus the tokens and use the arrow keys; up and down go to sampled tokens."}</output>
    <div class="tokens" id="tokens" ref={box} tabIndex={0} role="region" aria-label={`tokens of ${name}; arrow keys move`} onMouseOver={over} onKeyDown={keys} onClick={over}>{blocks}</div>
  </>;
}
