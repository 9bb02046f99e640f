// ⌘K: every screen, and any event or letter by its id.
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { Dialog, Icon } from '../parts/basics'
import { screens } from './screens'

export function Palette({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Dialog title="Go to" open={open} onClose={onClose}>
      <Choices onClose={onClose} />
    </Dialog>
  )
}

function Choices({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate()
  const [text, setText] = useState('')
  const [place, setPlace] = useState(0)
  const wanted = text.trim()
  const found = screens
    .filter(s => s.name.toLowerCase().includes(wanted.toLowerCase()))
    .map(s => ({ name: s.name as string, icon: s.icon as string, go: () => navigate({ to: s.to }) }))
  const ids =
    wanted.length < 8 && !/^\d+$/.test(wanted)
      ? []
      : [
          {
            name: `Event ${wanted}`,
            icon: screens[2].icon,
            go: () => navigate({ to: '/events/$id', params: { id: wanted } }),
          },
          {
            name: `Letter ${wanted}`,
            icon: screens[1].icon,
            go: () => navigate({ to: '/letters', search: { letter: wanted } }),
          },
        ]
  const key =
    wanted && !found.length
      ? [
          {
            name: `Events of key ${wanted}`,
            icon: screens[2].icon,
            go: () => navigate({ to: '/events', search: { key: wanted } }),
          },
        ]
      : []
  const choices = [...found, ...ids, ...key]
  const choose = (i: number) => {
    if (choices[i]) {
      void choices[i].go()
      onClose()
    }
  }
  const chosen = Math.min(place, choices.length - 1)
  return (
    <div className="grid gap-2">
      <input
        className="input"
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls="choices"
        aria-activedescendant={`choice-${chosen}`}
        aria-label="A screen, or the id of an event"
        placeholder="A screen, or the id of an event"
        value={text}
        onChange={e => {
          setText(e.target.value)
          setPlace(0)
        }}
        onKeyDown={e => {
          if (e.key === 'ArrowDown') {
            e.preventDefault()
            setPlace(Math.min(chosen + 1, choices.length - 1))
          }
          if (e.key === 'ArrowUp') {
            e.preventDefault()
            setPlace(Math.max(chosen - 1, 0))
          }
          if (e.key === 'Enter') choose(chosen)
        }}
      />
      <ul id="choices" role="listbox" aria-label="Choices">
        {choices.map((choice, i) => (
          <li
            key={choice.name}
            id={`choice-${i}`}
            role="option"
            aria-selected={i === chosen}
            onMouseMove={() => setPlace(i)}
            onClick={() => choose(i)}
            className={`flex cursor-pointer items-center gap-2.5 rounded-lg px-3 py-2
              ${i === chosen ? 'bg-accent-soft text-accent' : ''}`}
          >
            <Icon d={choice.icon} /> <span className="truncate">{choice.name}</span>
          </li>
        ))}
      </ul>
    </div>
  )
}
