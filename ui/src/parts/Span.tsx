// From when until when, as two fields of a form: times of the reader's own zone.
import type { Search } from '../api/types'
import { Field } from './basics'

export function Span({ filter }: { filter: Search }) {
  return (
    <>
      <Field label="Since">
        <input className="input" type="datetime-local" name="since" defaultValue={local(filter.since)} />
      </Field>
      <Field label="Until">
        <input className="input" type="datetime-local" name="until" defaultValue={local(filter.until)} />
      </Field>
    </>
  )
}

// local is a time as such a field has it: without a zone, in the reader's own.
function local(time?: string): string {
  if (!time) return ''
  const date = new Date(time)
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
}
