// One condition at several tables is one line that names them all, where there is the same to do about it.
import type { Finding } from '../api/types'

const list = new Intl.ListFormat('en')

export function merged(findings: Finding[]): Finding[] {
  const alike = new Map<string, Finding[]>()
  for (const f of findings) {
    const key = [f.id, f.severity, f.says.replaceAll(f.about, '\0'), f.remedy].join('\n')
    alike.set(key, [...(alike.get(key) ?? []), f])
  }
  return [...alike.values()].map(all => {
    const about = list.format(all.map(f => f.about))
    const since = all.map(f => f.since).filter(Boolean).sort()[0]
    return all.length > 1 ? { ...all[0], about, since, says: all[0].says.replaceAll(all[0].about, about) } : all[0]
  })
}
