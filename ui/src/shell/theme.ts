// Light or dark: the system's choice until somebody presses the toggle.
import { useEffect, useState } from 'react'

export type Theme = 'system' | 'light' | 'dark'

const stored = (): Theme => (localStorage.getItem('outbox-theme') as Theme | null) ?? 'system'

function apply(theme: Theme) {
  if (theme === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = theme
}

apply(stored())

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState(stored)
  useEffect(() => {
    localStorage.setItem('outbox-theme', theme)
    apply(theme)
    window.dispatchEvent(new Event('themechange'))
  }, [theme])
  return [theme, setTheme]
}

// useDark follows both, for what is drawn on a canvas.
export function useDark(): boolean {
  const media = matchMedia('(prefers-color-scheme: dark)')
  const now = () => (document.documentElement.dataset.theme ?? (media.matches ? 'dark' : 'light')) === 'dark'
  const [dark, setDark] = useState(now)
  useEffect(() => {
    const change = () => setDark(now())
    media.addEventListener('change', change)
    window.addEventListener('themechange', change)
    return () => {
      media.removeEventListener('change', change)
      window.removeEventListener('themechange', change)
    }
  })
  return dark
}
