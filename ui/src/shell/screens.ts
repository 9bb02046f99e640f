// What the navigation, the palette and the keyboard lead to.
export const screens = [
  { to: '/', name: 'Overview', key: 'o', icon: 'M3 12h4l3-8 4 16 3-8h4' },
  { to: '/letters', name: 'Letters', key: 'l', icon: 'M3 6h18v12H3zM3 7l9 7 9-7' },
  { to: '/events', name: 'Events', key: 'e', icon: 'M8 6h13M8 12h13M8 18h13M3.5 6h.01M3.5 12h.01M3.5 18h.01' },
  { to: '/conditions', name: 'Conditions', key: 'c', icon: 'M12 3l9 17H3zM12 10v4M12 17h.01' },
  { to: '/pauses', name: 'Pauses', key: 'p', icon: 'M8 5v14M16 5v14' },
  { to: '/runs', name: 'Runs', key: 'r', icon: 'M6 4l14 8-14 8z' },
  { to: '/audit', name: 'Audit', key: 'a', icon: 'M6 3h9l4 4v14H6zM9 12h7M9 16h7' },
  { to: '/settings', name: 'Settings', key: 's', icon: 'M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4' },
] as const
