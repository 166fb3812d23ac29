// Texts of models, tools and files: what has no shape of its own is made visible, so that nothing hides and nothing turns the line round.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

export function clean(s: string): string {
  return s.replace(/\r\n/g, "\n").replace(hidden, (c) => {
    const n = c.codePointAt(0)!;
    if (n < 32) return String.fromCharCode(0x2400 + n);
    return n === 127 ? "␡" : `⟨${n.toString(16).padStart(4, "0")}⟩`;
  });
}

export function number(v: number | null | undefined, digits = 4): string {
  if (v === null || v === undefined) return "–";
  if (Number.isInteger(v) && Math.abs(v) < 1e7) return String(v);
  const a = Math.abs(v);
  if (a !== 0 && (a < 1e-3 || a >= 1e6)) return v.toExponential(2);
  return String(+v.toFixed(a >= 1000 ? 0 : a >= 100 ? 1 : digits > 3 && a < 1 ? 4 : 3));
}

export function seconds(v: number | null | undefined): string {
  if (v === null || v === undefined) return "–";
  if (v === 0) return "0 s";
  if (v < 0.001) return `${(v * 1e6).toFixed(0)} µs`;
  if (v < 1) return `${(v * 1000).toFixed(v < 0.01 ? 1 : 0)} ms`;
  if (v < 120) return `${v.toFixed(1)} s`;
  return v < 7200 ? `${Math.round(v / 60)} min` : `${(v / 3600).toFixed(1)} h`;
}

export function ago(v: number): string {
  if (v < 5) return "just now";
  if (v < 7200) return `${seconds(v)} ago`;
  return v < 48 * 3600 ? `${Math.round(v / 3600)} h ago` : `${Math.round(v / 86400)} days ago`;
}

// alone tells whether a key is pressed without one that makes it the browser's or the system's, as Alt+← goes back.
export const alone = (e: KeyboardEvent): boolean => !e.altKey && !e.ctrlKey && !e.metaKey;

export const words = (s: string): string => s.replace(/_/g, " ");

// count is a number with its noun.
export const count = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`;

// sampledFor is the step that a trajectory was sampled for, as people count; of an evaluation what that is called.
export const sampledFor = (e: { phase: string; step: number }): string => (e.phase.startsWith("eval-") ? phase(e.phase) : `${e.step + 1}${e.phase === "train" || e.phase === "sft" ? "" : ` (${words(e.phase)})`}`);

// phase is what a phase of the store is called: the held-out tasks before training, after a step, at the end.
export function phase(name: string): string {
  if (name === "train") return "training";
  const at = name.match(/^eval-step-(\d+)(.*)$/);
  return at ? `the evaluation after step ${at[1]}${at[2]}` : name.startsWith("eval-") ? `the evaluation ${words(name.slice(5)).replace(/^(before|after)$/, "$1 training")}` : words(name);
}
