// All that is wrong just then, and what could not be looked at.
import { useQuery } from '@tanstack/react-query'
import { get } from '../api/client'
import type { Finding, Severity, Unseen } from '../api/types'
import { Card, Empty, Failure, Head, Loading, Tag, Time } from '../parts/basics'
import { merged } from '../parts/findings'
import { useFilters } from '../shell/filters'
import { Found, tones } from './Overview'

interface Report {
  at: string
  worst: Severity
  findings: Finding[] | null
  unseen: Unseen[] | null
  asked: number
}

export function Conditions() {
  const [{ category }, set] = useFilters()
  const report = useQuery({
    queryKey: ['conditions'],
    queryFn: ({ signal }) => get<Report>('admin/conditions', undefined, signal),
    staleTime: 0,
  })
  const findings = merged(report.data?.findings ?? [])
  const categories = [...new Set(findings.map(f => f.category))].sort()
  const shown = category ? findings.filter(f => f.category === category) : findings
  const unseen = report.data?.unseen ?? []
  return (
    <>
      <Head
        title="Conditions"
        says={
          report.data ? (
            <>
              {report.data.asked} conditions examined <Time value={report.data.at} />. outbox doctor says the same.
            </>
          ) : (
            'outbox doctor says the same.'
          )
        }
      >
        {categories.length > 1 && (
          <select
            className="input !w-auto"
            aria-label="Category"
            value={category ?? ''}
            onChange={e => set({ category: e.target.value })}
          >
            <option value="">All categories</option>
            {categories.map(c => (
              <option key={c}>{c}</option>
            ))}
          </select>
        )}
        <button type="button" className="button" disabled={report.isFetching} onClick={() => void report.refetch()}>
          {report.isFetching ? 'Examining …' : 'Examine again'}
        </button>
      </Head>
      <div className="grid gap-4">
        {report.isError ? (
          <Failure error={report.error} retry={() => void report.refetch()} />
        ) : report.isPending ? (
          <Card>
            <Loading what="conditions" />
          </Card>
        ) : (
          <>
            <Card
              title="Found"
              count={shown.length}
              aside={<Tag tone={tones[report.data.worst]}>{report.data.worst}</Tag>}
              flush
            >
              {shown.length ? (
                <ul className="divide-y border-t">
                  {shown.map(f => (
                    <Found key={f.id + f.about} finding={f} />
                  ))}
                </ul>
              ) : (
                <Empty title={unseen.length ? 'No finding' : 'Healthy'}>No check has found a problem.</Empty>
              )}
            </Card>
            <Card title="Checks that could not run" count={unseen.length} flush>
              {unseen.length ? (
                <ul className="divide-y border-t">
                  {unseen.map(u => (
                    <li key={(u.id ?? '') + u.name} className="px-5 py-2.5">
                      <Tag tone={u.state === 'unknown' ? 'warn' : 'quiet'}>{u.state}</Tag>{' '}
                      <span className="mono text-quiet">{u.id}</span> <span className="font-medium">{u.name}</span>
                      <p className="text-quiet">{u.why}</p>
                    </li>
                  ))}
                </ul>
              ) : (
                <Empty title="All checks ran" />
              )}
            </Card>
          </>
        )}
      </div>
    </>
  )
}
