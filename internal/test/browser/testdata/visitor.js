// What a test does on a page, as a person would: by what is written there. An open dialog hides what is below it.
window.visitor = {
  root: () => [...document.querySelectorAll('dialog[open]')].at(-1) ?? document.body,
  text: () => visitor.root()?.innerText.replace(/\s+/g, ' ') ?? '',
  name: e => (e.getAttribute('aria-label') ?? e.innerText).replace(/\s+/g, ' ').trim(),

  // press presses the button, link or option of a name, in the row that has a text. It says what hinders it.
  press(name, row) {
    const found = [...visitor.root().querySelectorAll('button, a, summary, [role=option], input[type=checkbox]')]
      .filter(e => visitor.name(e) === name && e.checkVisibility())
      .filter(e => !row || (e.closest('li, tr, article, form, section')?.innerText ?? '').includes(row))
    const one = found[0]
    if (!one) return `no "${name}"`
    if (one.disabled) return `"${name}" cannot be pressed: ${one.title}`
    one.scrollIntoView({ block: 'center' })
    const box = one.getClientRects()[0], x = box.left + box.width / 2, y = box.top + box.height / 2
    const hit = document.elementFromPoint(x, y)
    if (!one.contains(hit) && !hit?.contains(one)) return `"${name}" is hidden behind ${hit?.outerHTML.slice(0, 200)}`
    one.click()
    return ''
  },

  // field puts the focus on what a label names, and selects what is in it.
  field(label, value) {
    const named = [...visitor.root().querySelectorAll('label')].find(l => l.innerText.trim().startsWith(label))
    const one = named?.querySelector('input, select, textarea') ?? visitor.root().querySelector(`[aria-label="${label}"]`)
    if (!one || !one.checkVisibility()) return `no field "${label}"`
    if (one.tagName === 'SELECT') {
      if (![...one.options].some(o => o.value === value)) return `"${label}" has no choice "${value}"`
      one.value = value
      one.dispatchEvent(new Event('change', { bubbles: true }))
      return 'chosen'
    }
    one.focus()
    one.select()
    return ''
  },
}
