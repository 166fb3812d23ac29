// One chart: uPlot's, with the colours of the page and a mark at the step of the slider. The lines of a band are its two bounds and what lies between them.
import uPlot from "uplot";
import { useEffect, useRef } from "preact/hooks";

export type Line = { label: string; x: number[]; y: (number | null)[]; colour: number; points?: boolean };

const colours = 6; // those of style.css

export const colour = (n: number): string => css(`--line-${n % colours}`);

// dashed are the lines that have the colours of earlier ones.
export const dashed = (n: number): boolean => Math.floor(n / colours) % 2 === 1;

const css = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

type Props = { title: string; lines: Line[]; step: number; band: boolean; theme: string; onStep: (step: number) => void; onPoint: (step: number | null) => void };

// joined puts all lines on one axis.
function joined(lines: Line[]): uPlot.AlignedData {
  const at = [...new Set(lines.flatMap((l) => l.x))].sort((a, b) => a - b);
  const place = new Map(at.map((x, i) => [x, i]));
  return [at, ...lines.map((l) => {
    const y: (number | null)[] = new Array(at.length).fill(l.points || l.x.length < at.length ? undefined : null);
    l.x.forEach((x, i) => (y[place.get(x)!] = l.y[i]));
    return y;
  })] as uPlot.AlignedData;
}

// tall is the height of a chart with the name of its axis, in pixels.
const tall = 168;

export function Chart({ title, lines, step, band, theme, onStep, onPoint }: Props) {
  const box = useRef<HTMLDivElement>(null), plot = useRef<uPlot | null>(null), mark = useRef(step), told = useRef(onStep), pointed = useRef(onPoint);
  mark.current = step;
  told.current = onStep;
  pointed.current = onPoint;
  const seen = useRef(true), late = useRef<(() => void) | null>(null); // what a chart out of sight draws when it comes into it
  const shape = JSON.stringify([theme, band, lines.map((l) => [l.label, l.colour, l.points])]);
  useEffect(() => {
    const el = box.current!;
    const grid = { stroke: css("--line"), width: 1 }, axis = { stroke: css("--muted"), grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif" };
    const width = () => Math.max(160, el.clientWidth);
    const u = new uPlot({
      width: width(), height: tall, legend: { show: false }, scales: { x: { time: false }, y: { range: (_, low, high) => (low === high ? [Math.min(0, low * 1.2), low === 0 ? 1 : Math.max(0, low * 1.2)] : uPlot.rangeNum(low, high, 0.1, true)) } }, padding: [6, 16, 0, 0],
      cursor: { sync: { key: "step" }, points: { size: 6 }, drag: { x: true, y: false } },
      axes: [{ ...axis, label: "step", labelSize: 18, labelGap: 0, labelFont: axis.font, size: 26, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] }, { ...axis, size: 52, values: (_, v) => v.map((x) => (Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(0) : String(+x.toPrecision(4)))) }],
      series: [{}, ...lines.map((l, i): uPlot.Series => ({
        label: l.label, stroke: band && i < 2 ? "transparent" : colour(l.colour), width: 1.75, dash: dashed(l.colour) ? [5, 4] : undefined, spanGaps: true,
        points: { show: l.points || l.x.length === 1 || undefined, size: 5, fill: colour(l.colour) },
      }))],
      bands: band ? [{ series: [1, 2], fill: css("--band") }] : undefined,
      hooks: {
        setCursor: [(u) => pointed.current(u.cursor.idx == null || u.cursor.left! < 0 ? null : u.data[0][u.cursor.idx])],
        draw: [(u) => {
          if (mark.current <= 0 || mark.current < u.scales.x.min! || mark.current > u.scales.x.max!) return;
          const x = Math.round(u.valToPos(mark.current, "x", true));
          u.ctx.save();
          u.ctx.strokeStyle = css("--accent");
          u.ctx.lineWidth = devicePixelRatio;
          u.ctx.beginPath();
          u.ctx.moveTo(x, u.bbox.top);
          u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
          u.ctx.stroke();
          u.ctx.restore();
        }],
      },
    }, joined(lines), el);
    u.over.addEventListener("click", () => { if (u.cursor.idx != null) told.current(u.data[0][u.cursor.idx]); });
    const size = new ResizeObserver(() => u.setSize({ width: width(), height: tall }));
    size.observe(el);
    const sight = new IntersectionObserver((all) => {
      seen.current = all[all.length - 1].isIntersecting;
      if (seen.current) { late.current?.(); late.current = null; }
    });
    sight.observe(el);
    plot.current = u;
    return () => { size.disconnect(); sight.disconnect(); u.destroy(); plot.current = late.current = null; seen.current = true; };
  }, [shape]);
  useEffect(() => {
    const draw = () => plot.current?.setData(joined(lines)); // which draws the mark too
    if (seen.current) draw(); else late.current = draw;
  }, [lines]);
  useEffect(() => {
    if (seen.current) plot.current?.redraw(false); else late.current ??= () => plot.current?.redraw(false);
  }, [step]);
  return <div class="plot" ref={box} role="img" aria-label={`curve of ${title}; its values at the chosen step stand below`} />;
}
