// The events of a table: filters, pages by key, and what is being written just then.
import { useInfiniteQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ColumnDef, RowSelectionState } from '@tanstack/react-table'
import { useMemo, useState } from 'react'
import { poll } from '../api/client'
import { useOverview } from '../api/live'
import type { EventRow, Page, Search } from '../api/types'
import { Card, Empty, Field, Head, Tag, Time } from '../parts/basics'
import { PagedTable, useRows } from '../parts/PagedTable'
import { Span } from '../parts/Span'
import { count, plural } from '../parts/words'
import { entered, useFilters } from '../shell/filters'
import { Retry, Skip } from './EventActs'

type EventPage = Page<EventRow> & { statuses: string[] }
const typed = ['key', 'topic', 'type', 'tenant', 'trace', 'to', 'since', 'until'] as const
const names = ['table', 'status', ...typed] as const

export function Events() {
  const [search, set] = useFilters()
  const { data: overview } = useOverview()
  const [selected, setSelected] = useState<RowSelectionState>({})
  const filter = useMemo(
    () => Object.fromEntries(names.map(n => [n, search[n]]).filter(([, v]) => v)) as Search,
    [search],
  )
  const change = (next: Search) => {
    setSelected({})
    set(next)
  }
  const tail = search.tail !== 'off'
  const list = useInfiniteQuery({
    queryKey: ['events', filter],
    initialPageParam: '',
    queryFn: ({ pageParam, signal }) =>
      poll<EventPage>(2, 'admin/events', { ...filter, limit: '50', cursor: pageParam }, signal),
    getNextPageParam: last => last.nextCursor,
    // Only while the first page is all there is: more would be read again, page after page.
    refetchInterval: query =>
      tail && (query.state.data?.pages.length ?? 0) < 2 && window.scrollY < 200 ? 2000 : false,
  })
  const rows = useRows(list)
  const statuses = list.data?.pages[0]?.statuses ?? []
  const table = filter.table || overview?.tables?.[0]?.table || 'outbox_events'
  const tables = [...new Set([...(overview?.tables ?? []).map(t => t.table), table])]
  const ids = rows.filter(e => selected[e.id]).map(e => e.id) // not those that have left the list
  const chosen = { table, to: filter.to, ids }
  const matching = { ...filter, table, all: true, status: filter.status ? [filter.status] : undefined }
  const whose = ids.length ? plural(ids.length, 'selected event') : 'all undelivered that match'
  const following = tail && (list.data?.pages.length ?? 0) < 2
  return (
    <>
      <Head title="Events" says="Rows of an outbox table, the newest first.">
        <button
          type="button"
          aria-pressed={tail}
          className="button"
          onClick={() => set({ tail: tail ? 'off' : undefined })}
        >
          <span className={`size-2 rounded-full ${following ? 'pulse bg-good' : 'bg-quiet'}`} />
          {following ? 'Following' : tail ? 'Follows on top' : 'Follow'}
        </button>
      </Head>
      <form
        key={JSON.stringify(filter)}
        className="card mb-4 grid grid-cols-2 items-end gap-3 p-4 md:grid-cols-4 xl:grid-cols-6"
        onSubmit={e => {
          e.preventDefault()
          change(entered(e.currentTarget, typed))
        }}
      >
        <Field label="Table">
          <select
            className="input"
            value={table}
            onChange={e => change({ table: e.target.value, status: undefined })}
          >
            {tables.map(t => (
              <option key={t}>{t}</option>
            ))}
          </select>
        </Field>
        <Field label="State">
          <select
            className="input"
            value={filter.status ?? ''}
            onChange={e => change({ status: e.target.value || undefined })}
          >
            <option value="">Any</option>
            {[...new Set([...statuses, ...(filter.status ? [filter.status] : [])])].map(s => (
              <option key={s}>{s}</option>
            ))}
          </select>
        </Field>
        {(
          [
            ['key', 'Key', 'order-17'],
            ['topic', 'Topic', 'order.*'],
            ['type', 'Type', 'Order'],
            ['tenant', 'Tenant', 'shop'],
            ['trace', 'Trace id', '4bf92f3577b34da6…'],
            ['to', 'Sink', 'for one of several'],
          ] as const
        ).map(([name, label, example], i) => (
          <Field key={name} label={label}>
            <input
              className="input"
              name={name}
              defaultValue={filter[name] ?? ''}
              placeholder={example}
              data-filter={i === 0 || undefined}
            />
          </Field>
        ))}
        <Span filter={filter} />
        <div className="flex gap-2">
          <button type="submit" className="button main">
            Apply
          </button>
          {Object.keys(filter).length > 0 && (
            <button
              type="button"
              className="button"
              onClick={() => change(Object.fromEntries(names.map(n => [n, undefined])))}
            >
              Clear
            </button>
          )}
        </div>
      </form>
      <Card
        title={table}
        count={rows.length ? `${count(rows.length)} shown` : undefined}
        flush
        aside={
          rows.length > 0 && (
            <>
              <span className="text-quiet">{whose}</span>
              <Retry selection={ids.length ? chosen : matching} whose={whose} />
              <Skip selection={ids.length ? chosen : matching} whose={whose} />
            </>
          )
        }
      >
        <PagedTable
          list={list}
          label="Events"
          rows={rows}
          columns={columns(table)}
          id={e => e.id}
          selected={selected}
          onSelect={setSelected}
          empty={
            <Empty title="No event matches">
              {Object.keys(filter).length
                ? 'Change the filter.'
                : 'Nothing has been written to this table, or all of it has left by its retention.'}
            </Empty>
          }
        />
      </Card>
    </>
  )
}

const columns = (table: string): ColumnDef<EventRow>[] => [
  {
    id: 'position',
    header: 'Position',
    cell: c => <span className="text-quiet">{c.row.original.position.toString()}</span>,
  },
  {
    id: 'status',
    header: 'State',
    cell: c => (
      <span className="inline-flex gap-1">
        <Tag>{c.row.original.status}</Tag>
        {c.row.original.paused && <Tag tone="warn">paused</Tag>}
      </span>
    ),
  },
  {
    id: 'topic',
    header: 'Topic',
    cell: c => (
      <Link className="link font-medium" to="/events/$id" params={{ id: c.row.original.id }} search={{ table }}>
        {c.row.original.topic}
      </Link>
    ),
  },
  { id: 'key', header: 'Key', cell: c => <span className="break-words">{c.row.original.key ?? '–'}</span> },
  { id: 'tenant', header: 'Tenant', cell: c => c.row.original.tenant ?? '–' },
  { id: 'written', header: 'Written', cell: c => <Time value={c.row.original.writtenAt} /> },
  { id: 'delivered', header: 'Delivered', cell: c => <Time value={c.row.original.deliveredAt} /> },
  { id: 'attempts', header: 'Attempts', cell: c => count(c.row.original.attempts) },
  { id: 'why', header: 'Waits for', cell: c => <Why event={c.row.original} table={table} /> },
]

function Why({ event: e, table }: { event: EventRow; table: string }) {
  if (e.waitsBehind)
    return (
      <>
        behind{' '}
        <Link className="link mono" to="/events/$id" params={{ id: e.waitsBehind }} search={{ table }}>
          {e.waitsBehind.slice(0, 13)}…
        </Link>
      </>
    )
  if (e.lastError && !e.deliveredAt)
    return <span className="line-clamp-2 max-w-80 break-words text-bad">{e.lastError}</span>
  return e.nextRetryAt && !e.deliveredAt ? (
    <>
      retry <Time value={e.nextRetryAt} />
    </>
  ) : null
}
