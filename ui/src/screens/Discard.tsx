// Discard: letters that nobody will replay. They stay readable until their retention ends.
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { post } from '../api/client'
import type { ReplayPreview } from '../api/types'
import { Act } from '../parts/Act'
import { Failure, Loading } from '../parts/basics'
import { plural } from '../parts/words'

export function Discard({ selection, whose }: { selection: object; whose: string }) {
  const [asked, setAsked] = useState(0)
  const preview = useQuery({
    queryKey: ['preview', 'discard', selection, asked],
    enabled: asked > 0,
    gcTime: 0,
    queryFn: () => post<ReplayPreview>('admin/letters/preview', selection),
  })
  return (
    <Act
      small
      danger
      label="Discard …"
      button="Discard"
      title={`Discard ${whose}`}
      reason="required"
      onOpen={() => setAsked(n => n + 1)}
      ready={Boolean(preview.data?.letters)}
      act={async reason => {
        const { letters } = await post<{ letters: number }>('admin/letters/discard', {
          ...selection,
          set: preview.data?.set,
          reason,
        })
        return `${plural(letters, 'letter')} discarded. The list with state discarded still shows them.`
      }}
    >
      {preview.isError ? (
        <Failure error={preview.error} />
      ) : preview.data ? (
        <p>
          <b>{plural(preview.data.letters, 'letter')}</b> will be discarded. What comes later is not taken. They stay
          readable, and can be replayed while they are kept.
        </p>
      ) : (
        <Loading what="the preview" />
      )}
    </Act>
  )
}
