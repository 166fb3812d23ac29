// What the server answers, and where the page is: the address behind # says everything, so that a view can be kept as a link.
import { signal } from "@preact/signals";

// State is how a run stands. Its edition is another one after steps or evaluations were replaced or removed: a page then asks for all of them anew.
export type State = { run: string; steps: number; evaluations: number; trajectories: number; loaded: boolean; damaged: number; unread: number; fault: string; revision: number; edition: number };
export type Run = { name: string; title: string; steps: number; reward: number | null; age: number; error?: string; failed?: string };
export type Evaluation = { name: string; step: number; reward: number | null; accuracy: number | null; loss?: number | null; reverse_kl?: number | null; tasks: number; pass?: Record<string, number | null> };
// total counts the steps of the run, of which thinned curves show some.
export type Curves = { steps: number[]; total: number; thinned: boolean; series: Record<string, (number | null)[]>; names: string[]; evaluations: Evaluation[]; state: State };
export type Band = { mean: (number | null)[]; low: (number | null)[]; high: (number | null)[] };
export type Bands = { steps: number[]; series: Record<string, Band> };
// Value is what a metric is at a step, or at the last one before it that has a value.
export type Value = { step: number; value: number | null };
export type Curve = { title: string; keys: string[]; unit?: string; means: string; worry: string };
export type Explained = { key: string; unit?: string; doc: string; when?: string; section: string };
export type Entry = {
  id: string; phase: string; step: number; group: number; index: number; branch?: string; forked: number; forked_at?: number; task: string; reward: number | null; stop: string; origin?: string;
  turns: number; tokens: number; calls: number; failed_calls: number; staleness: number; trained: number; dropped?: boolean; seconds: number | null;
};
export type List = { total: number; mean?: number; rows: Entry[]; state: State; choices?: Record<string, string[]> };
export type Outcome = { reward: number | null; terminated: boolean; truncated: boolean; success: boolean; state?: string };
export type Call = {
  tool: string; arguments: string; observation: string; cause?: string; failure?: string; cached?: boolean; terminal?: boolean; retries?: number;
  seconds: number | null; info?: string; outcome?: Outcome;
};
export type Turn = {
  role?: string; sample: number; start: number; end: number; completion: string; finish: string; answer?: string; engine_seconds: number | null;
  tool_seconds: number | null; cached: number; parse_errors: number; reward?: number | null; shared?: string; begun?: { by: string; end: number }[]; after: number; entropy?: number | null; calls: Call[]; messages?: unknown;
};
export type Sample = {
  role?: string; ids: number[]; texts: string[]; mask: number[]; sampling: (number | null)[]; versions: number[]; old: (number | null)[];
  advantages: (number | null)[]; entropy: (number | null)[]; step: number; like: number; shares: number;
};
export type Part = { type: string; text?: string; image?: string };
export type Message = { role: string; parts: Part[]; thought?: string; calls?: Call[] };
export type Try = { phase: string; step: number; group: number; tries: number; mean?: number | null; first: string };
export type Trajectory = {
  entry: Entry; task: Record<string, unknown> | null; prompt: Message[]; parts: Record<string, number | null>; error?: string;
  failure?: string; started: string; turns: Turn[]; samples: Sample[]; siblings: Entry[]; tries: Try[]; ended: boolean;
};

export type Query = Record<string, string | string[] | number | undefined>;

function encode(q: Query): string {
  const p = new URLSearchParams();
  for (const [key, v] of Object.entries(q)) {
    if (v === undefined || v === "") continue;
    for (const x of Array.isArray(v) ? v : [String(v)]) p.append(key, x);
  }
  return p.toString();
}

// Refused is an answer that is an error.
export class Refused extends Error {
  constructor(message: string, readonly status: number) { super(message); }
}

export async function get<T>(path: string, q: Query = {}, signal?: AbortSignal): Promise<T> {
  const reply = await fetch(`api/${path}?${encode(q)}`, { signal });
  const body = await reply.json();
  if (!reply.ok) throw new Refused(body.error ?? `status ${reply.status}`, reply.status);
  return body as T;
}

// post asks for something to be done. The header tells the server that a page of its own asks: another site's cannot send it.
export async function post(path: string, q: Query): Promise<void> {
  const reply = await fetch(`api/${path}?${encode(q)}`, { method: "POST", headers: { "X-Agentfly": "1" } });
  if (!reply.ok) throw new Error((await reply.json()).error ?? `status ${reply.status}`);
}

export type Route = { page: string; q: URLSearchParams };

// address is what the address says now. route follows it as soon as the browser tells of the change, which a busy page does late.
export function address(): Route {
  const [page, q] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { page: page || "overview", q: new URLSearchParams(q ?? "") };
}

export const route = signal<Route>(address());
addEventListener("hashchange", () => (route.value = address()));

// What every view keeps: the run, those it is compared with, and the step.
const kept = ["run", "with", "step"];

// href is the address of a view; undefined values of what is kept stay as they are.
export function href(page: string, q: Query = {}): string {
  const all: Query = {};
  for (const key of kept) {
    const have = route.value.q.getAll(key);
    if (have.length) all[key] = have;
  }
  return `#/${page}?${encode({ ...all, ...q })}`;
}

// go goes to a view, with an entry in the history.
export function go(page: string, q: Query) {
  location.hash = `#/${page}?${encode(q)}`;
}

// listed is what the list of trajectories was last filtered and sorted by, for the way back from one of them; place is how far it was scrolled.
export const listed = signal<Query>({});
export const place = { key: "", top: 0 };

// set changes parameters of this view, without a new entry in the history.
export function set(q: Query) {
  const { page, q: old } = address(), now: Query = {};
  for (const key of new Set(old.keys())) now[key] = old.getAll(key);
  history.replaceState(null, "", `#/${page}?${encode({ ...now, ...q })}`);
  route.value = address();
}

export const runs = signal<Run[]>([]);
export const left = signal(0); // how many older runs are not listed
export const folder = signal("");
export const states = signal<Record<string, State>>({});
export const problem = signal("");
export const connected = signal(false);

// news is another text when a run has other steps or evaluations than before.
export function news(run: string): string {
  const s = states.value[run];
  return `${s?.steps}/${s?.evaluations}/${s?.edition}`;
}

export async function loadRuns() {
  try {
    const r = await get<{ folder: string; runs: Run[]; left: number }>("runs");
    runs.value = r.runs;
    left.value = r.left;
    folder.value = r.folder;
    problem.value = "";
  } catch (e) {
    problem.value = String(e instanceof Error ? e.message : e);
  }
}

// follow keeps one stream open for the runs that are shown, while the page can be seen: a browser has six connections for all pages.
export function follow(names: string[]): () => void {
  let source: EventSource | undefined, again = 0;
  const open = () => {
    clearTimeout(again);
    source?.close();
    source = undefined;
    connected.value = false;
    if (document.hidden || !names.length) return;
    source = new EventSource(`api/events?${encode({ run: names })}`);
    source.onopen = () => (connected.value = true);
    source.onerror = () => {
      connected.value = false;
      if (source?.readyState === EventSource.CLOSED) again = window.setTimeout(open, 5000); // a browser gives up where the answer is no stream, as while no run can be opened
    };
    source.onmessage = (e) => {
      const next = { ...states.value };
      for (const s of JSON.parse(e.data) as State[]) next[s.run] = s;
      states.value = next;
    };
  };
  document.addEventListener("visibilitychange", open);
  open();
  return () => {
    document.removeEventListener("visibilitychange", open);
    clearTimeout(again);
    source?.close();
    connected.value = false;
  };
}
