import assert from 'node:assert/strict';
import { newAgent, post } from '../../exact/post.ts';
import { GROUP, type Session, type World } from './world.ts';

/** What happens in the middle of a call: it waits for that at its third token. */
export type Fault = 'engine' | 'router' | 'update' | 'cut';

const faults: readonly (readonly [fault: Fault, share: number])[] = [
  ['engine', 0.006],
  ['router', 0.001],
  ['update', 0.004],
  ['cut', 0.02],
];

const agent = newAgent();
const LONG_WORDS = 400;

/** What a session has said so far: token ids for `/generate`, messages for chats. */
type Talk = { readonly ids: readonly number[] } | { readonly messages: readonly object[] };

interface Reply {
  readonly text: string;
  readonly ids: readonly number[];
}

/** All sessions of a group, one beside the other. */
export async function runGroup(world: World, number: number): Promise<void> {
  const { random } = world;
  const group = `g${number}`;
  const isConstant = random() < 0.15;
  const isLong = random() < 0.1;
  const members = Array.from({ length: GROUP }, (_, i): Session => {
    const name = `${group}-${i}`;
    const endsByHeader = random() < 0.5;
    const session = { name, group, whole: [], reward: null, endsByHeader, isLong: isLong && i === 3 };
    world.sessions.set(name, session);
    return session;
  });
  await Promise.all(members.map((session, i) => runSession(world, session, isConstant ? 1 : i % 3)));
}

async function runSession(world: World, session: Session, reward: number): Promise<void> {
  const { random } = world;
  const turns = 1 + Math.floor(random() * 3);
  const isChat = random() < 0.4;
  let talk: Talk = isChat ? { messages: [] } : { ids: [300 + Math.floor(random() * 200), 310, 320] };
  const { endsByHeader } = session;
  for (let turn = 0; turn < turns; turn++) {
    const isLast = turn === turns - 1;
    const end: Record<string, string> = isLast && endsByHeader ? { 'x-turnout-session-end': '1' } : {};
    if (isLast && endsByHeader && reward !== 0) end['x-turnout-reward'] = String(reward);
    const reply = await ask(world, session, talk, turn, end);
    if (isLast && endsByHeader && end['x-turnout-reward'] !== undefined) session.reward = reward;
    talk = after(talk, reply);
  }
  if (!endsByHeader) {
    const given = random() < 0.5 ? { reward } : {};
    const { status, text } = await world.insist(`/sessions/${session.name}/finish`, given);
    assert.equal(status, 200, text);
    if ('reward' in given) session.reward = reward;
  }
  if (session.reward !== null) return;
  // A judge that takes its time, and is not sure that its call was heard.
  const late = { reward, id: `judge-${session.name}` };
  for (let call = random() < 0.3 ? 2 : 1; call > 0; call--) {
    const { status, text } = await world.insist(`/trajectories/${session.name}/reward`, late);
    assert.equal(status, 200, text);
  }
  session.reward = reward;
}

function after(talk: Talk, { text, ids }: Reply): Talk {
  if ('ids' in talk) return { ids: [...talk.ids, ...ids, 400 + (ids.length % 50)] };
  const said = { role: 'assistant', content: text };
  return { messages: [...talk.messages, said] };
}

/** Asks until it has a whole response: each try is a call of its own. */
async function ask(
  world: World,
  session: Session,
  talk: Talk,
  turn: number,
  end: Readonly<Record<string, string>>,
): Promise<Reply> {
  for (let attempt = 0; ; attempt++) {
    const call = `${session.name}.${turn}.${attempt}`;
    const reply = await askOnce(world, session, talk, call, end);
    if (reply !== null) {
      session.whole.push(call);
      return reply;
    }
    assert.ok(attempt < 50, `${call}: no response`);
    await world.router.settled();
    await world.engines.settled();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function askOnce(
  world: World,
  session: Session,
  talk: Talk,
  call: string,
  end: Readonly<Record<string, string>>,
): Promise<Reply | null> {
  const { random, engines } = world;
  const isStream = random() < 0.5;
  const cut = { now: (): void => {} };
  let isCut = false;
  const drawn = faultOf(random());
  const due = world.due.shift();
  const fault = due ?? drawn;
  if (fault !== null) {
    const onHeld = (): void => void happen(world, fault, call, () => ((isCut = true), cut.now()));
    engines.scripts.set(call, {
      ids: Array.from({ length: 8 }, () => 264 + Math.floor(random() * 380)),
      holdAt: 3,
      onHeld,
    });
  }
  const long = session.isLong ? ' of ten'.repeat(LONG_WORDS) : '';
  const body =
    'ids' in talk
      ? {
          input_ids: session.isLong ? [...talk.ids, ...Array<number>(2 * LONG_WORDS).fill(299)] : talk.ids,
          sampling_params: { max_new_tokens: 8 },
          return_logprob: true,
        }
      : {
          model: 'sim',
          messages: [...talk.messages, { role: 'user', content: `${call}: what is of ten?${long}` }],
          max_tokens: 8,
        };
  const headers = {
    'content-type': 'application/json',
    'x-session-id': session.name,
    'x-turnout-group': session.group,
    'x-turnout-group-size': String(GROUP),
    ...end,
  };
  const path = 'ids' in talk ? '/generate' : '/v1/chat/completions';
  const answer = post(agent, world.router.url + path, { ...body, rid: call, stream: isStream }, headers, () =>
    isCut ? 'leave' : 'go on',
  );
  const left = new Promise<null>((resolve) => (cut.now = () => resolve(null)));
  const got = await Promise.race([answer, ...(fault === 'cut' && !isStream ? [left] : [])]);
  // The router was killed before it could come.
  if (due !== undefined && !world.has(due)) world.due.push(due);
  if (got === null || !got.isWhole || got.status !== 200) return null;
  return readReply(got.parts, isStream);
}

function faultOf(drawn: number): Fault | null {
  let sum = 0;
  for (const [fault, share] of faults) if (drawn < (sum += share)) return fault;
  return null;
}

async function happen(world: World, fault: Fault, call: string, cut: () => void): Promise<void> {
  const { engines, happened } = world;
  if (fault === 'engine') {
    happened.engineDeaths++;
    return engines.replaceServing(call);
  }
  if (fault === 'router') await world.killRouter();
  if (fault === 'update') await world.update();
  if (fault === 'cut') {
    happened.cuts++;
    cut();
  }
  engines.release(call);
}

/** null: the response has no end. */
function readReply(parts: readonly string[], isStream: boolean): Reply | null {
  let text = '';
  let ids: number[] = [];
  let isFinished = false;
  for (const part of parts) {
    if (!part.startsWith('{')) continue;
    const said = JSON.parse(part) as Said;
    if (said.error !== undefined) return null;
    const { meta_info: meta, output_ids: output = [], choices } = said;
    if (choices !== undefined) {
      const [choice] = choices;
      text += (isStream ? choice?.delta?.content : choice?.message?.content) ?? '';
      isFinished ||= (choice?.finish_reason ?? null) !== null;
      if (choice?.finish_reason === 'abort') return null;
      continue;
    }
    // Events of either kind: with all that there is so far, or with what is new.
    ids = output.length === meta?.completion_tokens ? [...output] : [...ids, ...output];
    isFinished ||= (meta?.finish_reason ?? null) !== null;
    if (meta?.finish_reason?.type === 'abort') return null;
  }
  return isFinished ? { text, ids } : null;
}

interface Said {
  readonly error?: unknown;
  readonly output_ids?: readonly number[];
  readonly meta_info?: { readonly completion_tokens: number; readonly finish_reason: { readonly type: string } | null };
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string | null };
    readonly message?: { readonly content?: string | null };
    readonly finish_reason?: string | null;
  }[];
}
