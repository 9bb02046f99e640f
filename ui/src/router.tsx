// The screens and their addresses. They stand behind the #, so that the page works under any prefix of a proxy.
import {
  createHashHistory,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
} from '@tanstack/react-router'
import type { Search } from './api/types'
import { Head } from './parts/basics'
import { Overview } from './screens/Overview'
import { parseSearch, stringifySearch } from './shell/filters'
import { Shell } from './shell/Shell'

const root = createRootRoute({
  component: Shell,
  validateSearch: (search: Search) => search,
  notFoundComponent: () => (
    <Head title="There is no such page" says="The address may be of another version of this page." />
  ),
})
const getParentRoute = () => root

const screens = [
  createRoute({ getParentRoute, path: '/', component: Overview }),
  createRoute({
    getParentRoute,
    path: '/letters',
    component: lazyRouteComponent(() => import('./screens/Letters'), 'Letters'),
  }),
  createRoute({
    getParentRoute,
    path: '/events',
    component: lazyRouteComponent(() => import('./screens/Events'), 'Events'),
  }),
  createRoute({
    getParentRoute,
    path: '/events/$id',
    component: lazyRouteComponent(() => import('./screens/Event'), 'Event'),
  }),
  createRoute({
    getParentRoute,
    path: '/conditions',
    component: lazyRouteComponent(() => import('./screens/Conditions'), 'Conditions'),
  }),
  createRoute({
    getParentRoute,
    path: '/pauses',
    component: lazyRouteComponent(() => import('./screens/Pauses'), 'Pauses'),
  }),
  createRoute({
    getParentRoute,
    path: '/runs',
    component: lazyRouteComponent(() => import('./screens/Runs'), 'Runs'),
  }),
  createRoute({
    getParentRoute,
    path: '/runs/$id',
    component: lazyRouteComponent(() => import('./screens/Run'), 'Run'),
  }),
  createRoute({
    getParentRoute,
    path: '/audit',
    component: lazyRouteComponent(() => import('./screens/Audit'), 'Audit'),
  }),
  createRoute({
    getParentRoute,
    path: '/settings',
    component: lazyRouteComponent(() => import('./screens/Settings'), 'Settings'),
  }),
]

export const router = createRouter({
  routeTree: root.addChildren(screens),
  history: createHashHistory(),
  defaultPreload: 'intent',
  parseSearch,
  stringifySearch,
})

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
