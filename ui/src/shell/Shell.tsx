// What stands around every screen: navigation, environment, theme, keyboard, and who may look.
import { useQueryClient } from '@tanstack/react-query'
import { Link, Outlet, useNavigate, useRouterState } from '@tanstack/react-router'
import { createContext, useContext, useEffect, useState } from 'react'
import { Problem, token } from '../api/client'
import { useOverview, useOverviewStream, useSession } from '../api/live'
import type { Session } from '../api/types'
import { Failure, Icon, Loading } from '../parts/basics'
import { merged } from '../parts/findings'
import { Help } from './Help'
import { Palette } from './Palette'
import { screens } from './screens'
import { SignIn } from './SignIn'
import { useTheme } from './theme'

const Connected = createContext(false)
export const useConnected = () => useContext(Connected)

export function Shell() {
  const session = useSession()
  if (session.error instanceof Problem && session.error.status === 401) return <SignIn refused={token.get() !== ''} />
  if (session.isError)
    return (
      <main className="mx-auto mt-16 max-w-2xl">
        <Failure error={session.error} retry={() => void session.refetch()} />
      </main>
    )
  if (!session.data)
    return (
      <main className="mx-auto mt-16 max-w-2xl">
        <Loading what="the page" />
      </main>
    )
  return <Frame session={session.data} />
}

function Frame({ session }: { session: Session }) {
  const connected = useOverviewStream(session.tenant === '*')
  const [asked, setAsked] = useState<'palette' | 'help'>()
  const path = useRouterState({ select: s => s.location.pathname })
  const name = screens.find(s => s.to !== '/' && path.startsWith(s.to))?.name ?? 'Overview'
  const environment = session.environment
  useEffect(() => {
    document.title = [name, environment?.name, 'Outbox'].filter(Boolean).join(' · ')
  }, [name, environment])
  useKeys(setAsked)
  return (
    <Connected value={connected}>
      <a
        href="#main"
        className="button main absolute -top-20 left-2 z-50 focus:top-2"
        onClick={e => {
          e.preventDefault()
          document.getElementById('main')?.focus()
        }}
      >
        Skip to the content
      </a>
      {environment && (
        <div
          id="environment"
          className="sticky top-0 z-10 h-6 px-4 py-0.5 text-center text-[12.5px] font-semibold tracking-wide"
          role="region"
          aria-label="Environment"
          style={{ background: environment.colour, color: readable(environment.colour) }}
        >
          {environment.name}
        </div>
      )}
      <div className="md:grid md:min-h-[calc(100dvh-var(--bar))] md:grid-cols-[13.5rem_minmax(0,1fr)]">
        <Navigation session={session} ask={setAsked} />
        <main
          id="main"
          tabIndex={-1}
          className="mx-auto w-full max-w-[100rem] min-w-0 px-4 pt-5 pb-24 outline-none md:px-6 md:pb-10"
        >
          {session.readOnly && (
            <p className="mb-4 flex items-center gap-2 rounded-lg bg-warn-soft px-3 py-2 text-warn">
              <Icon d="M6 11h12v9H6zM9 11V8a3 3 0 0 1 6 0v3" /> Read-only: this server lets nobody change anything
              (--admin read).
            </p>
          )}
          <Outlet />
        </main>
      </div>
      <Palette open={asked === 'palette'} onClose={() => setAsked(undefined)} />
      <Help open={asked === 'help'} onClose={() => setAsked(undefined)} />
    </Connected>
  )
}

const themes = { system: 'light', light: 'dark', dark: 'system' } as const

function Navigation({ session, ask }: { session: Session; ask: (what: 'palette' | 'help') => void }) {
  const { data } = useOverview()
  const [theme, setTheme] = useTheme()
  const client = useQueryClient()
  const counts: Record<string, number | undefined> = {
    '/letters': data?.letters?.pending,
    '/conditions': data && merged(data.findings ?? []).length,
    '/pauses': data?.pauses?.length,
  }
  const bounded = data?.letters?.bounded
  return (
    <header className="flex flex-col border-b bg-side md:sticky md:top-[var(--bar)]
      md:h-[calc(100dvh-var(--bar))] md:border-r md:border-b-0">
      <div className="flex items-center gap-2.5 px-4 py-3 md:pt-5">
        <img src="./icon.svg" alt="" width="24" height="24" />
        <span className="text-[15px] font-semibold tracking-tight">Outbox</span>
        <button
          type="button"
          onClick={() => ask('palette')}
          className="button small ml-auto md:hidden"
          aria-label="Search"
        >
          <Icon d="M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5" />
        </button>
        <button
          type="button"
          onClick={() => setTheme(themes[theme])}
          className="button small md:hidden"
          aria-label={`Theme: ${theme}`}
        >
          <Icon d={themeIcon[theme]} />
        </button>
      </div>
      <button
        type="button"
        onClick={() => ask('palette')}
        className="mx-3 mb-3 hidden items-center gap-2 rounded-lg border bg-card px-2.5 py-1.5
          text-quiet hover:border-strong md:flex"
      >
        <Icon d="M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5" size={14} /> Go to …{' '}
        <kbd className="mono ml-auto text-[11px]">{mac ? '⌘K' : 'Ctrl K'}</kbd>
      </button>
      <nav
        aria-label="Screens"
        className="flex gap-0.5 overflow-x-auto px-2 pb-2 [scrollbar-width:none] md:flex-col md:overflow-visible"
      >
        {screens.map(screen => (
          <Link
            key={screen.to}
            to={screen.to}
            activeOptions={{ exact: screen.to === '/', includeSearch: false }}
            className="flex items-center gap-2.5 rounded-lg px-2.5 py-1.5 whitespace-nowrap"
            activeProps={{ className: 'bg-accent-soft text-accent font-medium' }}
            inactiveProps={{ className: 'text-quiet hover:text-text hover:bg-sunk' }}
          >
            <Icon d={screen.icon} /> {screen.name}
            {counts[screen.to] ? (
              <span className="ml-auto pl-1 text-[12px] tabular-nums">
                {counts[screen.to]!.toLocaleString('en')}
                {screen.to === '/letters' && bounded ? '+' : ''}
              </span>
            ) : null}
          </Link>
        ))}
      </nav>
      <div className="mt-auto hidden gap-1 border-t p-3 text-[12.5px] text-quiet md:grid">
        <button type="button" className="button small plain !justify-start" onClick={() => setTheme(themes[theme])}>
          <Icon d={themeIcon[theme]} size={14} /> Theme: {theme}
        </button>
        <button type="button" className="button small plain !justify-start" onClick={() => ask('help')}>
          <Icon d="M9 9a3 3 0 1 1 4 2.8c-.7.3-1 .9-1 1.7M12 17h.01" size={14} /> Keyboard{' '}
          <kbd className="mono ml-auto">?</kbd>
        </button>
        {session.authentication && (
          <button
            type="button"
            className="button small plain !justify-start"
            onClick={() => {
              token.clear()
              client.clear()
              location.reload()
            }}
          >
            <Icon d="M14 8V5H4v14h10v-3M9 12h12M18 9l3 3-3 3" size={14} /> Sign out
          </button>
        )}
        <p className="truncate px-2.5 pt-1" title={session.version}>
          {session.tenant !== '*' && `Tenant ${session.tenant} · `}
          {session.version}
        </p>
      </div>
    </header>
  )
}

const mac = /Mac|iPhone|iPad/.test(navigator.platform)
const themeIcon = {
  system: 'M3 5h18v11H3zM9 20h6M12 16v4',
  light:
    'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2' +
    'M5 5l1.4 1.4M17.6 17.6L19 19M19 5l-1.4 1.4M6.4 17.6L5 19',
  dark: 'M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z',
}

// readable is black or white, whichever has the greater contrast on a colour (WCAG 2.2, relative luminance).
function readable(colour: string): string {
  const hex = /^#([0-9a-f]{6})$/i.exec(colour)?.[1]
  if (!hex) return '#fff'
  const [r, g, b] = [0, 2, 4]
    .map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
    .map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#000' : '#fff'
}

function useKeys(ask: (what: 'palette' | 'help') => void) {
  const navigate = useNavigate()
  useEffect(() => {
    let g = 0
    const press = (e: KeyboardEvent) => {
      if ((e.metaKey || e.ctrlKey) && e.key.toLowerCase() === 'k') {
        e.preventDefault()
        return ask('palette')
      }
      const target = e.target as HTMLElement
      if (
        e.metaKey ||
        e.ctrlKey ||
        e.altKey ||
        /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) ||
        document.querySelector('dialog[open]')
      )
        return
      if (e.key === '?') return ask('help')
      if (e.key === '/') {
        const filter = document.querySelector<HTMLInputElement>('[data-filter]')
        if (filter) {
          e.preventDefault()
          filter.focus()
        }
        return
      }
      if (e.key === 'g') {
        g = e.timeStamp
        return
      }
      const screen = e.timeStamp - g < 1500 && screens.find(s => s.key === e.key)
      if (screen) void navigate({ to: screen.to })
      g = 0
    }
    document.addEventListener('keydown', press)
    return () => document.removeEventListener('keydown', press)
  }, [ask, navigate])
}
