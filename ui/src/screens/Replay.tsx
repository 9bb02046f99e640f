// Replay: a preview freezes the set, and steps stop themselves where the new failures are too many.
import { useQueryClient } from '@tanstack/react-query'
import { useRef, useState } from 'react'
import { listen, post } from '../api/client'
import type { Counted, Progress, ReplayPreview } from '../api/types'
import { useMayNot } from '../parts/Act'
import { Dialog, Failure, Field, Loading } from '../parts/basics'
import { count, plural } from '../parts/words'

interface Props {
  selection: object
  whose: string
  payload?: unknown
  label?: string
  ready?: boolean
}

export function Replay({ selection, whose, payload, label = 'Replay …', ready = true }: Props) {
  const mayNot = useMayNot()
  const client = useQueryClient()
  const [open, setOpen] = useState(false)
  const [preview, setPreview] = useState<ReplayPreview>()
  const [progress, setProgress] = useState<Progress>()
  const [error, setError] = useState<unknown>()
  const stop = useRef<AbortController>(null)

  const look = async () => {
    setOpen(true)
    setPreview(undefined)
    setProgress(undefined)
    setError(undefined)
    try {
      setPreview(await post<ReplayPreview>('admin/letters/preview', selection))
    } catch (e) {
      setError(e)
    }
  }
  const run = async (form: FormData) => {
    const control = (stop.current = new AbortController())
    setError(undefined)
    setProgress({
      total: preview!.letters,
      replayed: 0,
      skipped: 0,
      step: 0,
      stepLetters: 0,
      waiting: 0,
      failing: 0,
      delivered: 0,
      dead: 0,
    })
    const rate = Number(form.get('rate'))
    const body = {
      ...selection,
      set: preview!.set,
      reason: String(form.get('reason')).trim() || undefined,
      rate: rate || undefined,
      payload,
      ...(form.get('steps') ? { steps: [1, 10, 100], stopAt: Number(form.get('stopAt')) / 100 } : {}),
    }
    let ended = false
    try {
      await listen(
        'admin/letters/replay',
        (event, data) => {
          if (event === 'progress' || event === 'end') {
            ended ||= event === 'end'
            setProgress(data as Progress)
          }
        },
        control.signal,
        body,
      )
      if (!ended)
        setProgress(
          p =>
            p && {
              ...p,
              outcome: 'failed',
              says: 'The connection ended before the replay did. What is replayed stays replayed; ' +
                'look at the letters again.',
            },
        )
    } catch (e) {
      if (control.signal.aborted)
        setProgress(
          p =>
            p && {
              ...p,
              outcome: 'cancelled',
              says: 'You cancelled it. What is replayed stays replayed; the rest is untouched.',
            },
        )
      else {
        setProgress(undefined)
        setError(e)
      }
    }
    stop.current = null
  }
  // Lists are read again at the end: a row that leaves would take this dialog along, and what it says.
  const close = () => {
    stop.current?.abort()
    setOpen(false)
    if (progress) void client.invalidateQueries()
  }
  return (
    <>
      <button
        type="button"
        className="button small main"
        disabled={Boolean(mayNot) || !ready}
        title={mayNot}
        aria-haspopup="dialog"
        onClick={() => void look()}
      >
        {label}
      </button>
      <Dialog title={`Replay ${whose}`} open={open} onClose={close}>
        {error !== undefined && <Failure error={error} retry={() => void look()} />}
        {progress ? (
          <Running progress={progress} cancel={() => stop.current?.abort()} close={close} />
        ) : preview ? (
          <Choose preview={preview} edited={payload !== undefined} run={run} close={close} />
        ) : (
          error === undefined && <Loading what="the preview" />
        )}
      </Dialog>
    </>
  )
}

const warnings: ['overtaken' | 'racing' | 'leftBehind', string][] = [
  [
    'overtaken',
    'belong to keys of which later events are delivered already: a receiver sees the older after the newer',
  ],
  ['racing', 'belong to keys of which events are under way: which comes first is not certain'],
  ['leftBehind', 'more of the same keys are not selected, and stay behind'],
]

function Choose({
  preview,
  edited,
  run,
  close,
}: {
  preview: ReplayPreview
  edited: boolean
  run: (form: FormData) => Promise<void>
  close: () => void
}) {
  const [stepwise, setStepwise] = useState(preview.letters > 1)
  const tables = preview.tables ?? []
  return (
    <form
      className="grid gap-4"
      onSubmit={e => {
        e.preventDefault()
        void run(new FormData(e.currentTarget))
      }}
    >
      <div className="rounded-lg border bg-sunk p-4">
        <p className="text-[22px] font-semibold tracking-tight tabular-nums">{plural(preview.letters, 'letter')}</p>
        <p className="text-quiet">
          This set is frozen: what comes later is not taken.{edited && ' The event gets the edited payload.'}
        </p>
        <ul className="mt-2 grid gap-1">
          {tables.map(t => (
            <li key={t.table}>
              <span className="font-medium">{t.table}</span>: {count(t.letters)}
              {t.stuck ? (
                <span className="text-warn">
                  {' '}
                  · {count(t.stuck)} without an event that could be replayed, which are skipped
                </span>
              ) : null}
              {warnings.map(([name, says]) =>
                t[name]?.count ? <Warning key={name} counted={t[name]} says={says} /> : null,
              )}
            </li>
          ))}
        </ul>
        {preview.outsideWindow ? (
          <p className="mt-2 text-warn">
            {plural(preview.outsideWindow, 'letter')} are older than the sink's memory of duplicates: a copy that did
            arrive then is not refused.
          </p>
        ) : null}
      </div>
      <label className="flex items-start gap-2.5">
        <input
          type="checkbox"
          name="steps"
          className="mt-1"
          checked={stepwise}
          onChange={e => setStepwise(e.target.checked)}
        />
        <span>
          <b className="font-medium">In steps of 1, 10, 100, then the rest</b>
          <br />
          <span className="text-quiet">Each step waits until its events are delivered or fail again.</span>
        </span>
      </label>
      <div className="grid gap-3 sm:grid-cols-2">
        <Field label="Stop a step above this share of failures, %">
          <input
            className="input"
            type="number"
            name="stopAt"
            min="0"
            max="100"
            step="any"
            defaultValue="10"
            disabled={!stepwise}
            required={stepwise}
          />
        </Field>
        <Field label="Letters a second (empty: as fast as it goes)">
          <input
            className="input"
            type="number"
            name="rate"
            min="1"
            step="any"
            defaultValue={preview.letters > 1000 ? '1000' : ''}
          />
        </Field>
      </div>
      <Field label="Reason (kept in the audit)">
        <input className="input" name="reason" maxLength={500} placeholder="e.g. broker is back" />
      </Field>
      <div className="flex justify-end gap-2">
        <button type="button" className="button" onClick={close}>
          Cancel
        </button>
        <button type="submit" className="button main" disabled={!preview.letters}>
          Replay {plural(preview.letters, 'letter')}
        </button>
      </div>
    </form>
  )
}

const Warning = ({ counted, says }: { counted?: Counted; says: string }) => (
  <p className="text-warn">
    {count(counted!.count)} {says}
    {counted!.first && (
      <>
        {' '}
        (first: <span className="mono break-all">{counted!.first}</span>)
      </>
    )}
    .
  </p>
)

const outcomes = {
  done: ['text-good', 'Done'],
  stopped: ['text-warn', 'It stopped itself'],
  cancelled: ['text-warn', 'Cancelled'],
  failed: ['text-bad', 'It failed'],
} as const

function Running({ progress: p, cancel, close }: { progress: Progress; cancel: () => void; close: () => void }) {
  const all = Math.max(1, p.total)
  const [tone, title] = p.outcome
    ? outcomes[p.outcome]
    : (['', p.step ? `Step ${p.step}, ${plural(p.stepLetters, 'letter')}` : 'Replaying …'] as const)
  return (
    <div className="grid gap-4">
      <p role="status" className={`text-base font-semibold ${tone}`}>
        {title}
      </p>
      {p.says && <p className="break-words">{p.says}</p>}
      <div
        role="progressbar"
        aria-label="Replayed"
        aria-valuemin={0}
        aria-valuemax={p.total}
        aria-valuenow={p.replayed + p.skipped}
        className="flex h-2.5 overflow-hidden rounded-full bg-quiet-soft"
      >
        <div className="bg-good transition-[width]" style={{ width: `${(100 * p.delivered) / all}%` }} />
        <div
          className="bg-wait transition-[width]"
          style={{ width: `${(100 * Math.max(0, p.replayed - p.delivered - p.failing - p.dead)) / all}%` }}
        />
        <div className="bg-bad transition-[width]" style={{ width: `${(100 * (p.failing + p.dead)) / all}%` }} />
      </div>
      <dl className="grid grid-cols-3 gap-3 sm:grid-cols-6">
        {(
          [
            ['Of', p.total],
            ['Replayed', p.replayed],
            ['Delivered', p.delivered],
            ['Waiting', p.waiting],
            ['Failing', p.failing + p.dead],
            ['Skipped', p.skipped],
          ] as const
        ).map(([name, value]) => (
          <div key={name}>
            <dt className="text-[12.5px] text-quiet">{name}</dt>
            <dd className="text-base font-semibold tabular-nums">{count(value)}</dd>
          </div>
        ))}
      </dl>
      {p.skipReasons?.length ? (
        <ul className="grid gap-1 text-warn">
          {p.skipReasons.map(s => (
            <li key={s.why}>
              {count(s.count)} skipped: {s.why}
            </li>
          ))}
        </ul>
      ) : null}
      <div className="flex justify-end">
        {p.outcome ? (
          <button type="button" className="button main" onClick={close}>
            Close
          </button>
        ) : (
          <button type="button" className="button" onClick={cancel}>
            Cancel the rest
          </button>
        )}
      </div>
    </div>
  )
}
