// Lines over time, drawn by uPlot in the colours of the theme.
import { useEffect, useMemo, useRef } from 'react'
import uPlot from 'uplot'
import { useDark } from '../shell/theme'

export interface Line {
  name: string
  colour: string
  values: (number | null)[]
  fill?: boolean
}

// Names of custom properties; uPlot paints on a canvas, which knows no var().
export const palette = ['--wait', '--good', '--warn', '--bad', '--quiet', '--text']

export function Chart({
  times,
  lines,
  log,
  format,
  label,
}: {
  times: number[]
  lines: Line[]
  log?: boolean
  format: (value: number) => string
  label: string
}) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(null)
  const dark = useDark()
  const data = useMemo(() => [times, ...lines.map(l => l.values)] as uPlot.AlignedData, [times, lines])
  const shape = lines.map(l => l.name + l.colour).join()
  const latest = useRef({ data, lines, format })
  latest.current = { data, lines, format }

  useEffect(() => {
    const place = box.current
    if (!place) return
    const style = getComputedStyle(place)
    const colour = (name: string) => {
      place.style.color = `var(${name})`
      const c = style.color
      place.style.color = ''
      return c
    }
    const grid = { stroke: colour('--line'), width: 1 }
    const axis = {
      stroke: colour('--quiet'),
      font: '11px "Geist Variable", system-ui, sans-serif',
      grid,
      ticks: { show: false },
    }
    const options: uPlot.Options = {
      width: place.clientWidth,
      height: 190,
      padding: [8, 4, 0, 0],
      cursor: { points: { size: 6 }, y: false, drag: { x: false, y: false } },
      scales: {
        y: log
          ? { distr: 3, range: (_, low, high) => [Math.min(0.01, low || 0.01), Math.max(10, high || 10)] }
          : { range: (_, __, high) => [0, Math.max(high ?? 0, 1) * 1.1] },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 26, space: 70, values: (_, at) => at.map(clock) },
        {
          ...axis,
          size: 52,
          gap: 6,
          space: 32,
          ...(log ? { filter: powers, grid: { ...grid, filter: powers } } : {}),
          values: (_, at) => at.map(v => (v === null ? '' : latest.current.format(v))),
        },
      ],
      series: [
        {},
        ...latest.current.lines.map(l => {
          const stroke = colour(l.colour)
          return {
            label: l.name,
            stroke,
            width: 1.6,
            spanGaps: false,
            points: { show: false },
            fill: l.fill ? stroke.replace(/^rgb\(([^)]*)\)/, 'rgba($1, .10)') : undefined,
          }
        }),
      ],
    }
    const made = new uPlot(options, latest.current.data, place)
    plot.current = made
    const watch = new ResizeObserver(() => made.setSize({ width: place.clientWidth, height: 190 }))
    watch.observe(place)
    return () => {
      watch.disconnect()
      made.destroy()
      plot.current = null
    }
  }, [dark, log, shape])

  useEffect(() => plot.current?.setData(data), [data])

  const said = lines
    .map(l => {
      const v = l.values.findLast(x => x !== null)
      return `${l.name} ${v == null ? 'unknown' : format(v)}`
    })
    .join(', ')
  return (
    <figure>
      <div ref={box} role="img" aria-label={`${label}: ${said}`} className="h-[190px] w-full" />
      <figcaption className="flex flex-wrap gap-x-4 gap-y-1 pt-1 text-[12.5px] text-quiet">
        {lines.map(l => (
          <span key={l.name} className="inline-flex items-center gap-1.5">
            <span className="h-[3px] w-3.5 rounded" style={{ background: `var(${l.colour})` }} />
            {l.name}
            <span className="font-medium text-text tabular-nums">
              {format(l.values.findLast(x => x !== null) ?? NaN)}
            </span>
          </span>
        ))}
      </figcaption>
    </figure>
  )
}

// On a log axis only powers of ten have a line; what is between them would be a grey field.
const powers = (_: uPlot, at: number[]) =>
  at.map(v => (Math.abs(Math.log10(v) % 1) < 1e-6 || Math.abs(Math.log10(v) % 1) > 1 - 1e-6 ? v : null))
const clock = (seconds: number) =>
  new Date(seconds * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })
