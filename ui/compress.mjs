// Writes a .gz beside each file of dist. zlib's header has no time and no name, so the same input gives the same bytes.
import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'

for (const name of readdirSync('dist', { recursive: true })) {
  const path = join('dist', name)
  if (statSync(path).isFile() && /\.(html|js|css|svg)$/.test(name)) writeFileSync(path + '.gz', gzipSync(readFileSync(path), { level: 9 }))
}
