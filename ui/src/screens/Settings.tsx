// The settings in force, and where each comes from. Secrets are masked by the server.
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { get } from '../api/client'
import { Exact, stringify } from '../api/json'
import type { Setting } from '../api/types'
import { Card, Empty, Failure, Head, Loading, Scroll, Tag } from '../parts/basics'

// shownValue is a list or a map as JSON; what is not set is a dash.
const shownValue = (value: unknown) =>
  value === null || value === undefined || value === ''
    ? '–'
    : typeof value === 'object' && !(value instanceof Exact)
      ? stringify(value)
      : String(value)

export function Settings() {
  const [text, setText] = useState('')
  const settings = useQuery({
    queryKey: ['settings'],
    queryFn: ({ signal }) => get<{ settings: Setting[] | null }>('admin/settings', undefined, signal),
  })
  const shown = (settings.data?.settings ?? []).filter(s => s.name.toLowerCase().includes(text.toLowerCase()))
  return (
    <>
      <Head title="Settings" says="What this server runs with. Secrets are masked.">
        <input
          className="input !w-56"
          aria-label="Find a setting"
          placeholder="Find a setting"
          value={text}
          onChange={e => setText(e.target.value)}
          data-filter
        />
      </Head>
      <Card flush>
        {settings.isError ? (
          <Failure error={settings.error} retry={() => void settings.refetch()} />
        ) : settings.isPending ? (
          <Loading what="settings" />
        ) : !shown.length ? (
          <Empty title="No such setting" />
        ) : (
          <Scroll label="Settings">
            <table className="grid-table">
              <thead>
                <tr>
                  <th scope="col">Setting</th>
                  <th scope="col">Value</th>
                  <th scope="col">From</th>
                </tr>
              </thead>
              <tbody>
                {shown.map(s => (
                  <tr key={s.name}>
                    <td className="mono">{s.name}</td>
                    <td className="mono break-all">{shownValue(s.value)}</td>
                    <td>
                      <Tag tone={s.from === 'default' ? 'quiet' : 'wait'}>{s.from}</Tag>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )}
      </Card>
    </>
  )
}
