// What somebody has paused, and pausing more.
import { useQuery } from '@tanstack/react-query'
import { useRef, useState } from 'react'
import { poll, post } from '../api/client'
import { useOverview } from '../api/live'
import type { Page, Pause } from '../api/types'
import { Act } from '../parts/Act'
import { Card, Failure, Field, Head, Loading } from '../parts/basics'
import { entered } from '../shell/filters'
import { PauseList, whatIsPaused } from './PauseList'

export function Pauses() {
  const pauses = useQuery({
    queryKey: ['pauses'],
    refetchInterval: 10_000,
    queryFn: ({ signal }) => poll<Page<Pause>>(10, 'admin/pauses', undefined, signal),
  })
  return (
    <>
      <Head title="Pauses" says="What is paused waits in its table, in its order, and nothing is lost." />
      <div className="grid items-start gap-4 xl:grid-cols-[minmax(0,1fr)_26rem]">
        <Card title="Paused" count={pauses.data?.items?.length} flush>
          {pauses.isError ? (
            <Failure error={pauses.error} retry={() => void pauses.refetch()} />
          ) : pauses.isPending ? (
            <Loading what="pauses" />
          ) : (
            <PauseList pauses={pauses.data.items ?? []} />
          )}
        </Card>
        <NewPause />
      </div>
    </>
  )
}

function NewPause() {
  const { data } = useOverview()
  const form = useRef<HTMLFormElement>(null)
  const [pause, setPause] = useState<Partial<Pause>>({})
  return (
    <Card title="Pause">
      <form ref={form} className="grid gap-3" onSubmit={e => e.preventDefault()}>
        <Field label="Table">
          <select className="input" name="table">
            {data?.tables?.map(t => (
              <option key={t.table}>{t.table}</option>
            ))}
          </select>
        </Field>
        {(
          [
            ['to', 'Sink (empty: all)'],
            ['topic', 'Topic (empty: all)'],
            ['destination', 'Destination (empty: all)'],
          ] as const
        ).map(([name, label]) => (
          <Field key={name} label={label}>
            <input className="input" name={name} />
          </Field>
        ))}
      </form>
      <div className="mt-3 grid">
        <Act
          main
          label="Pause …"
          button="Pause"
          title={`Pause ${whatIsPaused(pause as Pause)}`}
          reason="required"
          onOpen={() => form.current && setPause(entered(form.current, ['table', 'to', 'topic', 'destination']))}
          act={async reason => {
            const done = await post<Pause>('admin/pauses', { ...pause, reason })
            form.current?.reset()
            return `Paused: ${whatIsPaused(done)}.`
          }}
        >
          <p>Relays stop delivering it within seconds. What is paused waits, and nothing is lost.</p>
        </Act>
      </div>
    </Card>
  )
}
