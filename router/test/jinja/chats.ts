const TEXTS = [
  'Hello',
  '  two before, two after  ',
  '\n\nlines\n\n',
  '\tTab\t',
  '',
  `<b>&"'</b>`,
  'Grüße \u2028 😀',
  '\ufeffbom\u00a0nbsp\u0085nel\x1c',
  '<think>\n  reasoning  \n</think>\n\n  answer\n',
  'no begin</think>\n  tail  ',
  '{"a": 1.0}',
];

/** Parameters of tools as JSON. */
const PARAMETERS = [
  '{"type":"object","properties":{"city":{"type":"string","description":"A city"},"days":{"type":"integer","minimum":1.0,"default":3}},"required":["city"]}',
  '{"type":"object","properties":{"10":{"type":"number","default":1.0},"9":{"type":["number","null"],"enum":[1.0,1e-7,1e22,12345678901234567890,true,null,"é"]},"b":{"type":"array","items":{"type":"string","enum":["a","b"]}}},"required":[]}',
  '{"type":"object","properties":{}}',
  '{"type":"object","properties":{"o":{"type":"object","properties":{"z":{"type":"boolean","default":false}},"required":["z"],"additionalProperties":false},"u":{"anyOf":[{"type":"string"},{"type":"null"}]}}}',
];

/** Arguments of tool calls as JSON. */
const ARGUMENTS = [
  '{}',
  '{"city":"Paris","days":2}',
  '{"city":"  x\\n","days":1.0,"f":0.1,"e":1e-7,"n":null,"t":true,"l":[1,2.0,"a"],"o":{"10":1,"9":2}}',
  `{"10":"a","9":"b","big":12345678901234567890,"f":1e16,"g":1e15,"m":-0.0,"u":"é<>&'"}`,
  '{"l":[],"o":{},"s":"","no":false}',
];

type Message = Readonly<Record<string, unknown>>;

const user = (content: string): Message => ({ role: 'user', content });
const assistant = (content: string, more: Message = {}): Message => ({ role: 'assistant', content, ...more });
const call = (id: string, which: number): Message => ({
  id,
  type: 'function',
  function: { name: 'get_weather', arguments: `ARGUMENTS${which}` },
});
const result = (id: string, content: string): Message => ({
  role: 'tool',
  tool_call_id: id,
  name: 'get_weather',
  content,
});

/** The names of a rendering as JSON. Arguments and parameters get into it as they are written. */
function names(messages: readonly Message[], tools: readonly string[] = [], more: Message = {}, asks = true): string {
  const own = { messages, add_generation_prompt: asks, bos_token: '<s>', eos_token: '</s>', ...more };
  const body = JSON.stringify(own).replace(/"ARGUMENTS(\d)"/g, (_, which) => ARGUMENTS[Number(which)]!);
  const about = String.raw`"name":"get_weather","description":"Get <the> \"weather\" & more\nnow é"`;
  const listed = tools.map((parameters) => `{"type":"function","function":{${about},"parameters":${parameters}}}`);
  return `${body.slice(0, -1)},"tools":${tools.length === 0 ? 'null' : `[${listed.join(',')}]`},"documents":null}`;
}

/** Chats with texts, numbers and orders that other renderers get wrong. */
export function chats(): string[] {
  const made: string[] = [];
  for (const [i, text] of TEXTS.entries()) {
    const [asked, followed] = [user('q'), user('z')];
    made.push(names([user(text)]));
    made.push(names([{ role: 'system', content: text }, user(text)], [], { enable_thinking: false }));
    made.push(names([asked, assistant(text), user(text)]));
    made.push(names([asked, assistant(text)], [], {}, false));
    made.push(names([asked, assistant('a', { reasoning_content: text }), followed]));
    made.push(names([asked, assistant(text, { reasoning_content: text })], [], { enable_thinking: true }, false));
    for (const which of ARGUMENTS.keys()) {
      if ((i + which) % 4 > 0) continue;
      const calls = { tool_calls: [call('call00001', which), call('call00002', 1)] };
      const results = [result('call00001', text), result('call00002', '{"temp": 1.0}')];
      const first = { tool_calls: [call('call00001', which)] };
      made.push(names([asked, assistant('', first), results[0]!], [PARAMETERS[0]!]));
      made.push(names([asked, assistant(text, calls), ...results, assistant(text), followed], PARAMETERS.slice(0, 2)));
      made.push(names([asked, assistant(text, { reasoning_content: text, ...first }), results[0]!], [PARAMETERS[3]!]));
      made.push(names([asked, assistant('', first)], [], {}, false));
    }
  }
  for (const parameters of PARAMETERS) made.push(names([user('q')], [parameters]));
  return made;
}
