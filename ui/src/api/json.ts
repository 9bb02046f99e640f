// Numbers that JavaScript would change (positions over 2^53, prices such as 19.90) keep their source text.

export class Exact {
  constructor(readonly text: string) {}
  toString() {
    return this.text
  }
  toJSON() {
    return mark + this.text
  }
}

// Drawn anew for each page, so that no text of a payload can look like it.
const mark = `number ${Math.random()}:`
const marked = new RegExp(`"${mark}([^"]*)"`, 'g')
const tokens = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

export function parse(text: string): unknown {
  const kept = text.replace(tokens, token =>
    token[0] === '"' || String(Number(token)) === token ? token : JSON.stringify(mark + token),
  )
  return JSON.parse(kept, (_, value) =>
    typeof value === 'string' && value.startsWith(mark) ? new Exact(value.slice(mark.length)) : value,
  )
}

export function stringify(value: unknown, indent?: number): string {
  return (JSON.stringify(value, null, indent) ?? '').replace(marked, '$1')
}
