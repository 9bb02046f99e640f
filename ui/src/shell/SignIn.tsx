import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { token } from '../api/client'
import { Field } from '../parts/basics'

export function SignIn({ refused }: { refused: boolean }) {
  const client = useQueryClient()
  const [text, setText] = useState('')
  return (
    <main className="mx-auto grid min-h-dvh max-w-md content-center px-4">
      <form
        className="card grid gap-4 p-6"
        onSubmit={e => {
          e.preventDefault()
          token.set(text.trim())
          void client.resetQueries()
        }}
      >
        <img src="./icon.svg" alt="" width="40" height="40" />
        <div>
          <h1 className="text-xl font-semibold tracking-tight">Outbox</h1>
          <p className="text-quiet">
            Give a token with the scope <code>admin:read</code>. <code>outbox token</code> makes one. This tab keeps
            it until it is closed.
          </p>
        </div>
        {refused && (
          <p role="alert" className="rounded-lg bg-bad-soft px-3 py-2 text-bad">
            The server does not know this token, or it has ended.
          </p>
        )}
        <Field label="Token">
          <input
            className="input mono"
            type="password"
            autoComplete="off"
            autoFocus
            required
            value={text}
            onChange={e => setText(e.target.value)}
          />
        </Field>
        <button type="submit" className="button main">
          Open
        </button>
      </form>
    </main>
  )
}
