// One letter, or all letters of one event: what happened to it, and its payload.
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { get } from '../api/client'
import { parse, stringify } from '../api/json'
import type { Letter } from '../api/types'
import { Copy, Dialog, Facts, Failure, Field, Loading, Tag, Time } from '../parts/basics'
import { Changes, Json } from '../parts/Json'
import { count } from '../parts/words'
import { Discard } from './Discard'
import { Replay } from './Replay'

export function LetterDrawer({ id, onClose }: { id?: string; onClose: () => void }) {
  const letters = useQuery({
    queryKey: ['letters', 'one', id],
    enabled: Boolean(id),
    queryFn: ({ signal }) => get<{ items: Letter[] }>(`admin/letters/${encodeURIComponent(id!)}`, undefined, signal),
  })
  return (
    <Dialog side title="Letter" open={Boolean(id)} onClose={onClose}>
      {letters.isError ? (
        <Failure error={letters.error} />
      ) : !letters.data ? (
        <Loading what="the letter" />
      ) : (
        <div className="grid gap-8">
          {letters.data.items.map(l => (
            <One key={l.id} letter={l} />
          ))}
        </div>
      )}
    </Dialog>
  )
}

function One({ letter }: { letter: Letter }) {
  const before = stringify(letter.payload, 2)
  const [text, setText] = useState<string>()
  let edited: unknown
  let wrong = ''
  if (text !== undefined) {
    try {
      edited = parse(text)
    } catch (e) {
      wrong = (e as Error).message
    }
  }
  const changed = text !== undefined && text !== before
  const only = { ids: [letter.id], ...(letter.state === 'discarded' ? { discarded: true } : {}) }
  return (
    <article className="grid gap-5">
      <p className="rounded-lg bg-bad-soft px-4 py-3 break-words text-bad">{letter.lastError || letter.reason}</p>
      <div className="flex flex-wrap items-center gap-2">
        <Tag>{letter.state}</Tag>
        {letter.state !== 'replayed' && (
          <>
            <Replay
              selection={only}
              whose="this letter"
              payload={changed && !wrong ? edited : undefined}
              label={changed ? 'Replay with the edited payload …' : 'Replay …'}
              ready={!wrong}
            />
            {letter.state !== 'discarded' && <Discard selection={only} whose="this letter" />}
          </>
        )}
      </div>
      <Facts
        rows={[
          [
            'Letter',
            <span className="mono">
              {letter.id} <Copy text={letter.id} />
            </span>,
          ],
          [
            'Of',
            <>
              <Link
                className="link mono"
                to="/events/$id"
                params={{ id: letter.originalId }}
                search={{ table: letter.table }}
              >
                {letter.originalId}
              </Link>{' '}
              ({letter.source})
            </>,
          ],
          ['Type', letter.type],
          ['Reason', letter.reason],
          ['Key', letter.key],
          ['Tenant', letter.tenant],
          ['Table', letter.table],
          ['Destination', letter.destination],
          ['Position', letter.position?.toString()],
          ['Request', letter.requestId],
          ['User', letter.userId],
          ['Attempts', count(letter.attempts)],
          ['Generation', letter.generation?.toString()],
          ['Given up', <Time both value={letter.at} />],
          ['Replayed', letter.replayedAt && <Time both value={letter.replayedAt} />],
          [
            'Discarded',
            letter.discardedAt && (
              <>
                <Time both value={letter.discardedAt} />
                {letter.discardReason && `: ${letter.discardReason}`}
              </>
            ),
          ],
          ['Fingerprint', letter.fingerprint && <span className="mono">{letter.fingerprint}</span>],
        ]}
      />
      {letter.errorHistory?.length ? (
        <section>
          <h3 className="mb-2 font-semibold">Attempts</h3>
          <ol className="grid gap-2 border-l pl-4">
            {letter.errorHistory.map((a, i) => (
              <li key={i}>
                <span className="text-[12.5px] text-quiet">
                  <Time both value={a.timestamp} />
                </span>
                <br />
                <span className="break-words">{a.error}</span>
              </li>
            ))}
          </ol>
        </section>
      ) : null}
      <section className="grid gap-2">
        <h3 className="flex items-center gap-3 font-semibold">
          Payload
          {letter.source === 'event' && letter.state !== 'replayed' && (
            <button
              type="button"
              className="button small"
              onClick={() => setText(text === undefined ? before : undefined)}
            >
              {text === undefined ? 'Edit' : 'Undo the edit'}
            </button>
          )}
        </h3>
        {text === undefined ? (
          <Json value={letter.payload} label="Payload" />
        ) : (
          <>
            <Field label="Payload, as JSON">
              <textarea
                className="input mono min-h-56"
                spellCheck={false}
                value={text}
                onChange={e => setText(e.target.value)}
                aria-invalid={Boolean(wrong)}
              />
            </Field>
            {wrong && (
              <p role="alert" className="text-bad">
                This is no JSON: {wrong}
              </p>
            )}
            {changed && !wrong && <Changes before={before} after={stringify(edited, 2)} />}
          </>
        )}
      </section>
    </article>
  )
}
