// The overview as the server streams it, and the samples of the charts.
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { get, listen, Problem } from './client'
import type { Overview, Sample, Session } from './types'

export const useSession = () =>
  useQuery({
    queryKey: ['session'],
    queryFn: ({ signal }) => get<Session>('admin/session', undefined, signal),
    staleTime: Infinity,
  })

export const useOverview = () =>
  useQuery({
    queryKey: ['overview'],
    queryFn: ({ signal }) => get<Overview>('admin/overview', undefined, signal),
    staleTime: Infinity,
  })

const kept = 15 * 60

export const useHistory = () =>
  useQuery({
    queryKey: ['history'],
    staleTime: Infinity,
    queryFn: async ({ signal }) =>
      (await get<{ samples: Sample[] | null }>('admin/history', undefined, signal)).samples ?? [],
  })

// useOverviewStream keeps both up to date while the page is open, and says whether it is connected.
export function useOverviewStream(on: boolean): boolean {
  const client = useQueryClient()
  const [connected, setConnected] = useState(false)
  useEffect(() => {
    if (!on) return
    const stop = new AbortController()
    let news = Date.now()
    const quiet = setInterval(() => Date.now() - news > 15_000 && setConnected(false), 1000)
    const heard = (event: string, data: unknown) => {
      if (event !== 'overview') return
      const overview = data as Overview
      news = Date.now()
      setConnected(true)
      client.setQueryData(['overview'], overview)
      if (overview.error) return
      const tables = Object.fromEntries((overview.tables ?? []).map(t => [t.table, t]))
      client.setQueryData<Sample[]>(['history'], old => old && [...old.slice(-kept + 1), { at: overview.at, tables }])
    }
    void (async () => {
      for (let wait = 1000; !stop.signal.aborted; wait = Math.min(wait * 2, 15_000)) {
        try {
          await listen(
            'admin/overview/stream',
            (e, d) => {
              wait = 500
              heard(e, d)
            },
            stop.signal,
          )
        } catch (e) {
          if (e instanceof Problem && e.status === 401) void client.invalidateQueries({ queryKey: ['session'] })
          if (e instanceof Problem && (e.status === 401 || e.status === 403)) break
        }
        setConnected(false)
        await new Promise(resolve => setTimeout(resolve, wait))
      }
    })()
    return () => {
      clearInterval(quiet)
      stop.abort()
    }
  }, [client, on])
  return connected
}
