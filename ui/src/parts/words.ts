// Numbers, times and states as the page writes them.
import type { Int } from '../api/types'

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const short = new Intl.NumberFormat('en', { maximumFractionDigits: 1 })

export function count(n: Int | undefined, bounded = false): string {
  if (n === undefined) return '–'
  const text = typeof n === 'number' ? whole.format(n) : n.toString()
  return bounded ? `${text}+` : text
}

export function rate(n: number | undefined): string {
  return n === undefined ? '–' : n >= 100 ? whole.format(n) : short.format(n)
}

export function duration(seconds: number | undefined): string {
  if (seconds === undefined) return '–'
  if (seconds < 0.0995) return `${Math.max(0, Math.round(seconds * 1000))} ms`
  if (seconds < 10) return `${seconds.toFixed(1)} s`
  if (seconds < 120) return `${Math.round(seconds)} s`
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`
  return `${Math.round(seconds / 86_400)} d`
}

export function bytes(n: number): string {
  return n < 1024 ? `${n} B` : n < 1 << 20 ? `${short.format(n / 1024)} KB` : `${short.format(n / (1 << 20))} MB`
}

export function ago(time: string, now = Date.now()): string {
  const seconds = (now - Date.parse(time)) / 1000
  if (Math.abs(seconds) < 1.5) return 'just now'
  return seconds < 0 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`
}

const clock = new Intl.DateTimeFormat('en-GB', {
  year: 'numeric',
  month: '2-digit',
  day: '2-digit',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  timeZoneName: 'short',
})
export const at = (time: string) => clock.format(new Date(time))

export const plural = (n: number, one: string, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`

export type Tone = 'good' | 'wait' | 'warn' | 'bad' | 'quiet'

export function toneOf(state: string): Tone {
  if (/deliver|publish|done|complet|sent|processed|available|healthy|replayed|held$/i.test(state) && !/un/i.test(state))
    return 'good'
  if (/dead|fail|critical|exhaust|error/i.test(state)) return 'bad'
  if (/retry|warning|unknown|lapsed|paused|stopped/i.test(state)) return 'warn'
  if (/new|pending|running|advice|waiting|processing/i.test(state)) return 'wait'
  return 'quiet'
}
