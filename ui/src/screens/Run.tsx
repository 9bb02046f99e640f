// One run, live by the stream that pages of its users read too.
import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { get, listen, Problem } from '../api/client'
import type { Run as State, RunEvent } from '../api/types'
import { Card, Copy, Empty, Failure, Head, Loading, Tag, Time } from '../parts/basics'
import { Json } from '../parts/Json'
import { count } from '../parts/words'

const kept = 5000

export function Run() {
  const { id } = useParams({ strict: false }) as { id: string }
  const run = useQuery({
    queryKey: ['run', id],
    refetchInterval: 5000,
    queryFn: ({ signal }) => get<State>(`runs/${encodeURIComponent(id)}`, undefined, signal),
  })
  const [events, error] = useRunEvents(id)
  return (
    <>
      <Head
        title="Run"
        says={
          <>
            <span className="mono break-all">{id}</span> <Copy text={id} />
          </>
        }
      >
        {run.data && <Tag>{run.data.status}</Tag>}
      </Head>
      {run.isError ? <Failure error={run.error} /> : null}
      {run.data?.error && <p className="mb-4 rounded-lg bg-bad-soft px-4 py-3 text-bad">{run.data.error}</p>}
      <Card title="Events" count={count(events?.length)} flush>
        {error ? (
          <Failure error={error} />
        ) : !events ? (
          <Loading what="events" />
        ) : !events.length ? (
          <Empty title="No events so far">They appear as they are appended.</Empty>
        ) : (
          <ol className="divide-y border-t">
            {events.toReversed().map(e => (
              <li key={e.seq.toString()}>
                <details>
                  <summary className="flex items-center gap-3 px-4 py-2">
                    <span className="w-10 text-right text-quiet tabular-nums">{e.seq.toString()}</span>
                    <span className="font-medium">{e.type}</span>
                    <span className="ml-auto text-quiet">
                      <Time value={e.createdAt} />
                    </span>
                  </summary>
                  <div className="px-4 pb-3">
                    <Json value={e.payload} label="Payload" />
                  </div>
                </details>
              </li>
            ))}
          </ol>
        )}
      </Card>
    </>
  )
}

// useRunEvents reads what there is, page by page, and then again whenever the stream says that there is more.
function useRunEvents(id: string): [RunEvent[] | undefined, unknown] {
  const [events, setEvents] = useState<RunEvent[]>()
  const [error, setError] = useState<unknown>()
  useEffect(() => {
    const stop = new AbortController()
    let all: RunEvent[] = []
    let reading = Promise.resolve()
    const read = async () => {
      for (let more = true; more;) {
        const after = all.at(-1)?.seq.toString() ?? '0'
        const page = await get<{ items: RunEvent[] }>(`runs/${encodeURIComponent(id)}/events`, { after }, stop.signal)
        all = [...all, ...page.items].slice(-kept)
        more = page.items.length > 0
      }
      setEvents(all)
    }
    const next = () => {
      reading = reading.then(read)
      return reading
    }
    const fail = (e: unknown) => {
      if (!stop.signal.aborted) setError(e)
    }
    void (async () => {
      while (!stop.signal.aborted) {
        await next()
        try {
          const last = all.length ? `?lastEventId=${all.at(-1)!.seq}` : ''
          const path = `runs/${encodeURIComponent(id)}/stream${last}`
          if (!(await listen(path, () => void next().catch(fail), stop.signal))) return
        } catch (e) {
          if (stop.signal.aborted || (e instanceof Problem && e.status >= 400 && e.status < 500)) throw e
        }
        await new Promise(resolve => setTimeout(resolve, 2000))
      }
    })().catch(fail)
    return () => stop.abort()
  }, [id])
  return [events, error]
}
