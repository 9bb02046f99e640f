// The first screen: what is wrong, since when, what it holds up, and what to do.
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useMemo, type ReactNode } from 'react'
import { poll, post } from '../api/client'
import { useHistory, useOverview } from '../api/live'
import type { Finding, LetterGroup, Overview as State, Sample, Severity, SinkState, TableState } from '../api/types'
import { Act, useHeld } from '../parts/Act'
import { Card, Empty, Failure, Head, Icon, Loading, Scroll, Tag, Time } from '../parts/basics'
import { Chart, palette, type Line } from '../parts/Chart'
import { merged } from '../parts/findings'
import { count, duration, plural, rate, type Tone } from '../parts/words'
import { useFilters } from '../shell/filters'
import { useConnected } from '../shell/Shell'
import { PauseList } from './PauseList'

export const tones: Record<Severity, Tone> = {
  healthy: 'good',
  advice: 'wait',
  warning: 'warn',
  unknown: 'warn',
  critical: 'bad',
}
const sinkTones: Record<SinkState['state'], Tone> = { available: 'good', slow: 'warn', unknown: 'quiet', down: 'bad' }
const looks: Record<Severity, { soft: string; text: string; icon: string }> = {
  healthy: { soft: 'bg-good-soft', text: 'text-good', icon: 'M5 12.5l4.5 4.5L19 7.5' },
  advice: { soft: 'bg-wait-soft', text: 'text-wait', icon: 'M12 11v6M12 7h.01' },
  unknown: { soft: 'bg-warn-soft', text: 'text-warn', icon: 'M9 9a3 3 0 1 1 4 2.8c-.7.3-1 .9-1 1.7M12 17h.01' },
  warning: { soft: 'bg-warn-soft', text: 'text-warn', icon: 'M12 6v8M12 18h.01' },
  critical: { soft: 'bg-bad-soft', text: 'text-bad', icon: 'M12 6v8M12 18h.01' },
}

export function Overview() {
  const { data, error, refetch } = useOverview()
  if (error && !data)
    return (
      <>
        <Head title="Overview" />
        <Failure error={error} retry={() => void refetch()} />
      </>
    )
  if (!data) return <Loading what="the overview" />
  return (
    <div className="grid gap-4">
      <Health state={data} />
      <div className={`grid gap-4 ${data.error ? 'stale' : ''}`}>
        <Numbers state={data} />
        <Charts />
        <Tables state={data} />
        <div className="grid gap-4 xl:grid-cols-2">
          <Blocked state={data} />
          <Fingerprints />
        </div>
        <div className="grid gap-4 xl:grid-cols-2">
          <Sinks state={data} />
          <Relays state={data} />
        </div>
        <Card title="Pauses" flush>
          <PauseList pauses={data.pauses ?? []} />
        </Card>
      </div>
    </div>
  )
}

function Health({ state }: { state: State }) {
  const connected = useConnected()
  const findings = merged(state.findings ?? [])
  const look = looks[state.worst] ?? looks.unknown
  return (
    <section className="card overflow-hidden" aria-label="Health">
      <div className={`flex gap-4 px-5 py-5 ${look.soft}`}>
        <span className={`mt-0.5 grid size-9 shrink-0 place-items-center rounded-full bg-card ${look.text}`}>
          <Icon d={look.icon} size={20} />
        </span>
        <div className="min-w-0 flex-1">
          <h1
            aria-live="polite"
            className={`text-[22px] leading-snug font-semibold tracking-tight text-balance md:text-[26px] ${look.text}`}
          >
            {state.sentence}
          </h1>
          <p className="mt-1 flex flex-wrap items-center gap-x-3 text-[12.5px] text-quiet">
            <span className="inline-flex items-center gap-1.5">
              <span className={`size-2 rounded-full ${connected && !state.error ? 'pulse bg-good' : 'bg-warn'}`} />
              {connected ? 'Live' : 'No news from the server'}
            </span>
            <span>
              {state.error ? 'The figures below are of ' : 'As of '}
              <Time value={state.at} />
            </span>
            {state.examinedAt && (
              <span>
                All checks <Time value={state.examinedAt} />
              </span>
            )}
            {state.unseen?.length ? (
              <Link className="link" to="/conditions">
                {plural(state.unseen.length, 'fact')} not known
              </Link>
            ) : null}
          </p>
        </div>
      </div>
      {findings.length > 0 && (
        <ul className="divide-y">
          {findings.slice(0, 3).map(f => (
            <Found key={f.id + f.about} finding={f} />
          ))}
          {findings.length > 3 && (
            <li className="px-5 py-2.5">
              <Link className="link" to="/conditions">
                {plural(findings.length - 3, 'more condition')}
              </Link>
            </li>
          )}
        </ul>
      )}
    </section>
  )
}

export function Found({ finding }: { finding: Finding }) {
  return (
    <li className="grid gap-x-5 gap-y-1 px-5 py-3 md:grid-cols-[minmax(0,1fr)_minmax(0,1fr)]">
      <div className="min-w-0">
        <p className="flex flex-wrap items-center gap-x-2 gap-y-1">
          <Tag tone={tones[finding.severity]}>{finding.severity}</Tag>
          <span className="font-medium break-words">{finding.about}</span>
          <span className="mono text-quiet">{finding.id}</span>
          {finding.since && (
            <span className="text-[12.5px] text-quiet">
              since <Time value={finding.since} />
            </span>
          )}
        </p>
        <p className="mt-1 break-words first-letter:uppercase">{finding.says}</p>
      </div>
      <div className="min-w-0 md:border-l md:pl-5">
        <p className="text-[12.5px] font-medium text-quiet">What to do</p>
        <p className="break-words">
          {finding.remedy}{' '}
          {finding.see && (
            <a className="link" href={finding.see} target="_blank" rel="noreferrer">
              Runbook
            </a>
          )}
        </p>
      </div>
    </li>
  )
}

function Numbers({ state }: { state: State }) {
  const tables = state.tables ?? []
  const sum = (pick: (t: TableState) => number | undefined) => tables.reduce((total, t) => total + (pick(t) ?? 0), 0)
  const sinks = state.sinks ?? []
  const pending = (pick: (s: SinkState) => number | undefined) => sinks.reduce((total, s) => total + (pick(s) ?? 0), 0)
  const oldest = Math.max(0, ...[...tables, ...sinks].map(t => t.oldestSeconds ?? 0))
  const blocked = sum(t => t.held) + pending(s => s.held)
  return (
    <dl className="grid grid-cols-2 gap-px overflow-hidden rounded-xl border bg-line lg:grid-cols-6">
      <Number
        name="Waiting"
        value={count(
          sum(t => t.backlog) + pending(s => s.owed),
          tables.some(t => t.bounded),
        )}
        says="not delivered, pending deliveries included"
      />
      <Number
        name="Oldest"
        value={oldest ? duration(oldest) : '0 s'}
        says="the longest wait"
        tone={oldest > 120 ? 'text-bad' : oldest > 60 ? 'text-warn' : ''}
      />
      <Number name="Written" value={`${rate(sum(t => t.writtenPerSecond))}/s`} says="all tables" />
      <Number name="Delivered" value={`${rate(sum(t => t.deliveredPerSecond))}/s`} says="all tables" />
      <Number
        name="Blocked"
        value={count(blocked)}
        says={`behind ${plural(sum(t => t.heldKeys) + pending(s => s.heldKeys), 'failing key')}`}
        tone={blocked ? 'text-warn' : ''}
      />
      <Number
        name="Dead letters"
        value={count(state.letters?.pending, state.letters?.bounded)}
        says="pending"
        tone={state.letters?.pending ? 'text-bad' : ''}
      />
    </dl>
  )
}

function Number({ name, value, says, tone = '' }: { name: string; value: string; says: string; tone?: string }) {
  return (
    <div className="bg-card px-4 py-3">
      <dt className="text-[12.5px] text-quiet">{name}</dt>
      <dd className={`text-[22px] leading-tight font-semibold tracking-tight tabular-nums ${tone}`}>{value}</dd>
      <dd className="text-[12.5px] text-quiet">{says}</dd>
    </div>
  )
}

function Charts() {
  const { data = [] } = useHistory()
  const [{ table = '' }, set] = useFilters()
  const names = useMemo(() => [...new Set(data.flatMap(s => Object.keys(s.tables)))].sort(), [data])
  const shown = names.includes(table) ? [table] : names
  const times = useMemo(() => data.map(s => Date.parse(s.at) / 1000), [data])
  const total = (pick: (t: Sample['tables'][string]) => number | undefined) =>
    data.map(s => {
      const values = shown
        .flatMap(name => (s.tables[name] ? [pick(s.tables[name])] : []))
        .filter(v => v !== undefined)
      return values.length ? values.reduce((a, b) => a + b, 0) : null
    })
  const flow: Line[] = [
    { name: 'Written', colour: '--wait', values: total(t => t.writtenPerSecond), fill: true },
    { name: 'Delivered', colour: '--good', values: total(t => t.deliveredPerSecond) },
  ]
  const lag: Line[] = shown.slice(0, palette.length).map((name, i) => ({
    name,
    colour: palette[i],
    values: data.map(s => (s.tables[name] ? Math.max(0.01, s.tables[name].oldestSeconds ?? 0.01) : null)),
  }))
  const choose = names.length > 1 && (
    <select
      className="input !min-h-7 !w-auto !py-0 text-[12.5px]"
      aria-label="Tables of the charts"
      value={table}
      onChange={e => set({ table: e.target.value })}
    >
      <option value="">All tables</option>
      {names.map(name => (
        <option key={name}>{name}</option>
      ))}
    </select>
  )
  const waiting = (
    <Empty title="Measuring">A sample a second, from when somebody looks. Up to 15 minutes are kept.</Empty>
  )
  return (
    <div className="grid gap-4 lg:grid-cols-2">
      <Card title="Throughput" count="events a second" aside={choose}>
        {times.length > 1 ? (
          <Chart times={times} lines={flow} format={v => (isNaN(v) ? '–' : rate(v))} label="Throughput" />
        ) : (
          waiting
        )}
      </Card>
      <Card title="Lag" count="age of the oldest that waits, log scale">
        {times.length > 1 ? (
          <Chart
            times={times}
            lines={lag}
            log
            format={v => (isNaN(v) ? '–' : v <= 0.01 ? '0' : duration(v))}
            label="Lag"
          />
        ) : (
          waiting
        )}
      </Card>
    </div>
  )
}

const Row = ({ head, rows, label }: { head: ReactNode; rows: ReactNode; label: string }) => (
  <Scroll label={label}>
    <table className="grid-table">
      <thead>
        <tr>{head}</tr>
      </thead>
      <tbody>{rows}</tbody>
    </table>
  </Scroll>
)

function Tables({ state }: { state: State }) {
  const tables = state.tables ?? []
  return (
    <Card title="Tables" count={tables.length} flush>
      {!tables.length ? (
        <Empty title="No table is served">Name one with --table, or run outbox migrate up.</Empty>
      ) : (
        <Row
          label="Tables"
          head={
            <>
              <th scope="col">Table</th>
              <th scope="col">Sink</th>
              <th scope="col" className="num">
                Waiting
              </th>
              <th scope="col" className="num">
                Oldest
              </th>
              <th scope="col" className="num">
                Written/s
              </th>
              <th scope="col" className="num">
                Delivered/s
              </th>
              <th scope="col" className="num">
                Retrying
              </th>
              <th scope="col" className="num">
                Held
              </th>
              <th scope="col">Relays</th>
              <th scope="col">Lanes</th>
            </>
          }
          rows={tables.map(t => (
            <tr key={t.table + (t.group ?? '')}>
              <td>
                <Link className="link font-medium" to="/events" search={{ table: t.table }}>
                  {t.table}
                </Link>
                <span className="ml-2 inline-flex gap-1">
                  {t.paused && <Tag tone="warn">paused</Tag>}
                  {t.log && <Tag>log</Tag>}
                  {t.hidden && (
                    <Tag tone="warn" title={t.why}>
                      not known
                    </Tag>
                  )}
                </span>
              </td>
              <td className="mono whitespace-nowrap">{t.group ? `group ${t.group}` : t.sink}</td>
              <td className="num font-medium">{t.hidden ? '?' : count(t.backlog, t.bounded)}</td>
              <td className={`num ${(t.oldestSeconds ?? 0) > 120 ? 'text-bad font-medium' : ''}`}>
                {duration(t.oldestSeconds)}
              </td>
              <td className="num">{rate(t.writtenPerSecond)}</td>
              <td className="num">{rate(t.deliveredPerSecond)}</td>
              <td className="num">{count(t.retrying)}</td>
              <td className="num">{t.held ? `${count(t.held)} (${plural(t.heldKeys, 'key')})` : '0'}</td>
              <td>{t.relays?.length ? count(t.relays.length) : <Tag tone="bad">{t.group ? 'no process' : 'no relay'}</Tag>}</td>
              <td>
                <Lanes
                  held={(t.relays ?? []).reduce((n, r) => n + r.lanes, 0)}
                  free={t.freeLanes}
                  lapsed={t.lapsedLanes}
                />
              </td>
            </tr>
          ))}
        />
      )}
    </Card>
  )
}

function Lanes({ held, free, lapsed }: { held: number; free: number; lapsed: number }) {
  const all = Math.max(1, held + free + lapsed)
  return (
    <span className="flex items-center gap-2 whitespace-nowrap">
      <span className="flex h-2 w-20 overflow-hidden rounded bg-quiet-soft" aria-hidden="true">
        <span className="bg-good" style={{ width: `${(100 * held) / all}%` }} />
        <span className="bg-bad" style={{ width: `${(100 * lapsed) / all}%` }} />
      </span>
      <span className="text-[12.5px] text-quiet">
        {held} of {all} served{lapsed ? `, ${lapsed} expired` : ''}
      </span>
    </span>
  )
}

function Sinks({ state }: { state: State }) {
  const sinks = state.sinks ?? []
  return (
    <Card title="Sinks" count={sinks.length} flush>
      {!sinks.length ? (
        <Empty title="No sink is set" />
      ) : (
        <ul className="divide-y">
          {sinks.map(s => (
            <li key={s.name} className="grid gap-1 px-4 py-2.5">
              <p className="flex flex-wrap items-center gap-x-2 gap-y-1">
                <Tag
                  tone={sinkTones[s.state]}
                  title={s.state === 'unknown' ? 'No live relay reports this sink.' : undefined}
                >
                  {s.state}
                </Tag>
                <span className="font-medium">{s.name}</span>
                <span className="mono min-w-0 truncate text-quiet">{s.url}</span>
                <span className="ml-auto text-[12.5px] text-quiet tabular-nums">
                  {[
                    `${count(s.owed)} not delivered yet`,
                    s.retrying && `${count(s.retrying)} retrying`,
                    s.oldestSeconds && `oldest ${duration(s.oldestSeconds)}`,
                    s.dead && `${count(s.dead)} dead`,
                  ]
                    .filter(Boolean)
                    .join(' · ')}
                </span>
              </p>
              {s.reason && (
                <p className="break-words text-bad">
                  {s.reason}{' '}
                  {s.since && (
                    <span className="text-quiet">
                      · since <Time value={s.since} />
                    </span>
                  )}
                </p>
              )}
            </li>
          ))}
        </ul>
      )}
    </Card>
  )
}

function Blocked({ state }: { state: State }) {
  const [blocked, hold] = useHeld(state.blocked ?? [], e => e.table + (e.to ?? '') + e.id)
  return (
    <Card title="Blocked keys" count={blocked.length || undefined} flush>
      {!blocked.length ? (
        <Empty title="No key is blocked">
          An event that is retried holds back the later events of its key. None does.
        </Empty>
      ) : (
        <ul className="divide-y">
          {blocked.map(e => (
            <li key={e.table + (e.to ?? '') + e.id} className="flex flex-wrap items-start gap-x-4 gap-y-2 px-4 py-2.5">
              <div className="min-w-0 flex-1">
                <p className="flex flex-wrap items-center gap-x-2">
                  <Link className="link font-medium" to="/events" search={{ table: e.table, key: e.key }}>
                    {e.key ?? 'no key'}
                  </Link>
                  <span className="text-quiet">{[e.topic, e.to && `to ${e.to}`].filter(Boolean).join(' ')}</span>
                  <span className="text-[12.5px] text-quiet">
                    {plural(e.attempts, 'attempt')} · next <Time value={e.nextRetryAt} />
                  </span>
                </p>
                <p className="line-clamp-2 break-words text-bad">{e.error}</p>
                <Link className="link mono" to="/events/$id" params={{ id: e.id }} search={{ table: e.table }}>
                  {e.id}
                </Link>
              </div>
              <Act
                small
                label="Retry now"
                title={`Retry ${e.id} now`}
                onActing={acting => hold(e, acting)}
                act={async reason => {
                  const { events } = await post<{ events: number }>('admin/events/retry', {
                    table: e.table,
                    to: e.to,
                    ids: [e.id],
                    reason,
                  })
                  return events
                    ? 'It is due now. The relay that serves its lane takes it next.'
                    : 'Nothing was left to retry: it has been delivered or given up.'
                }}
              >
                It becomes due at once, with all of its attempts kept.
              </Act>
            </li>
          ))}
        </ul>
      )}
    </Card>
  )
}

function Fingerprints() {
  const groups = useQuery({
    queryKey: ['letters', 'groups', {}],
    refetchInterval: 15_000,
    queryFn: ({ signal }) =>
      poll<{ groups: LetterGroup[] | null }>(15, 'admin/letters/groups', { state: 'pending' }, signal),
  })
  const found = groups.data?.groups ?? []
  return (
    <Card
      title="Dead letters by error"
      count={found.length || undefined}
      aside={
        <Link className="link" to="/letters">
          All dead letters
        </Link>
      }
      flush
    >
      {groups.isError ? (
        <Failure error={groups.error} />
      ) : groups.isPending ? (
        <Loading what="letters" />
      ) : !found.length ? (
        <Empty title="No dead letters">
          An event that fails permanently is listed here by its error until an operator replays or discards it.
        </Empty>
      ) : (
        <ul className="divide-y">
          {found.slice(0, 8).map(g => (
            <li key={g.fingerprint} className="flex gap-3 px-4 py-2.5">
              <span className="min-w-12 text-right text-[15px] font-semibold text-bad tabular-nums">
                {count(g.count)}
              </span>
              <div className="min-w-0">
                <Link className="link line-clamp-2 break-words" to="/letters" search={{ fingerprint: g.fingerprint }}>
                  {g.sample}
                </Link>
                <p className="text-[12.5px] text-quiet">
                  {g.types.map(t => `${t.type} (${t.reason})`).join(', ')} · newest <Time value={g.newest} />
                </p>
              </div>
            </li>
          ))}
        </ul>
      )}
    </Card>
  )
}

function Relays({ state }: { state: State }) {
  const relays = (state.tables ?? []).flatMap(t => (t.relays ?? []).map(r => ({ ...r, table: t.table })))
  return (
    <Card title="Relays and leases" count={relays.length} flush>
      {!relays.length ? (
        <Empty title="No relay is connected">
          Events wait safely in their tables. Start one with outbox relay or outbox serve.
        </Empty>
      ) : (
        <Row
          label="Relays"
          head={
            <>
              <th scope="col">Relay</th>
              <th scope="col">Table</th>
              <th scope="col" className="num">
                Lanes
              </th>
              <th scope="col" className="num">
                Lease ends in
              </th>
              <th scope="col">Joined</th>
            </>
          }
          rows={relays.map(r => (
            <tr key={r.owner + r.table}>
              <td>
                <span className="font-medium">{r.name || r.owner}</span>
              </td>
              <td>{r.table}</td>
              <td className="num">
                {r.lanes}
                {r.share !== undefined && r.share !== r.lanes ? ` of ${r.share}` : ''}
              </td>
              <td className="num">{duration(r.expiresInSeconds)}</td>
              <td>
                <Time value={r.joinedAt} />
              </td>
            </tr>
          ))}
        />
      )}
    </Card>
  )
}
