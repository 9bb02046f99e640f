// What somebody has paused, and pausing more.
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { poll, post } from '../api/client'
import { useOverview } from '../api/live'
import type { Page, Pause } from '../api/types'
import { useMayNot } from '../parts/Act'
import { Card, Failure, Field, Head, Loading } from '../parts/basics'
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
  const mayNot = useMayNot()
  const client = useQueryClient()
  const { data } = useOverview()
  const add = useMutation({
    mutationFn: (form: HTMLFormElement) => {
      const text = (name: string) => String(new FormData(form).get(name)).trim() || undefined
      return post<Pause>('admin/pauses', {
        table: text('table'),
        to: text('to'),
        topic: text('topic'),
        destination: text('destination'),
        reason: text('reason'),
      })
    },
    onSuccess: (_, form) => {
      form.reset()
      void client.invalidateQueries()
    },
  })
  return (
    <Card title="Pause">
      <form
        className="grid gap-3"
        onSubmit={e => {
          e.preventDefault()
          const form = e.currentTarget
          const pause = Object.fromEntries(new FormData(form)) as Pause
          if (confirm(`Pause ${whatIsPaused(pause)}? Relays stop delivering it within seconds.`)) add.mutate(form)
        }}
      >
        <Field label="Table">
          <select className="input" name="table">
            {data?.tables?.map(t => (
              <option key={t.table}>{t.table}</option>
            ))}
          </select>
        </Field>
        <Field label="Sink (empty: all)">
          <input className="input" name="to" />
        </Field>
        <Field label="Topic (empty: all)">
          <input className="input" name="topic" />
        </Field>
        <Field label="Destination (empty: all)">
          <input className="input" name="destination" />
        </Field>
        <Field label="Reason (required; it is kept in the audit)">
          <input className="input" name="reason" required maxLength={500} />
        </Field>
        {add.isError && <Failure error={add.error} />}
        {add.isSuccess && (
          <p role="status" className="text-good">
            Paused: {whatIsPaused(add.data)}.
          </p>
        )}
        <button type="submit" className="button main" disabled={Boolean(mayNot) || add.isPending} title={mayNot}>
          Pause
        </button>
        {mayNot && <p className="text-quiet">{mayNot}</p>}
      </form>
    </Card>
  )
}
