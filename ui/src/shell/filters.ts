// Filters are the URL's query, so that a link shows what its sender saw.
import { useNavigate, useSearch } from '@tanstack/react-router'
import type { Search } from '../api/types'

export function useFilters(): [Search, (change: Search) => void] {
  const search = useSearch({ strict: false }) as Search
  const navigate = useNavigate()
  return [
    search,
    change => void navigate({ to: '.', search: clean({ ...search, ...change }) as never, replace: true }),
  ]
}

export const clean = (search: Search): Search =>
  Object.fromEntries(Object.entries(search).filter(([, value]) => value))

export const parseSearch = (text: string): Search => Object.fromEntries(new URLSearchParams(text))

export function stringifySearch(search: Search): string {
  const text = new URLSearchParams(clean(search) as Record<string, string>).toString()
  return text ? `?${text}` : ''
}

// entered is what stands in those fields of a form that it has.
export function entered(form: HTMLFormElement, names: readonly string[]): Search {
  const data = new FormData(form)
  return Object.fromEntries(
    names
      .filter(n => data.has(n))
      .map(n => {
        const text = String(data.get(n)).trim()
        return [n, text && (n === 'since' || n === 'until') ? new Date(text).toISOString() : text || undefined]
      }),
  )
}
