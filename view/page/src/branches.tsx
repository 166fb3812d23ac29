// How token sequences branch: the trajectories of a tree, and the samples of a trajectory whose history was rewritten. A line each, a dot a turn.
import { type Entry, type Query, type Trajectory, type Turn } from "./api";
import { clean, number, words } from "./text";

// A dot is a turn: its column, what the pointer reads on it, and how it looks.
type Dot = { column: number; title: string; css: string; link?: string };
// An edge leads from a dot of a line, or from the prompt, to the dot in a column of another line.
type Edge = { from?: { line: number; column: number }; column: number; css: string };
type Line = { name: string; facts: string; link: string; now: boolean; dots: Dot[]; edges: Edge[] };

// A Kind is how marks or lines look, and what that means.
type Kind = [css: string, means: string];

const height = 28, middle = height / 2;

// Mark is a mark or a line of a kind, for the legend.
function Mark({ css }: { css: string }) {
  return <svg width="20" height="12" aria-hidden="true">{css === "prompt" ? <rect class={css} x="6" y="2" width="8" height="8" /> : css.startsWith("edge") ? <path class={css} d="M0 6H20" /> : <circle class={css} cx="10" cy="6" r="5" />}</svg>;
}

function Drawing({ id, title, means, kinds, lines }: { id: string; title: string; means: string; kinds: Kind[]; lines: Line[] }) {
  const drawn = new Set(["prompt", ...lines.flatMap((l) => [...l.dots, ...l.edges].map((x) => x.css))]);
  const columns = Math.max(1, ...lines.flatMap((l) => l.dots.map((d) => d.column + 1))), wide = Math.max(7, Math.min(26, 700 / columns)), r = Math.min(5, wide / 2.6);
  const x = (column: number) => 9 + (column + 1) * wide, y = (line: number) => middle + line * height;
  return <div class="drawing"><h3 id={id}>{title}</h3><p class="means">{means}</p>
    <ul class="legend marks" aria-label={`marks and lines of ${title}`}>{kinds.filter(([css]) => drawn.has(css)).map(([css, means]) => <li key={css}><Mark css={css} /> <span class="name">{means}</span></li>)}</ul>
    <div class="branches" tabIndex={0} role="region" aria-labelledby={id}>
      <ol>{lines.map((l, i) => <li key={i}><a href={l.link} aria-current={l.now ? "true" : undefined}>{l.name}</a> <span>{l.facts}</span></li>)}</ol>
      <svg aria-hidden="true" width={x(columns - 1) + 9} height={lines.length * height}>
        {lines.map((l, i) => l.edges.map((e, k) => {
          const a = e.from ? x(e.from.column) : x(-1), b = e.from ? y(e.from.line) : y(0), to = y(i), bend = Math.min(7, Math.max(0, x(e.column) - a));
          return <path key={`${i}-${k}`} class={e.css} d={to === b ? `M${a} ${b}H${x(e.column)}` : `M${a} ${b}V${to > b ? to - bend : to + bend}q0 ${to > b ? bend : -bend} ${bend} ${to > b ? bend : -bend}H${x(e.column)}`} />;
        }))}
        <rect class="prompt" x={x(-1) - 4} y={y(0) - 4} width="8" height="8"><title>the prompt</title></rect>
        {lines.map((l, i) => l.dots.map((d) => <circle key={`${i}-${d.column}`} class={d.css + (d.link ? " to" : "")} cx={x(d.column)} cy={y(i)} r={r} onClick={d.link ? () => (location.hash = d.link!) : undefined}><title>{d.title}</title></circle>))}
      </svg>
    </div></div>;
}

const prompt: Kind = ["prompt", "the prompt"];

const treeKinds: Kind[] = [prompt, ["dot now", "turn of this trajectory"], ["dot", "turn of another one"], ["bad now", "turn of this trajectory, which failed"], ["bad", "turn of another one, which failed"], ["edge now", "the way to this trajectory’s last turn"], ["edge", "the way of another one"]];

// Tree draws the trajectories of a group that fork off one another; nothing where none does.
export function Tree({ t, link }: { t: Trajectory; link: (id: string) => string }) {
  const all = t.siblings;
  if (!all.some((o) => o.branch)) return null;
  const name = (o: Entry) => (o.branch ? `${o.index}.${o.branch}` : String(o.index));
  const at = new Map(all.map((o, i) => [name(o), i]));
  const parent = (i: number) => (all[i].branch ? at.get(name(all[i]).replace(/\.\d+$/, "")) : undefined);
  // The line that has a turn of a trajectory: its own, or one of those that it forks off; undefined where that one is not recorded.
  const owner = (i: number, column: number) => { let k: number | undefined = i; while (k !== undefined && column < all[k].forked) k = parent(k); return k; };
  const me = all.findIndex((o) => o.id === t.entry.id), path = new Set(Array.from({ length: t.entry.turns }, (_, c) => `${owner(me, c)}/${c}`));
  const lines = all.map((o, i): Line => {
    const own = Array.from({ length: Math.max(0, o.turns - o.forked) }, (_, k) => o.forked + k), on = (c: number) => (path.has(`${i}/${c}`) ? " now" : "");
    // What it forks off: the turn before its own, or, within a turn, the one that it has the first tokens of.
    const within = o.forked_at ?? 0, p = parent(i), column = within > 0 ? o.forked : o.forked - 1;
    const trunk = p === undefined || column < 0 ? undefined : within > 0 ? owner(p, column) : owner(i, column);
    return {
      name: name(o), link: link(o.id), now: o.id === t.entry.id,
      facts: `${o.origin ? `failed (${words(o.origin)})` : `reward ${number(o.reward)}, ${words(o.stop)}`}${trunk === undefined ? "" : `, forks off ${name(all[trunk])} ${within > 0 ? `within turn ${o.forked + 1}, behind ${within} tokens` : `after turn ${o.forked}`}`}`,
      dots: own.map((c) => ({ column: c, css: (o.origin ? "bad" : "dot") + on(c), title: `turn ${c + 1} of ${o.id}` })),
      edges: own.map((c, k) => ({ column: c, css: `edge${on(c)}`, from: k > 0 ? { line: i, column: c - 1 } : trunk === undefined ? undefined : { line: trunk, column } })),
    };
  });
  return <Drawing id="tree" title="Tree" lines={lines} kinds={treeKinds} means="The trajectories of this task: a line each, a dot a turn. What stands before a fork was sampled once." />;
}

const graphKinds: Kind[] = [prompt, ["dot now", "call that was trained"], ["dot", "call that was not trained"], ["edge", "goes on with the same tokens"], ["edge anew", "goes on with other tokens, in a new sequence"]];

// Graph draws the samples of a trajectory and which call goes on from which; nothing where there is one sample.
export function Graph({ t, sample, link }: { t: Trajectory; sample: number; link: (id: string, q: Query) => string }) {
  if (t.samples.length < 2) return null;
  const trained = (x: Turn) => t.samples[x.sample]?.old.slice(x.start, x.end).some((v) => v !== 0) ?? false;
  const to = (k: number, token?: number) => link(t.entry.id, { sample: k, token });
  const lines = t.samples.map((s, k): Line => {
    const turns = t.turns.flatMap((x, i) => (x.sample === k ? [{ x, i }] : [])), off = turns.filter(({ x }) => !trained(x)).length;
    return {
      name: `sample ${k}`, link: to(k), now: k === sample,
      facts: [s.role && clean(s.role), `${s.ids.length} tokens`, s.like >= 0 && `the first ${s.shares} those of sample ${s.like}`, s.step < 0 || off === turns.length ? "not trained" : off > 0 && `${off} of ${turns.length} turns not trained`].filter(Boolean).join(", "),
      dots: turns.map(({ x, i }) => ({ column: i, css: trained(x) ? "dot now" : "dot", link: to(k, x.start), title: `turn ${i + 1}${x.role ? `, ${clean(x.role)}` : ""}, ${x.end - x.start} tokens${trained(x) ? "" : ", not trained"}` })),
      edges: turns.map(({ x, i }) => {
        const from = x.after >= 0 ? t.turns[x.after] : undefined;
        return { column: i, css: from && from.sample !== k ? "edge anew" : "edge", from: from && { line: from.sample, column: x.after } };
      }),
    };
  });
  return <Drawing id="graph" title="Graph of its calls" lines={lines} kinds={graphKinds}
    means="A line is a token sequence, a dot a call in the order of time. Where a line of dashes begins, the conversation goes on, but what was sent does not begin with the same tokens." />;
}
