// A hook for what a page asks for again as a run goes on.
import { useEffect, useRef, useState } from "preact/hooks";

// useAsked asks whenever key or news is another text. What comes while an answer is on its way is asked for behind it, so that one that takes longer
// than a step arrives too; only another key gives it up.
export function useAsked(key: string, news: string, ask: (stop: AbortSignal) => Promise<void>) {
  const want = JSON.stringify([key, news]), latest = useRef(""), busy = useRef<AbortController | undefined>(undefined), [again, setAgain] = useState(0);
  latest.current = want;
  useEffect(() => () => { busy.current?.abort(); busy.current = undefined; }, [key]);
  useEffect(() => {
    if (busy.current) return;
    const stop = busy.current = new AbortController();
    ask(stop.signal).finally(() => {
      if (stop.signal.aborted) return;
      busy.current = undefined;
      if (latest.current !== want) setAgain((n) => n + 1);
    });
  }, [want, again]);
}
