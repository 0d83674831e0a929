import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../../test/harness/fast-check.ts';
import { writeTokenizer } from '../../../../../simulator/src/tokens/tokenizer-files.ts';
import { decode, encode, endOfTurn, firstWord, vocabSize } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';
import { loadTokenizer } from '../tokens/load-tokenizer.ts';
import { encodeRest } from '../tokens/tokenizer.ts';
import { ChatTemplate, type Rendering, loadChatTemplate } from './chat-template.ts';
import { continueBehind } from './continue.ts';
import { messageKey } from './equality.ts';
import type { Message } from '../read/message.ts';
import { type ChatTurn, SessionTree, idsUpTo } from './session-tree.ts';

const NOTHING: Rendering = { tools: null, more: new Map() };
const CHATML =
  "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
/** Leaves out the reasoning of answers that a question of the user came after. */
const FORGETFUL = CHATML.replace(
  'm.content',
  "(m.content.split('</think>')|last if m.role == 'assistant' and not loop.last else m.content)",
);

const key = (message: Message): string => messageKey(message, 'loose_tool_call');
const bytesOf = (id: number): Buffer => Buffer.from(decode([id]));
const simPieces = { bytesOf, isSpecial: (id: number): boolean => id >= 256 && id < firstWord };

let count = 0;
/** Puts a turn into the tree as a session does. */
function turnOf(
  tree: SessionTree,
  parent: ChatTurn | null,
  added: readonly Message[],
  prompt: { keeps: number; text: string; isAfresh: boolean; ids: readonly number[] },
  sampled: readonly number[],
  content: string,
  rendering: Rendering = NOTHING,
): ChatTurn {
  const messages = [...added, { role: 'assistant', content }];
  const turn: ChatTurn = {
    id: String(count++),
    parent,
    children: [],
    messages,
    keys: messages.map(key),
    depth: (parent?.depth ?? 0) + messages.length,
    index: (parent?.index ?? -1) + 1,
    keeps: prompt.keeps,
    ids: Int32Array.from([...prompt.ids, ...sampled]),
    text: prompt.text + decode(sampled),
    isAfresh: prompt.isAfresh,
    isTorn: false,
    sampled: sampled.length,
    rest: '',
    rendering,
  };
  tree.add(turn);
  return turn;
}

const words = fc.string({
  unit: fc.constantFrom('a', ' the', ' of', 'ten', '\n', ' ', 'é', '漢', '{"x": 1}', '👩'),
  maxLength: 12,
});
const sampledIds = fc.array(
  fc.oneof(fc.integer({ min: 0, max: 255 }), fc.integer({ min: firstWord, max: vocabSize - 1 })),
  { maxLength: 12 },
);
const chats = fc.array(
  fc.record({ asked: words, sampled: sampledIds, isEnded: fc.boolean(), isCanonical: fc.boolean() }),
  {
    minLength: 1,
    maxLength: 6,
  },
);

test('what was sampled is kept, and a chat whose answers are spelled as they would be encoded has the ids of its whole rendering', async (t) => {
  const folder = temporaryFolder(t);
  writeTokenizer(folder);
  const tokenizer = await loadTokenizer(folder, 'js');
  const template = loadChatTemplate(folder);
  await fc.assert(
    fc.asyncProperty(chats, async (turns) => {
      const tree = new SessionTree();
      let parent: ChatTurn | null = null;
      let isCanonicalSoFar = true;
      const history: Message[] = [];
      for (const { asked, sampled, isEnded, isCanonical } of turns) {
        const added = [{ role: 'user', content: asked }];
        history.push(...added);
        const found: ChatTurn | null = tree.attach(history.map(key));
        assert.equal(found, parent);
        const made = continueBehind(parent, added, template, NOTHING, tokenizer.pieces);
        assert.equal(made.drift, null);
        const rest = await encodeRest(tokenizer, made.text);
        const before = idsUpTo(parent);
        const prompt = [...before.subarray(0, made.keeps), ...rest];
        assert.equal(made.keeps, before.length, 'all that is on record goes on');
        if (isCanonicalSoFar) {
          assert.deepEqual(prompt, encode(template.render(history, NOTHING, true)));
        }
        const output = [...(isCanonical ? encode(decode(sampled, false)) : sampled), ...(isEnded ? [endOfTurn] : [])];
        isCanonicalSoFar &&= isCanonical;
        const content = decode(output, false);
        parent = turnOf(tree, parent, added, { ...made, ids: rest }, output, content);
        history.push({ role: 'assistant', content });
        assert.deepEqual([...idsUpTo(parent)], [...prompt, ...output]);
      }
    }),
    { numRuns: 150 },
  );
});

test('a template that rewrites history is followed, and it is said', () => {
  const tree = new SessionTree();
  const template = new ChatTemplate(FORGETFUL, FORGETFUL, new Map());
  const first = continueBehind(null, [{ role: 'user', content: 'a' }], template, NOTHING, simPieces);
  const answer = 'x</think>b';
  const turn = turnOf(
    tree,
    null,
    [{ role: 'user', content: 'a' }],
    { ...first, ids: encode(first.text) },
    [...encode(answer), endOfTurn],
    answer,
  );
  const next = continueBehind(turn, [{ role: 'user', content: 'c' }], template, NOTHING, simPieces);
  assert.deepEqual(next, {
    keeps: 0,
    text: '<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n',
    isAfresh: true,
    drift: 'template',
  });
});

/** A first turn with these sampled ids and this answer, and how a second message continues it. */
function goOnBehind(sampled: readonly number[], answer: string) {
  const template = new ChatTemplate(CHATML, CHATML, new Map());
  const asked = [{ role: 'user', content: 'a' }];
  const first = continueBehind(null, asked, template, NOTHING, simPieces);
  const turn = turnOf(new SessionTree(), null, asked, { ...first, ids: encode(first.text) }, sampled, answer);
  return { turn, next: continueBehind(turn, [{ role: 'user', content: 'c' }], template, NOTHING, simPieces) };
}

test('an answer that its engine took apart stays as it was sampled', () => {
  const sampled = [...encode('<think>hm</think>\n\nyes'), endOfTurn];
  // The engine's parser gave its client the answer without the reasoning.
  const { turn, next } = goOnBehind(sampled, 'yes');
  assert.deepEqual(next, {
    keeps: turn.ids.length,
    text: '\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n',
    isAfresh: false,
    drift: null,
  });
});

test('an answer that was cut off is ended by the template', () => {
  const { turn, next } = goOnBehind([200], '\ufffd');
  assert.equal(next.text, '<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n');
  assert.equal(next.keeps, turn.ids.length);
});

test('a stop token that the template knows nothing of is no part of the chat that goes on', () => {
  const sampled = [...encode('b'), ...encode('<|endoftext|>')];
  const { turn, next } = goOnBehind(sampled, 'b');
  assert.equal(next.drift, 'tokens');
  assert.equal(next.keeps, turn.ids.length - 1);
  assert.ok(next.text.startsWith('<|im_end|>\n<|im_start|>user'));
});

test('other tools than before are rendered, though the record begins with those that were', () => {
  const withTools = `{% if tools %}{{ tools | tojson }}{% endif %}${CHATML}`;
  const withMode = `{% if mode %}{{ mode }}{% endif %}${CHATML}`;
  const asked = [{ role: 'user', content: 'a' }];
  const cases: [string, Rendering, Rendering][] = [
    [withTools, { tools: ['f'], more: new Map() }, { tools: ['g'], more: new Map() }],
    [withTools, { tools: ['f'], more: new Map() }, NOTHING],
    [withTools, NOTHING, { tools: ['g'], more: new Map() }],
    [withMode, { tools: null, more: new Map([['mode', 'x']]) }, { tools: null, more: new Map([['mode', 'y']]) }],
  ];
  for (const [source, was, is] of cases) {
    const template = new ChatTemplate(source, source, new Map());
    const first = continueBehind(null, asked, template, was, simPieces);
    const turn = turnOf(
      new SessionTree(),
      null,
      asked,
      { ...first, ids: encode(first.text) },
      [...encode('b'), endOfTurn],
      'b',
      was,
    );
    const added = [{ role: 'user', content: 'c' }];
    const text = template.render([...turn.messages, ...added], is, true);
    assert.deepEqual(continueBehind(turn, added, template, is, simPieces), {
      keeps: 0,
      text,
      isAfresh: true,
      drift: 'template',
    });
  }
});

test('what the template makes nothing of may change: the record goes on', () => {
  const template = new ChatTemplate(CHATML, CHATML, new Map());
  const asked = [{ role: 'user', content: 'a' }];
  const first = continueBehind(null, asked, template, NOTHING, simPieces);
  const sampled = [...encode('<think>hm</think>yes'), endOfTurn];
  const turn = turnOf(new SessionTree(), null, asked, { ...first, ids: encode(first.text) }, sampled, 'yes');
  const is = { tools: null, more: new Map([['enable_thinking', true]]) };
  const { keeps, drift } = continueBehind(turn, [{ role: 'user', content: 'c' }], template, is, simPieces);
  assert.deepEqual([keeps, drift], [turn.ids.length, null]);
});
