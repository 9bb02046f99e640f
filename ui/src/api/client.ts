// Requests to the server that the page came from, wherever a proxy has put it.
import { parse, stringify } from './json'
import type { Search } from './types'

const root = new URL('../v1/', document.baseURI)
const tokenName = 'outbox-token'

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    detail?: string,
  ) {
    super(detail || title)
  }
}

export const token = {
  get: () => sessionStorage.getItem(tokenName) ?? '',
  set: (text: string) => sessionStorage.setItem(tokenName, text),
  clear: () => sessionStorage.removeItem(tokenName),
}

function address(path: string, search?: Search) {
  const url = new URL(path, root)
  for (const [name, value] of Object.entries(search ?? {})) if (value) url.searchParams.set(name, value)
  return url
}

async function send(url: URL, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers)
  if (token.get()) headers.set('Authorization', `Bearer ${token.get()}`)
  let answer: Response
  try {
    answer = await fetch(url, { ...init, headers, cache: 'no-store', redirect: 'error' })
  } catch (cause) {
    if (init.signal?.aborted) throw cause
    throw new Problem(
      0,
      'The server does not answer',
      'The server does not answer. It may be starting again, the network may be away, or a proxy redirects the page.',
    )
  }
  if (answer.ok) return answer
  const text = await answer.text()
  try {
    const said = parse(text) as {
      title?: string
      detail?: string
      errors?: { message?: string; location?: string }[]
    }
    const errors = said.errors?.map(e => [e.location, e.message].filter(Boolean).join(': ')).join('; ')
    throw new Problem(
      answer.status,
      said.title ?? answer.statusText,
      [said.detail, errors].filter(Boolean).join(': '),
    )
  } catch (e) {
    throw e instanceof Problem
      ? e
      : new Problem(answer.status, answer.statusText || `HTTP ${answer.status}`, text.slice(0, 300))
  }
}

export async function get<T>(path: string, search?: Search, signal?: AbortSignal): Promise<T> {
  return parse(await getText(path, search, signal)) as T
}

export async function getText(
  path: string,
  search?: Search,
  signal?: AbortSignal,
  headers: HeadersInit = { Accept: 'application/json' },
): Promise<string> {
  return (await send(address(path, search), { signal, headers })).text()
}

let changed = -Infinity // when this page last changed something

// What is read again and again may be an answer that another page has had, of so many seconds ago; not where this one
// has just changed something, which it wants to see.
export async function poll<T>(seconds: number, path: string, search?: Search, signal?: AbortSignal): Promise<T> {
  const own = performance.now() - changed < 20_000
  const headers = { Accept: 'application/json', 'Cache-Control': own ? 'no-cache' : `max-age=${seconds}` }
  return parse(await getText(path, search, signal, headers)) as T
}

const posted = (body: unknown, accept: string, signal?: AbortSignal): RequestInit => ({
  method: 'POST',
  body: stringify(body),
  signal,
  headers: { 'Content-Type': 'application/json', Accept: accept },
})

export async function post<T>(path: string, body: unknown): Promise<T> {
  changed = performance.now()
  return parse(await (await send(address(path), posted(body, 'application/json'))).text()) as T
}

export type Heard = (event: string, data: unknown) => void

// Streams are read with fetch, since EventSource cannot send the Authorization header. False: there is nothing to come.
export async function listen(path: string, heard: Heard, signal: AbortSignal, body?: unknown): Promise<boolean> {
  const accept = 'text/event-stream'
  const answer = await send(
    address(path),
    body === undefined ? { signal, headers: { Accept: accept } } : posted(body, accept, signal),
  )
  if (answer.status === 204 || !answer.body) return false
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  for (let rest = ''; ;) {
    const { done, value } = await reader.read()
    if (body !== undefined) changed = performance.now()
    if (done) return true
    const blocks = (rest + value).replaceAll('\r\n', '\n').split('\n\n')
    rest = blocks.pop() ?? ''
    for (const block of blocks) tell(block, heard)
  }
}

function tell(block: string, heard: Heard) {
  let event = 'message'
  const data: string[] = []
  for (const line of block.split('\n')) {
    if (line.startsWith('event:')) event = line.slice(6).trim()
    else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''))
  }
  if (data.length) heard(event, parse(data.join('\n')))
}
