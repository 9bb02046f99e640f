// Who did what, when and why. It is written before the act.
import { useInfiniteQuery } from '@tanstack/react-query'
import type { ColumnDef } from '@tanstack/react-table'
import { get } from '../api/client'
import { stringify } from '../api/json'
import type { AuditEntry, Page, Search } from '../api/types'
import { Card, Empty, Field, Head, Tag, Time } from '../parts/basics'
import { PagedTable, useRows } from '../parts/PagedTable'
import { count } from '../parts/words'
import { useFilters } from '../shell/filters'

export function Audit() {
  const [{ action, actor }, set] = useFilters()
  const filter: Search = { action, actor }
  const list = useInfiniteQuery({
    queryKey: ['audit', filter],
    initialPageParam: '',
    queryFn: ({ pageParam, signal }) =>
      get<Page<AuditEntry>>('admin/audit', { ...filter, limit: '100', cursor: pageParam }, signal),
    getNextPageParam: last => last.nextCursor,
  })
  const rows = useRows(list)
  return (
    <>
      <Head title="Audit" says="Who did what, when and why." />
      <form
        key={JSON.stringify(filter)}
        className="card mb-4 flex flex-wrap items-end gap-3 p-4"
        onSubmit={e => {
          e.preventDefault()
          const data = new FormData(e.currentTarget)
          set({ action: String(data.get('action')).trim(), actor: String(data.get('actor')).trim() })
        }}
      >
        <Field label="Action">
          <input className="input" name="action" defaultValue={action ?? ''} placeholder="replay" data-filter />
        </Field>
        <Field label="Actor">
          <input className="input" name="actor" defaultValue={actor ?? ''} />
        </Field>
        <button type="submit" className="button main">
          Apply
        </button>
      </form>
      <Card flush>
        <PagedTable
          list={list}
          label="Audit"
          rows={rows}
          columns={columns}
          id={a => String(a.id)}
          empty={
            <Empty title="Nothing was done">Replays, discards, skips, retries and pauses stand here.</Empty>
          }
        />
      </Card>
    </>
  )
}

const text = (value: unknown) =>
  value === undefined || value === null ? '' : typeof value === 'string' ? value : stringify(value)

const columns: ColumnDef<AuditEntry>[] = [
  { id: 'at', header: 'When', cell: c => <Time value={c.row.original.at} /> },
  {
    id: 'actor',
    header: 'Who',
    cell: c => (
      <>
        {c.row.original.actor}
        {c.row.original.login && c.row.original.login !== c.row.original.actor && (
          <span className="text-quiet"> ({c.row.original.login})</span>
        )}
      </>
    ),
  },
  { id: 'action', header: 'Did', cell: c => <Tag tone="quiet">{c.row.original.action}</Tag> },
  { id: 'letters', header: 'How many', cell: c => count(c.row.original.letters) },
  { id: 'reason', header: 'Why', cell: c => <span className="break-words">{c.row.original.reason ?? '–'}</span> },
  {
    id: 'what',
    header: 'What',
    cell: c => (
      <code className="line-clamp-3 max-w-[32rem] break-all">
        {[text(c.row.original.filter), text(c.row.original.detail)].filter(Boolean).join(' ')}
      </code>
    ),
  },
]
