import type { Chance } from './chance.ts';

/** Message heads as text, one character a byte: from a grammar, then damaged at the places where readers disagree. */

const METHODS = ['GET', 'POST', 'POST', 'PUT', 'HEAD', 'DELETE', 'PATCH', 'OPTIONS', 'M-SEARCH', 'QUERY'];
const ODD_METHODS = ['CONNECT', 'TRACE', 'get', 'FOO', 'GE(T', '', 'PRI', 'SOURCE', 'G\0ET', 'POST\t'];
const TARGETS = ['/', '/generate', '/v1/chat/completions?stream=1', '/a%20b/../c;d=e?f=g&h=[i]', '//x', '/"<>\\^`{|}'];
const ABSOLUTES = ['http://h/p', 'HTTP://h:80', 'https://[::1]:8000/p?q', 'http://a.b-c_d?q=/', 'http://127.0.0.1/'];
const ODD_TARGETS = [
  '*',
  'a',
  'h:443',
  'http://',
  'http:///p',
  'http://u@h/p',
  'ftp://h/p',
  'http://h:99999999/',
  'http://[::1/p',
  'http://h#f',
  '/a#b',
  '/a b',
  '/\x7f',
  '/\xe9',
  '/\t',
  '',
];
const ODD_VERSIONS = [
  'HTTP/1.2',
  'HTTP/2.0',
  'HTTP/0.9',
  'http/1.1',
  'HTTP/1.10',
  'HTTP/11',
  'HTTP/1.',
  'HTTP/ 1.1',
  'HTTP/1.1 ',
  'HTTP/a.b',
  'ICE/1.0',
  '',
];
const FIELDS = [
  'accept: */*',
  'Content-Type: application/json',
  'X-Request-Id: abc-123',
  'authorization: Bearer \x80\xff',
  'x-empty:',
  'x-tabs:\ta\tb\t ',
  'Connection: keep-alive',
  'connection: close',
  'Connection: x-a, x-b',
  'Keep-Alive: timeout=5',
  'x-a: 1',
  'te: trailers',
  'trailer: x-t',
  'expect: 100-continue',
  'upgrade: h2c',
  'connection: Upgrade',
  'proxy-connection: keep-alive',
  '!#$%&\'*+-.^_`|~: "quoted, \\" ;,"',
];
const ODD_FIELDS = [
  'x y: z',
  'x : y',
  ': y',
  ' x: y',
  '\tx: y',
  'x',
  'x: a\r\n b',
  'x: a\r\n\t',
  'x: \0',
  'x: \x01\x7f',
  'x: a\rb',
  'x: a\nb',
  'x\xe9: y',
  'x(y): z',
  'connection: content-length',
  'connection: host, close',
  'upgrade: websocket',
  'expect: 200-ok',
  'host: a b',
  'host: u@h',
];
const LENGTHS = ['0', '5', '5 ', ' 12', '\t7', '7\t', '007', '4294967296', '9007199254740991'];
const ODD_LENGTHS = [
  '',
  '-1',
  '+5',
  '5, 5',
  '5,',
  '0x5',
  '5 5',
  '5a',
  '5.0',
  '1e1',
  '9007199254740993',
  '99999999999999999999',
  '18446744073709551616',
];
const CODINGS = ['chunked', 'chunked', 'Chunked', 'chunked ', '\tchunked', 'chunked\t', 'CHUNKED'];
const ODD_CODINGS = [
  '',
  'identity',
  'gzip',
  'gzip, chunked',
  'chunked, chunked',
  'chunked, identity',
  'chunked;a=b',
  'xchunked',
  'chunked,',
  ',chunked',
  '"chunked"',
  'chun ked',
  'chunked\x0b',
];
/** Bytes on which readers are known to differ. */
const HAZARDS = '\r\n\0\t :,;\x0b\x0c\x7f\x80\xa0\xff\x1f"0aA-'.split('');

const caseOf = (chance: Chance, name: string): string =>
  chance.pick([name, name.toLowerCase(), name.toUpperCase(), name.replace('t', 'T')]);

function framing(chance: Chance, lines: string[]): void {
  const length = (values: readonly string[]): string =>
    `${caseOf(chance, 'Content-Length')}:${chance.pick(['', ' '])}${chance.pick(values)}`;
  const coding = (values: readonly string[]): string =>
    `${caseOf(chance, 'Transfer-Encoding')}:${chance.pick(['', ' '])}${chance.pick(values)}`;
  const kind = chance.int(24);
  if (kind < 8) lines.push(length(LENGTHS));
  else if (kind < 14) lines.push(coding(CODINGS));
  else if (kind === 14) lines.push(length(LENGTHS), coding(CODINGS));
  else if (kind === 15) lines.push(length(LENGTHS), length(LENGTHS));
  else if (kind === 16) lines.push(coding(CODINGS), coding(CODINGS));
  else if (kind === 17) lines.push(length(ODD_LENGTHS));
  else if (kind === 18) lines.push(coding(ODD_CODINGS));
}

function fields(chance: Chance, first: readonly string[]): string[] {
  const lines = [...first];
  framing(chance, lines);
  for (let left = chance.int(7); left > 0; left--) lines.push(chance.pick(FIELDS));
  if (chance.oneIn(6)) lines.push(chance.pick(ODD_FIELDS));
  if (chance.oneIn(400)) lines.push(`x-long: ${'v'.repeat(chance.pick([60_000, 65_400, 65_536, 70_000]))}`);
  if (chance.oneIn(400)) lines.push(...Array.from({ length: chance.between(180, 210) }, (_, i) => `n${i}:${i}`));
  for (let i = lines.length - 1; i > 0; i--) {
    const other = chance.int(i + 1);
    [lines[i], lines[other]] = [lines[other]!, lines[i]!];
  }
  return lines;
}

/** One damage to the text. Most strike at line ends, colons and the words that frame the message. */
function damage(chance: Chance, text: string): string {
  let at = chance.int(text.length + 1);
  if (chance.oneIn(2)) {
    const near = text.indexOf(chance.pick(['\r', '\n', ':', ' ', 'hunked', 'ength', 'HTTP']), at);
    if (near >= 0) at = near + chance.int(2);
  }
  const before = text.slice(0, at);
  const lineStart = text.lastIndexOf('\n', at - 1) + 1;
  const lineEnd = text.indexOf('\n', at) + 1;
  switch (chance.int(8)) {
    case 0:
      return before + text.slice(at + chance.between(1, 2));
    case 1:
      return before + chance.pick(HAZARDS) + text.slice(at);
    case 2:
      return before + chance.pick(HAZARDS) + text.slice(at + 1);
    case 3:
      return before + String.fromCharCode(chance.int(256)) + text.slice(at + chance.int(2));
    case 4:
      return lineEnd === 0 ? text : text.slice(0, lineEnd) + text.slice(lineStart, lineEnd) + text.slice(lineEnd);
    case 5:
      return `${before}\r\n${chance.pick(['', ' ', '\t'])}${text.slice(at)}`;
    case 6:
      return text.slice(0, lineStart) + text.slice(lineEnd === 0 ? text.length : lineEnd);
    default:
      return text.replaceAll('\r\n', chance.pick(['\n', '\r\n\r\n', '\r\r\n', '\r']));
  }
}

function finish(chance: Chance, startLine: string, lines: string[]): string {
  let text = `${[startLine, ...lines].join('\r\n')}\r\n\r\n`;
  if (chance.oneIn(2)) for (let left = chance.between(1, 3); left > 0; left--) text = damage(chance, text);
  if (chance.oneIn(50)) text = text.slice(0, chance.int(text.length));
  return text;
}

export function randomRequestHead(chance: Chance): string {
  const method = chance.pick(chance.oneIn(25) ? ODD_METHODS : METHODS);
  let target = chance.pick(chance.oneIn(8) ? ABSOLUTES : chance.oneIn(20) ? ODD_TARGETS : TARGETS);
  if (method === 'OPTIONS' && chance.oneIn(3)) target = '*';
  if (chance.oneIn(400)) target = `/${'t'.repeat(chance.pick([16_300, 16_400, 17_000]))}`;
  const version = chance.oneIn(25) ? chance.pick(ODD_VERSIONS) : chance.oneIn(8) ? 'HTTP/1.0' : 'HTTP/1.1';
  const host = chance.oneIn(30)
    ? []
    : [`${caseOf(chance, 'Host')}: ${chance.pick(['h', 'h:80', '[::1]:1', '', 'a.b'])}`];
  if (chance.oneIn(60)) host.push('host: second');
  return finish(chance, `${method} ${target} ${version}`, fields(chance, host));
}

export function randomResponseHead(chance: Chance): string {
  const version = chance.oneIn(25) ? chance.pick(ODD_VERSIONS) : chance.oneIn(6) ? 'HTTP/1.0' : 'HTTP/1.1';
  const status = chance.oneIn(20)
    ? chance.pick(['099', '1000', '20', 'abc', ' 200', '2 0', '-20', ''])
    : chance.pick(['200', '200', '404', '500', '204', '304', '100', '103', '105', '299', '999']);
  const reason = chance.pick([
    ' OK',
    ' OK',
    ' Not Found',
    ' ',
    '',
    ' \xe9t\xe9',
    ' \t',
    '  two ',
    '\tOK',
    ' \0',
    ' \x7f',
  ]);
  const long = chance.oneIn(400) ? ' '.repeat(chance.pick([60_000, 65_500, 66_000])) : '';
  return finish(chance, `${version} ${status}${reason}${long}`, fields(chance, ['content-type: text/event-stream']));
}
