import { useInfiniteQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ColumnDef } from '@tanstack/react-table'
import { get } from '../api/client'
import type { Page, Run } from '../api/types'
import { Card, Empty, Head, Tag, Time } from '../parts/basics'
import { PagedTable, useRows } from '../parts/PagedTable'

export function Runs() {
  const list = useInfiniteQuery({
    queryKey: ['runs'],
    initialPageParam: '',
    refetchInterval: 10_000,
    queryFn: ({ pageParam, signal }) => get<Page<Run>>('runs', { limit: '50', cursor: pageParam }, signal),
    getNextPageParam: last => last.nextCursor,
  })
  const rows = useRows(list)
  return (
    <>
      <Head title="Runs" says="Streams of events with a beginning and an end." />
      <Card flush>
        <PagedTable
          list={list}
          label="Runs"
          rows={rows}
          columns={columns}
          id={r => r.runId}
          empty={
            <Empty title="No runs">POST /v1/runs makes one.</Empty>
          }
        />
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
