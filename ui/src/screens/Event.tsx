// One event: its life in words, step by step, and what it carries.
import { useQuery } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import { useState, type ReactNode } from 'react'
import { getText, poll } from '../api/client'
import { parse } from '../api/json'
import type { EventDetail, OneEvent } from '../api/types'
import { Card, Copy, Facts, Failure, Head, Loading, Scroll, Tag, Time } from '../parts/basics'
import { Json } from '../parts/Json'
import { bytes, count, toneOf, type Tone } from '../parts/words'
import { useFilters } from '../shell/filters'
import { Retry, Skip } from './EventActs'

export function Event() {
  const { id } = useParams({ strict: false }) as { id: string }
  const [{ table, tenant }] = useFilters()
  const query = useQuery<OneEvent>({
    queryKey: ['event', id, table, tenant],
    refetchInterval: q => (q.state.data?.event.deliveredAt ? false : 3000),
    queryFn: ({ signal }) => poll<OneEvent>(3, `admin/events/${encodeURIComponent(id)}`, { table, tenant }, signal),
  })
  const [acting, setActing] = useState(false)
  if (query.isError)
    return (
      <>
        <Head title="Event" says={<span className="mono">{id}</span>} />
        <Failure error={query.error} retry={() => void query.refetch()} />
      </>
    )
  if (!query.data) return <Loading what="the event" />
  const { event: e, says, table: of } = query.data
  const one = { table: of, ids: [e.id] }
  return (
    <>
      <Head
        title={e.topic}
        says={
          <>
            <span className="mono break-all">{e.id}</span> <Copy text={e.id} />
          </>
        }
      >
        <Tag>{e.status}</Tag>
        {(!e.deliveredAt || acting) && (
          <>
            <Retry selection={one} whose="this event" onActing={setActing} />
            <Skip selection={one} whose="this event" onActing={setActing} />
          </>
        )}
      </Head>
      <div className="grid items-start gap-4 xl:grid-cols-[minmax(0,1fr)_26rem]">
        <div className="grid gap-4">
          <Card title="Why">
            <ul className="grid gap-1.5">
              {(says ?? []).map((line, i) => (
                <li key={i} className="break-words first:text-base first:font-medium">
                  {line}
                </li>
              ))}
            </ul>
          </Card>
          <Card title="Timeline">
            <ol>
              {steps(e).map((s, i) => (
                <Step key={i} {...s} />
              ))}
            </ol>
          </Card>
          {e.deliveries?.length ? <Deliveries event={e} /> : null}
          <Card title="Payload" count={bytes(query.data.payloadBytes)}>
            <Payload one={query.data} tenant={tenant} />
          </Card>
          {e.metadata !== undefined && e.metadata !== null && (
            <Card title="Metadata">
              <Json value={e.metadata} label="Metadata" />
            </Card>
          )}
        </div>
        <Card title="Facts">
          <Facts
            rows={[
              [
                'Table',
                <Link className="link" to="/events" search={{ table: of }}>
                  {of}
                </Link>,
              ],
              ['Position', e.position.toString()],
              [
                'Key',
                e.key && (
                  <Link className="link break-all" to="/events" search={{ table: of, key: e.key }}>
                    {e.key}
                  </Link>
                ),
              ],
              ['Aggregate', e.aggregateType],
              ['Tenant', e.tenant],
              ['Source', e.source],
              ['Lane', e.lane?.toString()],
              ['Sequence', e.sequence?.toString()],
              ['Generation', e.generation?.toString()],
              ['Schema', [e.schemaId, e.schemaVersion?.toString()].filter(Boolean).join(', version ')],
              ['Occurred', e.occurredAt && <Time both value={e.occurredAt} />],
              ['Attempts', count(e.attempts)],
              ['Goes to', e.destinations?.join(', ')],
              ['Delivered to', e.deliveredTo?.join(', ')],
              [
                'Waits behind',
                e.waitsBehind && (
                  <Link
                    className="link mono break-all"
                    to="/events/$id"
                    params={{ id: e.waitsBehind }}
                    search={{ table: of }}
                  >
                    {e.waitsBehind}
                  </Link>
                ),
              ],
              [
                'Letters',
                <Link className="link" to="/letters" search={{ letter: e.id, state: 'all' }}>
                  of this event
                </Link>,
              ],
            ]}
          />
        </Card>
      </div>
    </>
  )
}

interface StepProps {
  at?: string
  title: string
  says?: ReactNode
  tone: Tone
}
const dots: Record<Tone, string> = {
  good: 'bg-good',
  wait: 'bg-wait',
  warn: 'bg-warn',
  bad: 'bg-bad',
  quiet: 'bg-strong',
}

function steps(e: EventDetail): StepProps[] {
  const all: StepProps[] = [
    { at: e.occurredAt !== e.writtenAt ? e.occurredAt : undefined, title: 'Occurred', tone: 'quiet' },
    { at: e.writtenAt, title: 'Written', says: 'with the transaction of its producer', tone: 'wait' },
    ...(e.errorHistory ?? []).map((a, i): StepProps => ({
      at: a.timestamp,
      title: `Attempt ${i + 1} failed`,
      says: a.error,
      tone: 'bad',
    })),
    ...(e.deliveries ?? [])
      .filter(d => d.deliveredAt)
      .map((d): StepProps => ({
        at: d.deliveredAt,
        title: `Delivered to ${d.sink}`,
        says: d.destination,
        tone: 'good',
      })),
    { at: e.deliveredAt, title: 'Delivered', says: e.deliveredTo?.join(', '), tone: 'good' },
  ]
  const past = all.filter(s => s.at).sort((a, b) => Date.parse(a.at!) - Date.parse(b.at!))
  if (e.deliveredAt) return past
  if (toneOf(e.status) === 'bad' && !e.nextRetryAt)
    return [...past, { title: 'Given up', says: e.lastError, tone: 'bad' }]
  return [
    ...past,
    {
      at: e.nextRetryAt,
      title: e.paused ? 'Paused' : e.nextRetryAt ? 'Next attempt' : 'Waits for its relay',
      tone: 'warn',
    },
  ]
}

function Step({ at, title, says, tone }: StepProps) {
  return (
    <li className="relative flex gap-3 pb-4 last:pb-0 [&:not(:last-child)]:before:absolute
      [&:not(:last-child)]:before:top-4 [&:not(:last-child)]:before:bottom-0
      [&:not(:last-child)]:before:left-[5px] [&:not(:last-child)]:before:w-px
      [&:not(:last-child)]:before:bg-line">
      <span className={`mt-[5px] size-[11px] shrink-0 rounded-full ${dots[tone]}`} />
      <div className="min-w-0">
        <p className="font-medium">
          {title}{' '}
          {at && (
            <span className="ml-1 text-[12.5px] font-normal text-quiet">
              <Time both value={at} />
            </span>
          )}
        </p>
        {says && <p className={`break-words ${tone === 'bad' ? 'text-bad' : 'text-quiet'}`}>{says}</p>}
      </div>
    </li>
  )
}

function Deliveries({ event }: { event: EventDetail }) {
  return (
    <Card title="Deliveries" count={event.deliveries?.length} flush>
      <Scroll label="Deliveries">
        <table className="grid-table">
          <thead>
            <tr>
              <th scope="col">Sink</th>
              <th scope="col">Destination</th>
              <th scope="col">State</th>
              <th scope="col" className="num">
                Attempts
              </th>
              <th scope="col">Next</th>
              <th scope="col">Last error</th>
            </tr>
          </thead>
          <tbody>
            {event.deliveries!.map(d => (
              <tr key={d.sink + d.destination}>
                <td className="font-medium">{d.sink}</td>
                <td>{d.destination}</td>
                <td>
                  <Tag>{d.status}</Tag> {d.paused && <Tag tone="warn">paused</Tag>}
                </td>
                <td className="num">{count(d.attempts)}</td>
                <td>
                  <Time value={d.deliveredAt ?? d.nextRetryAt} />
                </td>
                <td className="break-words text-bad">{d.lastError}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Card>
  )
}

function Payload({ one, tenant }: { one: OneEvent; tenant?: string }) {
  const [whole, setWhole] = useState(false)
  const id = one.event.id
  const all = useQuery({
    queryKey: ['payload', id, one.table],
    enabled: whole,
    queryFn: ({ signal }) =>
      getText(`admin/events/${encodeURIComponent(id)}/payload`, { table: one.table, tenant }, signal),
  })
  if (!one.payloadCut) return <Json value={one.event.payload} label="Payload" />
  if (all.isError) return <Failure error={all.error} retry={() => void all.refetch()} />
  if (all.data !== undefined)
    return <Json value={all.data.length > 1 << 20 ? all.data : pretty(all.data)} label="Payload" />
  return (
    <p>
      It is large, and not loaded.{' '}
      <button type="button" className="button small" disabled={all.isFetching} onClick={() => setWhole(true)}>
        Load {bytes(one.payloadBytes)}
      </button>
    </p>
  )
}

function pretty(text: string): unknown {
  try {
    return parse(text)
  } catch {
    return text
  }
}
