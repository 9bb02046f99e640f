// Dead letters: by their error, one by one, and what is done with those that are selected or with all that match.
import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import type { ColumnDef, RowSelectionState } from '@tanstack/react-table'
import { useMemo, useState } from 'react'
import { get } from '../api/client'
import type { Letter, LetterGroup, Page, Search } from '../api/types'
import { Card, Empty, Failure, Field, Head, Loading, Tag, Time } from '../parts/basics'
import { PagedTable, useRows } from '../parts/PagedTable'
import { Span } from '../parts/Span'
import { count, plural } from '../parts/words'
import { entered, useFilters } from '../shell/filters'
import { Discard } from './Discard'
import { LetterDrawer } from './LetterDrawer'
import { Replay } from './Replay'

const names = [
  'source',
  'reason',
  'type',
  'tenant',
  'key',
  'requestId',
  'table',
  'destination',
  'since',
  'until',
  'error',
  'fingerprint',
] as const

// selection names the letters of a filter as the API's bodies do, where reason is why somebody acts.
function selection(filter: Search, ids: string[]) {
  if (ids.length) return { ids }
  const { reason, state, ...rest } = filter
  return { all: true, ...rest, errorReason: reason, discarded: state === 'discarded' || undefined }
}

export function Letters() {
  const [search, set] = useFilters()
  const [selected, setSelected] = useState<RowSelectionState>({})
  const state = search.state ?? 'pending'
  const filter = useMemo(
    () => Object.fromEntries([...names].map(n => [n, search[n]]).filter(([, v]) => v)) as Search,
    [search],
  )
  const change = (next: Search) => {
    setSelected({})
    set(next)
  }
  const groups = useQuery({
    queryKey: ['letters', 'groups', filter, state],
    queryFn: ({ signal }) =>
      get<{ pending: number; replayed: number; discarded: number; groups: LetterGroup[] | null; allGroups: number }>(
        'admin/letters/groups',
        { ...filter, state },
        signal,
      ),
  })
  const list = useInfiniteQuery({
    queryKey: ['letters', 'list', filter, state],
    initialPageParam: '',
    queryFn: ({ pageParam, signal }) =>
      get<Page<Letter>>('admin/letters', { ...filter, state, limit: '100', cursor: pageParam }, signal),
    getNextPageParam: last => last.nextCursor,
  })
  const rows = useRows(list)
  const ids = rows.filter(l => selected[l.id]).map(l => l.id) // not those that have left the list
  const wanted = selection({ ...filter, state }, ids)
  const whose = ids.length ? plural(ids.length, 'selected letter') : 'all that match'
  return (
    <>
      <Head title="Letters" says="What failed for good, kept with its errors until somebody replays or discards it.">
        <div role="group" aria-label="State" className="flex flex-wrap rounded-lg border bg-card p-0.5">
          {(['pending', 'replayed', 'discarded', 'all'] as const).map(s => (
            <button
              key={s}
              type="button"
              aria-pressed={state === s}
              onClick={() => change({ state: s })}
              className={`rounded-md px-3 py-1
                ${state === s ? 'bg-accent-soft font-medium text-accent' : 'text-quiet'}`}
            >
              {s}
              {s !== 'all' && groups.data ? ` ${count(groups.data[s])}` : ''}
            </button>
          ))}
        </div>
      </Head>
      <Filters filter={filter} change={change} />
      <div className="grid items-start gap-4 xl:grid-cols-[22rem_minmax(0,1fr)]">
        <Card
          title="By error"
          count={
            groups.data?.groups &&
            (groups.data.allGroups > groups.data.groups.length
              ? `${count(groups.data.groups.length)} of ${count(groups.data.allGroups)}`
              : groups.data.groups.length)
          }
          flush
          aside={
            filter.fingerprint && (
              <button type="button" className="button small" onClick={() => change({ fingerprint: undefined })}>
                All errors
              </button>
            )
          }
        >
          {groups.isError ? (
            <Failure error={groups.error} retry={() => void groups.refetch()} />
          ) : groups.isPending ? (
            <Loading what="groups" />
          ) : !groups.data.groups?.length ? (
            <Empty title="None" />
          ) : (
            <ul
              className="max-h-[32rem] divide-y overflow-y-auto xl:max-h-[calc(100dvh-16rem)]"
              tabIndex={0}
              aria-label="Groups by error"
            >
              {groups.data.groups.map(g => (
                <li key={g.fingerprint}>
                  <button
                    type="button"
                    aria-pressed={filter.fingerprint === g.fingerprint}
                    onClick={() => change({ fingerprint: g.fingerprint })}
                    className={`grid w-full gap-1 px-4 py-2.5 text-left hover:bg-sunk
                      ${filter.fingerprint === g.fingerprint ? 'bg-accent-soft' : ''}`}
                  >
                    <span className="flex items-baseline gap-2">
                      <span className="font-semibold text-bad tabular-nums">{count(g.count)}</span>
                      <span className="truncate text-quiet">
                        {g.types.map(t => `${count(t.count)} ${t.type} (${t.reason})`).join(', ')}
                      </span>
                    </span>
                    <span className="line-clamp-2 break-words">{g.sample}</span>
                    <span className="text-[12.5px] text-quiet">
                      <Time value={g.oldest} /> to <Time value={g.newest} />
                    </span>
                  </button>
                </li>
              ))}
            </ul>
          )}
        </Card>
        <Card
          title="Letters"
          flush
          aside={
            rows.length > 0 &&
            state !== 'replayed' &&
            (state !== 'all' || ids.length > 0) && (
              <>
                <span className="text-quiet">{whose}</span>
                {ids.length > 0 && (
                  <button type="button" className="button small plain" onClick={() => setSelected({})}>
                    Select all that match
                  </button>
                )}
                {state !== 'discarded' && <Discard selection={wanted} whose={whose} />}
                <Replay selection={wanted} whose={whose} />
              </>
            )
          }
        >
          <PagedTable
            list={list}
            label="Letters"
            rows={rows}
            columns={columns}
            id={l => l.id}
            selected={selected}
            onSelect={setSelected}
            empty={
              <Empty title="No letter matches">
                {state === 'pending' && !Object.keys(filter).length
                  ? 'Nothing failed for good. That is as it should be.'
                  : 'Change the filter or the state.'}
              </Empty>
            }
          />
        </Card>
      </div>
      <LetterDrawer id={search.letter} onClose={() => set({ letter: undefined })} />
    </>
  )
}

const labels: Partial<Record<(typeof names)[number], [string, string]>> = {
  error: ['Error contains', 'connection refused'],
  type: ['Type', 'order.*'],
  key: ['Key', 'order-17'],
  tenant: ['Tenant', 'shop'],
  table: ['Table', 'outbox_events'],
  destination: ['Destination', 'orders'],
  reason: ['Reason', 'rejected'],
  requestId: ['Request id', ''],
}

function Filters({ filter, change }: { filter: Search; change: (next: Search) => void }) {
  const set = Object.keys(filter).length
  return (
    <details className="card mb-4" open={set > 0 && !(set === 1 && filter.fingerprint)}>
      <summary className="px-4 py-2.5 font-medium">
        Filter {set > 0 && <Tag tone="wait">{plural(set, 'condition')}</Tag>}
      </summary>
      <form
        key={JSON.stringify(filter)}
        className="grid grid-cols-2 gap-3 border-t p-4 md:grid-cols-4 xl:grid-cols-6"
        onSubmit={e => {
          e.preventDefault()
          change(entered(e.currentTarget, names))
        }}
      >
        {Object.entries(labels).map(([name, [label, example]], i) => (
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
        <Field label="Source">
          <select className="input" name="source" defaultValue={filter.source ?? ''}>
            <option value="">Any</option>
            <option value="event">Events</option>
            <option value="job">Jobs</option>
          </select>
        </Field>
        <Span filter={filter} />
        <div className="flex items-end gap-2">
          <button type="submit" className="button main">
            Apply
          </button>
          {set > 0 && (
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
    </details>
  )
}

function Open({ letter }: { letter: Letter }) {
  const [, set] = useFilters()
  return (
    <button type="button" className="link block max-w-[34rem] text-left" onClick={() => set({ letter: letter.id })}>
      <span className="line-clamp-2 break-words">{letter.lastError || letter.reason}</span>
    </button>
  )
}

const columns: ColumnDef<Letter>[] = [
  { id: 'at', header: 'When', cell: c => <Time value={c.row.original.at} /> },
  { id: 'error', header: 'Error', cell: c => <Open letter={c.row.original} /> },
  {
    id: 'type',
    header: 'Type',
    cell: c => (
      <>
        {c.row.original.type}
        <br />
        <span className="text-[12.5px] text-quiet">{c.row.original.reason}</span>
      </>
    ),
  },
  { id: 'key', header: 'Key', cell: c => <span className="break-words">{c.row.original.key ?? '–'}</span> },
  { id: 'to', header: 'Destination', cell: c => c.row.original.destination ?? '–' },
  { id: 'attempts', header: 'Attempts', cell: c => count(c.row.original.attempts) },
  { id: 'state', header: 'State', cell: c => <Tag>{c.row.original.state}</Tag> },
]
