import type { FunctionComponent } from 'preact';
import type { About } from '../../../router/src/admin/dashboard/protocol.ts';
import { state } from '../feed/connection.ts';
import { fleet } from './fleet.ts';
import { groups } from './groups.ts';
import { overview } from './overview.ts';
import { sessions } from './sessions.ts';
import { swaps } from './swaps.ts';
import { tap } from './tap.ts';
import { tokens } from './tokens.ts';

/** A view of the page. Its place in the list is its number key. */
export interface View {
  /** In the address: `#/fleet`. */
  readonly id: string;
  readonly title: string;
  /** `rest` is what follows the id in the address. */
  readonly Show: FunctionComponent<{ readonly rest: readonly string[] }>;
  /** Left out: always. */
  readonly isShown?: (about: About) => boolean;
}

const views: readonly View[] = [overview, fleet, sessions, groups, tap, tokens, swaps];

export function shownViews(): readonly View[] {
  const about = state.about.value;
  return views.filter(({ isShown }) => isShown === undefined || (about !== null && isShown(about)));
}
