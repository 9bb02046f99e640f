import { useInfiniteQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ColumnDef } from '@tanstack/react-table'
import { useMemo } from 'react'
import { get } from '../api/client'
import type { Page, Run } from '../api/types'
import { Card, Empty, Failure, Head, Loading, Tag, Time } from '../parts/basics'
import { DataTable } from '../parts/DataTable'

export function Runs() {
  const list = useInfiniteQuery({
    queryKey: ['runs'],
    initialPageParam: '',
    refetchInterval: 10_000,
    queryFn: ({ pageParam, signal }) => get<Page<Run>>('runs', { limit: '50', cursor: pageParam }, signal),
    getNextPageParam: last => last.nextCursor,
  })
  const rows = useMemo(() => list.data?.pages.flatMap(p => p.items ?? []) ?? [], [list.data])
  return (
    <>
      <Head title="Runs" says="Streams of events with a beginning and an end." />
      <Card flush>
        {list.isError ? (
          <Failure error={list.error} retry={() => void list.refetch()} />
        ) : list.isPending ? (
          <Loading what="runs" />
        ) : !rows.length ? (
          <Empty title="No runs">POST /v1/runs makes one.</Empty>
        ) : (
          <DataTable label="Runs" rows={rows} columns={columns} id={r => r.runId} />
        )}
        {list.hasNextPage && (
          <div className="border-t p-3 text-center">
            <button type="button" className="button" onClick={() => void list.fetchNextPage()}>
              Load more
            </button>
          </div>
        )}
      </Card>
    </>
  )
}

const columns: ColumnDef<Run>[] = [
  {
    id: 'id',
    header: 'Run',
    cell: c => (
      <Link className="link mono" to="/runs/$id" params={{ id: c.row.original.runId }}>
        {c.row.original.runId}
      </Link>
    ),
  },
  { id: 'status', header: 'State', cell: c => <Tag>{c.row.original.status}</Tag> },
  { id: 'app', header: 'Of', cell: c => c.row.original.appPackage },
  { id: 'tenant', header: 'Tenant', cell: c => c.row.original.tenant },
  { id: 'events', header: 'Events', cell: c => c.row.original.lastSeq.toString() },
  { id: 'made', header: 'Made', cell: c => <Time value={c.row.original.createdAt} /> },
  {
    id: 'end',
    header: 'Ended',
    cell: c => <Time value={c.row.original.completedAt ?? c.row.original.cancelledAt} />,
  },
]
