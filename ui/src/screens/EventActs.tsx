// Retry and skip, of one event or of many.
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { post } from '../api/client'
import type { Int } from '../api/types'
import { Act } from '../parts/Act'
import { Failure, Loading } from '../parts/basics'
import { count, plural } from '../parts/words'

interface Props {
  selection: object
  whose: string
  onActing?: (acting: boolean) => void
}

export function Retry({ selection, whose, onActing }: Props) {
  return (
    <Act
      small
      label="Retry now"
      title={`Retry ${whose} now`}
      onActing={onActing}
      act={async reason => {
        const { events } = await post<{ events: number }>('admin/events/retry', { ...selection, reason })
        return events ? `${plural(events, 'event')} due now.` : 'None of them waits for a retry.'
      }}
    >
      Those that wait for a retry become due at once. Their attempts stay counted.
    </Act>
  )
}

export function Skip({ selection, whose, onActing }: Props) {
  const [asked, setAsked] = useState(0)
  const preview = useQuery({
    queryKey: ['preview', 'skip', selection, asked],
    enabled: asked > 0,
    gcTime: 0,
    queryFn: () => post<{ events: Int; upTo: Int }>('admin/events/preview', selection),
  })
  return (
    <Act
      small
      danger
      label="Skip …"
      button="Skip"
      title={`Skip ${whose}`}
      reason="required"
      onActing={onActing}
      onOpen={() => setAsked(n => n + 1)}
      ready={Boolean(preview.data?.events)}
      act={async reason => {
        const { events } = await post<{ events: number }>('admin/events/skip', {
          ...selection,
          upTo: preview.data?.upTo,
          events: preview.data?.events,
          reason,
        })
        if (!events) return 'Nothing was left to skip: it has been delivered or given up.'
        return `${plural(events, 'event')} skipped. They are dead letters, and can be replayed.`
      }}
    >
      {preview.isError ? (
        <Failure error={preview.error} />
      ) : preview.data ? (
        <p>
          <b>{count(preview.data.events)}</b> undelivered, up to position {preview.data.upTo?.toString()}, become dead
          letters. What is behind them goes on. What is written later is not taken.
        </p>
      ) : (
        <Loading what="the preview" />
      )}
    </Act>
  )
}
