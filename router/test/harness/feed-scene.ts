import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import type { RouterParts } from '../../src/router.ts';
import type { FeedStats } from '../../src/observe/trainer-feed.ts';
import { type ChatScene, startChatScene } from './chat-scene.ts';
import type { RouterOptions } from './router.ts';

export interface FeedRow {
  readonly session: string;
  readonly trajectory: string;
  readonly tokens: readonly number[];
  readonly loss_mask: readonly number[];
  readonly rollout_log_probs: readonly (number | null)[];
  readonly versions: readonly number[];
  readonly lag: number;
  readonly reward: number | null;
  readonly rewards: Readonly<Record<string, number>>;
  readonly turn_rewards: readonly (number | null)[];
  readonly token_rewards: readonly (number | null)[] | null;
  readonly turns: readonly { readonly id: string; readonly from: number; readonly to: number }[];
  readonly flags: readonly string[];
  readonly labels: readonly string[];
}

export interface FeedGroup {
  readonly id: number;
  readonly lease: string;
  readonly cursor: number;
  readonly group: string;
  readonly because: string;
  readonly deliveries: number;
  readonly version: string | null;
  readonly version_names: readonly string[];
  readonly rows: readonly FeedRow[];
}

/** A router with the feed before a simulated engine, and what clients and consumers do. */
export interface FeedScene extends ChatScene {
  /** A turn of a session in a group. @returns status and body of the response */
  turn(session: string, group: string, headers?: Record<string, string>): Promise<{ status: number; text: string }>;
  finish(session: string, outcome?: object): Promise<void>;
  take(query?: string, headers?: Record<string, string>): Promise<FeedGroup[]>;
  ack(...groups: readonly FeedGroup[]): Promise<void>;
  stats(): Promise<FeedStats>;
  get(path: string): Promise<{ status: number; text: string }>;
}

export async function startFeedScene(
  t: TestContext,
  options: object,
  more: { router?: RouterOptions; parts?: RouterParts; sim?: Partial<SimOptions> } = {},
): Promise<FeedScene> {
  const router = { plugin: ['radix-tree', `feed:${JSON.stringify(options)}`], ...more.router };
  return feedSceneOf(await startChatScene(t, { ...more, router }));
}

export function feedSceneOf(scene: ChatScene): FeedScene {
  const get = async (path: string, headers: Record<string, string> = {}) => {
    const answer = await fetch(scene.router.url + path, { headers });
    return { status: answer.status, text: await answer.text() };
  };
  return {
    ...scene,
    get,
    turn: (session, group, headers = {}) => {
      const named = { 'x-session-id': session, 'x-turnout-group': group };
      const body = { text: 'What is of ten?', return_logprob: true, sampling_params: { max_new_tokens: 8 } };
      return scene.post('/generate', body, { ...named, ...headers });
    },
    async finish(session, outcome = {}) {
      const { status, text } = await scene.post(`/sessions/${session}/finish`, outcome);
      assert.equal(status, 200, text);
    },
    async take(query = 'wait_secs=20', headers = {}) {
      const { status, text } = await get(`/feed?${query}`, headers);
      assert.equal(status, 200, text);
      return groupsIn(text);
    },
    async ack(...groups) {
      const { status, text } = await scene.post('/feed/ack', { leases: groups.map(({ lease }) => lease) });
      assert.equal(status, 200, text);
    },
    async stats() {
      return JSON.parse((await get('/feed/stats')).text) as FeedStats;
    },
  };
}

export const groupsIn = (ndjson: string): FeedGroup[] =>
  ndjson
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as FeedGroup);

/** What came in is what is pending, acknowledged or dropped. */
export function assertSums(stats: FeedStats): void {
  const sum = (counts: Readonly<Record<string, number | undefined>>): number =>
    Object.values(counts).reduce<number>((all, count) => all + (count ?? 0), 0);
  const { groups, members, open, ready, leased, acked, ackedMembers, pendingMembers } = stats;
  assert.equal(groups, open + ready + leased + acked + sum(stats.droppedGroups), JSON.stringify(stats));
  assert.equal(members, pendingMembers + ackedMembers + sum(stats.droppedMembers), JSON.stringify(stats));
}
