import { post } from '../api/client'
import type { Pause } from '../api/types'
import { Act, useHeld } from '../parts/Act'
import { Empty, Time } from '../parts/basics'

export function whatIsPaused(p: Pause): string {
  const parts = [
    p.table && `table ${p.table}`,
    p.to && `sink ${p.to}`,
    p.topic && `topic ${p.topic}`,
    p.destination && `destination ${p.destination}`,
  ]
  return parts.filter(Boolean).join(', ') || 'everything'
}

export function PauseList({ pauses }: { pauses: Pause[] }) {
  const [shown, hold] = useHeld(pauses, whatIsPaused)
  if (!shown.length) return <Empty title="Nothing is paused" />
  return (
    <ul className="divide-y">
      {shown.map(p => (
        <li key={whatIsPaused(p)} className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2.5">
          <div className="min-w-0 flex-1">
            <p className="font-medium first-letter:uppercase">{whatIsPaused(p)}</p>
            <p className="text-[12.5px] text-quiet">
              {p.reason || 'No reason was given'} · {p.actor || 'unknown'} · <Time value={p.pausedAt} />
            </p>
          </div>
          <Act
            small
            label="Resume"
            title={`Resume ${whatIsPaused(p)}`}
            onActing={acting => hold(p, acting)}
            act={async reason => {
              await post('admin/resume', {
                table: p.table,
                to: p.to,
                topic: p.topic,
                destination: p.destination,
                reason,
              })
              return 'It goes on. What waited is delivered in its order.'
            }}
          >
            What waits is delivered from then on, in its order.
          </Act>
        </li>
      ))}
    </ul>
  )
}
