// JSON, indented, its parts in the colours of the page.
import { stringify } from '../api/json'
import { Copy } from './basics'

const parts = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

export function Json({ value, label }: { value: unknown; label: string }) {
  const text = typeof value === 'string' ? value : stringify(value, 2)
  const shown = []
  let last = 0
  // A browser would take seconds for the spans of a megabyte.
  for (const part of text.length < 100_000 ? text.matchAll(parts) : []) {
    shown.push(text.slice(last, part.index))
    const tone = part[2] ? 'text-accent' : part[1] ? 'text-good' : part[3] ? 'text-bad' : 'text-warn'
    shown.push(
      <span key={part.index} className={tone}>
        {part[1] ?? part[0]}
      </span>,
      part[2] ?? '',
    )
    last = part.index + part[0].length
  }
  shown.push(text.slice(last))
  return (
    <div className="relative rounded-lg border bg-sunk">
      <div className="absolute top-1 right-1">
        <Copy text={text} />
      </div>
      <pre
        className="max-h-[28rem] overflow-auto p-3 pr-20 leading-relaxed"
        tabIndex={0}
        role="group"
        aria-label={label}
      >
        {shown}
      </pre>
    </div>
  )
}

// Changes shows what an edit took away and what it added, line by line.
export function Changes({ before, after }: { before: string; after: string }) {
  return (
    <pre
      className="max-h-72 overflow-auto rounded-lg border bg-sunk p-3"
      tabIndex={0}
      role="group"
      aria-label="Changes"
    >
      {diff(before.split('\n'), after.split('\n')).map(([sign, line], i) => (
        <div
          key={i}
          className={sign === '+' ? 'bg-good-soft text-good' : sign === '-' ? 'bg-bad-soft text-bad' : 'text-quiet'}
        >
          {sign} {line}
        </div>
      ))}
    </pre>
  )
}

// diff keeps a longest common part, of texts that a person edits. What both begin and end with is not looked at.
function diff(a: string[], b: string[]): [string, string][] {
  let head = 0
  while (head < a.length && head < b.length && a[head] === b[head]) head++
  let tail = 0
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++
  const x = a.slice(head, a.length - tail),
    y = b.slice(head, b.length - tail)
  const same = (lines: string[]) => lines.map((line): [string, string] => [' ', line])
  const middle =
    x.length * y.length > 1e6
      ? [...x.map((l): [string, string] => ['-', l]), ...y.map((l): [string, string] => ['+', l])]
      : common(x, y)
  return [...same(a.slice(0, head)), ...middle, ...same(a.slice(a.length - tail))]
}

function common(x: string[], y: string[]): [string, string][] {
  const longest = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1))
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--)
      longest[i][j] = x[i] === y[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1])
  const out: [string, string][] = []
  for (let i = 0, j = 0; i < x.length || j < y.length;) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      out.push([' ', x[i]])
      i++
      j++
    } else if (j >= y.length || (i < x.length && longest[i + 1][j] >= longest[i][j + 1])) out.push(['-', x[i++]])
    else out.push(['+', y[j++]])
  }
  return out
}
