// The small parts that every screen is made of.
import { useEffect, useId, useRef, useState, type ReactNode } from 'react'
import { Problem } from '../api/client'
import { ago, at, toneOf, type Tone } from './words'

const tones: Record<Tone, string> = {
  good: 'bg-good-soft text-good',
  wait: 'bg-wait-soft text-wait',
  warn: 'bg-warn-soft text-warn',
  bad: 'bg-bad-soft text-bad',
  quiet: 'bg-quiet-soft text-quiet',
}

export function Tag({ children, tone, title }: { children: ReactNode; tone?: Tone; title?: string }) {
  return (
    <span
      className={`tag ${tones[tone ?? (typeof children === 'string' ? toneOf(children) : 'quiet')]}`}
      title={title}
    >
      {children}
    </span>
  )
}

export function Icon({ d, size = 16 }: { d: string; size?: number }) {
  return (
    <svg
      viewBox="0 0 24 24"
      width={size}
      height={size}
      fill="none"
      stroke="currentColor"
      strokeWidth="1.8"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      className="shrink-0"
    >
      <path d={d} />
    </svg>
  )
}

export function Time({ value, both }: { value?: string; both?: boolean }) {
  useTick(value !== undefined)
  if (!value) return <span className="text-quiet">–</span>
  return (
    <time dateTime={value} title={at(value)} className="whitespace-nowrap">
      {both ? `${at(value)} · ${ago(value)}` : ago(value)}
    </time>
  )
}

function useTick(on: boolean) {
  const [, tick] = useState(0)
  useEffect(() => {
    if (!on) return
    const timer = setInterval(() => tick(n => n + 1), 5000)
    return () => clearInterval(timer)
  }, [on])
}

export function Card({
  title,
  count,
  aside,
  children,
  flush,
}: {
  title?: string
  count?: ReactNode
  aside?: ReactNode
  children: ReactNode
  flush?: boolean
}) {
  const id = useId()
  return (
    <section className="card min-w-0 overflow-hidden" aria-labelledby={title && id}>
      {title && (
        <header className="flex min-h-11 flex-wrap items-center gap-x-2 gap-y-1 px-4 pt-2.5 pb-1">
          <h2 id={id} className="font-semibold">
            {title}
          </h2>
          {count !== undefined && <span className="text-quiet tabular-nums">{count}</span>}
          <span className="ml-auto flex flex-wrap items-center gap-2">{aside}</span>
        </header>
      )}
      <div className={flush ? '' : 'px-4 pt-1 pb-4'}>{children}</div>
    </section>
  )
}

// Scroll lets the keyboard reach what is wider than its card.
export function Scroll({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div className="relative overflow-x-auto" tabIndex={0} role="group" aria-label={label}>
      {children}
    </div>
  )
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="px-4 py-8 text-center">
      <p className="font-medium">{title}</p>
      {children && <p className="mx-auto mt-1 max-w-prose text-quiet">{children}</p>}
    </div>
  )
}

export function Loading({ what }: { what: string }) {
  return (
    <div className="space-y-2 p-4" role="status" aria-label={`Loading ${what}`}>
      {[82, 64, 73].map(width => (
        <div key={width} className="pulse h-3.5 rounded bg-quiet-soft" style={{ width: `${width}%` }} />
      ))}
    </div>
  )
}

export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const forbidden = error instanceof Problem && error.status === 403
  return (
    <div role="alert" className="m-4 flex flex-wrap items-center gap-3 rounded-lg bg-bad-soft px-4 py-3 text-bad">
      <div className="min-w-0 flex-1">
        <p className="font-semibold">
          {forbidden ? 'Your token does not allow this' : error instanceof Problem ? error.title : 'This failed'}
        </p>
        <p className="break-words">{error instanceof Error ? error.message : String(error)}</p>
        {forbidden && (
          <p>A token of one tenant sees that tenant's events and letters. The rest needs a token of all tenants.</p>
        )}
      </div>
      {retry && !forbidden && (
        <button type="button" className="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  )
}

export function Field({ label, hint, children }: { label: string; hint?: string; children: ReactNode }) {
  return (
    <label className="grid min-w-0 grid-cols-[minmax(0,1fr)] gap-1">
      <span className="text-[12.5px] font-medium text-quiet">{label}</span>
      {children}
      {hint && <span className="text-[12.5px] text-quiet">{hint}</span>}
    </label>
  )
}

// Copy works without HTTPS too, where there is no navigator.clipboard.
export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [done, setDone] = useState(false)
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text)
    } catch {
      const area = document.createElement('textarea')
      area.value = text
      area.style.position = 'fixed'
      area.style.opacity = '0'
      ;(document.querySelector('dialog[open]') ?? document.body).append(area)
      area.select()
      document.execCommand('copy')
      area.remove()
    }
    setDone(true)
    setTimeout(() => setDone(false), 1500)
  }
  return (
    <button
      type="button"
      className="button small plain"
      onClick={() => void copy()}
      aria-label={`${label}: ${text.slice(0, 60)}`}
    >
      <Icon size={13} d={done ? 'M5 12l5 5 9-10' : 'M9 9h11v11H9zM5 15H4V4h11v1'} />
      <span aria-live="polite">{done ? 'Copied' : label}</span>
    </button>
  )
}

export function Dialog({
  title,
  open,
  onClose,
  children,
  side,
}: {
  title: string
  open: boolean
  onClose: () => void
  children: ReactNode
  side?: boolean
}) {
  const dialog = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    if (open) dialog.current?.showModal()
    else dialog.current?.close()
  }, [open])
  const place = side
    ? 'mr-0 my-0 h-dvh max-h-none w-[44rem] max-w-full rounded-l-2xl'
    : 'w-[38rem] max-w-[calc(100%-2rem)] max-h-[calc(100dvh-2rem)] rounded-2xl'
  return (
    <dialog
      ref={dialog}
      onClose={() => {
        if (!dialog.current?.open) onClose() // the event of an earlier close may come after it was opened again
      }}
      aria-labelledby={id}
      onClick={e => {
        if (e.target === dialog.current) onClose()
      }}
      className={`bg-card border border-line p-0 shadow-2xl ${place}`}
    >
      {open && (
        <div className="flex max-h-[inherit] min-h-0 flex-col" style={side ? { height: '100%' } : undefined}>
          <header className="flex items-center gap-3 border-b px-5 py-3">
            <h2 id={id} className="min-w-0 truncate text-base font-semibold">
              {title}
            </h2>
            <button type="button" className="button small plain ml-auto" onClick={onClose} aria-label="Close">
              <Icon d="M6 6l12 12M18 6L6 18" />
            </button>
          </header>
          <div className="min-h-0 flex-1 overflow-y-auto px-5 py-4">{children}</div>
        </div>
      )}
    </dialog>
  )
}

export function Head({ title, says, children }: { title: string; says?: ReactNode; children?: ReactNode }) {
  return (
    <header className="mb-4 flex flex-wrap items-end gap-x-4 gap-y-2">
      <div className="min-w-0">
        <h1 className="text-xl font-semibold tracking-tight">{title}</h1>
        {says && <p className="max-w-prose text-quiet">{says}</p>}
      </div>
      <div className="ml-auto flex flex-wrap items-center gap-2">{children}</div>
    </header>
  )
}

// Facts are names and values of one thing, without those that it lacks.
export function Facts({ rows }: { rows: [string, ReactNode][] }) {
  return (
    <dl className="grid grid-cols-[max-content_minmax(0,1fr)] gap-x-5 gap-y-1.5">
      {rows
        .filter(([, value]) => value !== undefined && value !== '' && value !== null)
        .map(([name, value]) => (
          <div key={name} className="contents">
            <dt className="text-quiet">{name}</dt>
            <dd className="min-w-0 break-words">{value}</dd>
          </div>
        ))}
    </dl>
  )
}
