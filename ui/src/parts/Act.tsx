// What changes something: allowed or not and why, confirmed, with its reason, and then said.
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { useSession } from '../api/live'
import { Dialog, Failure, Field } from './basics'

// useMay says why nothing can be changed here, or undefined where it can.
export function useMayNot(): string | undefined {
  const { data } = useSession()
  if (!data) return 'Whether you may is not known yet.'
  if (data.readOnly) return 'This server is read-only (--admin read).'
  if (!(data.scopes ?? []).includes('admin:write')) return 'Your token lacks the scope admin:write.'
  return undefined
}

// useHeld keeps the row of a live list that somebody acts on: a row that leaves would take the dialog along.
export function useHeld<T>(rows: T[], name: (row: T) => string): [T[], (row: T, acting: boolean) => void] {
  const [held, setHeld] = useState<T>()
  const shown = held === undefined || rows.some(row => name(row) === name(held)) ? rows : [held, ...rows]
  return [shown, (row, acting) => setHeld(acting ? row : undefined)]
}

interface Props {
  label: string
  title: string
  button?: string
  children?: ReactNode
  reason?: 'asked' | 'required' | 'none'
  danger?: boolean
  small?: boolean
  main?: boolean
  ready?: boolean
  onOpen?: () => void
  onActing?: (acting: boolean) => void // what is live keeps this button in the meantime
  act: (reason: string) => Promise<ReactNode>
}

export function Act({
  label,
  title,
  button = label,
  children,
  reason = 'asked',
  danger,
  small,
  main,
  ready = true,
  onOpen,
  onActing,
  act,
}: Props) {
  const mayNot = useMayNot()
  const client = useQueryClient()
  const [open, setOpen] = useState(false)
  const [why, setWhy] = useState('')
  const done = useMutation({ mutationFn: () => act(why.trim()) })
  // Lists are read again at the end: a row that leaves would take this dialog along, and what it says.
  const close = () => {
    setOpen(false)
    onActing?.(false)
    setWhy('')
    if (done.isSuccess) void client.invalidateQueries()
    done.reset()
  }
  return (
    <>
      <button
        type="button"
        disabled={Boolean(mayNot)}
        title={mayNot}
        aria-haspopup="dialog"
        className={`button ${small ? 'small' : ''} ${main ? 'main' : ''}`}
        onClick={() => {
          setOpen(true)
          onActing?.(true)
          onOpen?.()
        }}
      >
        {label}
      </button>
      <Dialog title={title} open={open} onClose={close}>
        {done.isSuccess ? (
          <div className="grid gap-4">
            <p role="status">{done.data}</p>
            <button type="button" className="button main justify-self-end" autoFocus onClick={close}>
              Close
            </button>
          </div>
        ) : (
          <form
            className="grid gap-4"
            onSubmit={e => {
              e.preventDefault()
              done.mutate()
            }}
          >
            <div>{children}</div>
            {reason !== 'none' && (
              <Field
                label={
                  reason === 'required' ? 'Reason (required; it is kept in the audit)' : 'Reason (kept in the audit)'
                }
              >
                <input
                  className="input"
                  value={why}
                  onChange={e => setWhy(e.target.value)}
                  required={reason === 'required'}
                  maxLength={500}
                  placeholder="e.g. schema fixed in release 41"
                />
              </Field>
            )}
            {done.isError && <Failure error={done.error} />}
            <div className="flex justify-end gap-2">
              <button type="button" className="button" onClick={close}>
                Cancel
              </button>
              <button
                type="submit"
                disabled={done.isPending || !ready}
                className={`button ${danger ? 'danger' : 'main'}`}
              >
                {done.isPending ? 'Working …' : button}
              </button>
            </div>
          </form>
        )}
      </Dialog>
    </>
  )
}
