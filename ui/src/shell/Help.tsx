import { Dialog } from '../parts/basics'
import { screens } from './screens'

const keys: [string, string][] = [
  ['⌘K or Ctrl K', 'Go to a screen, or to an event by its id'],
  ['/', 'First filter of the screen'],
  ['?', 'This help'],
  ['Esc', 'Close what is open'],
  ...screens.map((s): [string, string] => [`g ${s.key}`, s.name]),
]

export function Help({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Dialog title="Keyboard" open={open} onClose={onClose}>
      <dl className="grid grid-cols-[max-content_1fr] gap-x-6 gap-y-2">
        {keys.map(([key, says]) => (
          <div key={key} className="contents">
            <dt>
              <kbd className="mono rounded border bg-sunk px-1.5 py-0.5">{key}</kbd>
            </dt>
            <dd>{says}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  )
}
