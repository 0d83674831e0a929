import {
  type Expression,
  parseArguments,
  parseExpression,
  parseFilter,
  parseFilters,
  parseTuple,
} from './expressions.ts';
import { Loop } from './loop.ts';
import { Scope } from './scope.ts';
import type { TokenStream } from './stream.ts';
import {
  type Callable,
  Namespace,
  TemplateError,
  Tuple,
  Undefined,
  type Value,
  isTrue,
  itemsOf,
  lazily,
  orElse,
  str,
  typeName,
} from './values.ts';

/** A part of a template that is ready to be rendered: what it prints is added to `out`. */
export type Statement = (scope: Scope, out: string[]) => Jump | void;

/** How a loop is left before the end of its body. */
type Jump = 'break' | 'continue';

type Assign = (scope: Scope, value: Value) => void;

/** Parts up to a block that begins with one of these names, or to the end of the template. */
export function parseBody(stream: TokenStream, ...ends: readonly string[]): Statement {
  const parts: Statement[] = [];
  while (!stream.isOver) {
    if (stream.is('data')) {
      const { text } = stream.next();
      parts.push((_, out) => void out.push(text));
    } else if (stream.skip('print')) {
      const value = parseTuple(stream);
      stream.expect('end');
      parts.push((scope, out) => void out.push(str(value(scope))));
    } else {
      if (stream.is('open') && ends.includes(stream.peek(1).text)) break;
      stream.expect('open');
      parts.push(parseStatement(stream));
    }
  }
  if (stream.isOver && ends.length > 0) stream.fail(`expected {% ${ends.at(-1)!} %}, got end of template`);
  return (scope, out) => {
    for (const part of parts) {
      const jump = part(scope, out);
      if (jump !== undefined) return jump;
    }
    return undefined;
  };
}

const STATEMENTS: Readonly<Record<string, (stream: TokenStream) => Statement>> = {
  if: parseIf,
  for: parseFor,
  set: parseSet,
  macro: parseMacro,
  call: parseCallBlock,
  filter: parseFilterBlock,
  with: parseWith,
  generation: parseGeneration,
  break: (stream) => parseJump(stream, 'break'),
  continue: (stream) => parseJump(stream, 'continue'),
};

function parseStatement(stream: TokenStream): Statement {
  const name = stream.expect('name');
  if (!Object.hasOwn(STATEMENTS, name)) stream.fail(`unknown tag '${name}'`);
  return STATEMENTS[name]!(stream);
}

/** `{% endNAME %}` */
function expectEnd(stream: TokenStream, name: string): void {
  stream.expect('open');
  stream.expect('name', name);
  stream.expect('close');
}

/** What a body prints. */
function printed(body: Statement, scope: Scope): string {
  const out: string[] = [];
  body(scope, out);
  return out.join('');
}

/** The name of what the body of a block printed, for the filters of that block. No template can have it. */
const BODY = '{%';

const bodyOf: Expression = (scope) => scope.get(BODY);

function withBody(body: Statement, around: Scope): Scope {
  const scope = new Scope(around);
  scope.set(BODY, printed(body, new Scope(around)));
  return scope;
}

function parseIf(stream: TokenStream): Statement {
  const test = parseTuple(stream, false);
  stream.expect('close');
  const body = parseBody(stream, 'elif', 'else', 'endif');
  stream.expect('open');
  const name = stream.next().text;
  let other: Statement | null = null;
  if (name === 'elif') other = parseIf(stream);
  else if (name === 'else') {
    stream.expect('close');
    other = parseBody(stream, 'endif');
    expectEnd(stream, 'endif');
  } else stream.expect('close');
  return (scope, out) => (isTrue(test(scope)) ? body(scope, out) : other?.(scope, out));
}

function parseFor(stream: TokenStream): Statement {
  const assign = parseTarget(stream);
  stream.expect('name', 'in');
  const items = parseTuple(stream, false);
  const test = stream.skipName('if') ? parseExpression(stream) : null;
  if (stream.is('name', 'recursive')) stream.fail('recursive loops are not supported');
  stream.expect('close');
  const body = parseBody(stream, 'else', 'endfor');
  stream.expect('open');
  let other: Statement | null = null;
  if (stream.next().text === 'else') {
    stream.expect('close');
    other = parseBody(stream, 'endfor');
    expectEnd(stream, 'endfor');
  } else stream.expect('close');
  const wanted = (around: Scope): Value => {
    if (test === null) return items(around);
    return lazily(items(around), (item) => {
      const scope = new Scope(around);
      assign(scope, item);
      return isTrue(test(scope)) ? item : undefined;
    });
  };
  return (around, out) => {
    const loop = new Loop(wanted(around));
    /** A pass came to the end of the body. */
    let isRun = false;
    for (let item = loop.next(); item !== undefined; item = loop.next()) {
      const scope = new Scope(around);
      scope.set('loop', loop);
      assign(scope, item);
      const jump = body(scope, out);
      if (jump === 'break') break;
      isRun ||= jump === undefined;
    }
    if (!isRun) other?.(new Scope(around), out);
  };
}

/** Names, members of namespaces, or several of them with commas between. */
function parseTarget(stream: TokenStream): Assign {
  const targets: Assign[] = [];
  let isTuple = false;
  for (;;) {
    if (stream.skipOperator('(')) {
      targets.push(parseTarget(stream));
      stream.expect('operator', ')');
    } else targets.push(parseOneTarget(stream));
    if (!stream.skipOperator(',')) break;
    isTuple = true;
    if (!stream.is('name') && !stream.is('operator', '(')) break;
  }
  if (!isTuple) return targets[0]!;
  return (scope, value) => {
    const items = itemsOf(value);
    if (items.length !== targets.length)
      throw new TemplateError(`expected ${targets.length} values to unpack, got ${items.length}`);
    targets.forEach((target, i) => target(scope, items[i]!));
  };
}

function parseOneTarget(stream: TokenStream): Assign {
  const name = stream.expect('name');
  if (!stream.skipOperator('.')) return (scope, value) => scope.set(name, value);
  const member = stream.expect('name');
  return (scope, value) => {
    const space = scope.get(name);
    if (!(space instanceof Namespace)) throw new TemplateError('cannot assign attribute on non-namespace object');
    space.members.set(member, value);
  };
}

function parseSet(stream: TokenStream): Statement {
  const assign = parseTarget(stream);
  if (stream.skipOperator('=')) {
    const value = parseTuple(stream);
    stream.expect('close');
    return (scope) => assign(scope, value(scope));
  }
  const value = stream.skipOperator('|') ? parseFilters(stream, parseFilter(stream, bodyOf)) : bodyOf;
  stream.expect('close');
  const body = parseBody(stream, 'endset');
  expectEnd(stream, 'endset');
  return (scope) => assign(scope, value(withBody(body, scope)));
}

interface Parameter {
  readonly name: string;
  readonly otherwise: Expression | null;
}

function parseParameters(stream: TokenStream): Parameter[] {
  const parameters: Parameter[] = [];
  while (!stream.skipOperator(')')) {
    if (parameters.length > 0) stream.expect('operator', ',');
    const name = stream.expect('name');
    parameters.push({ name, otherwise: stream.skipOperator('=') ? parseExpression(stream) : null });
  }
  return parameters;
}

/** What a macro, or the body of a call, is as a function. */
function callable(parameters: readonly Parameter[], body: Statement, around: Scope): Callable {
  return (args, named) => {
    const scope = new Scope(around);
    const rest = new Map(named);
    for (const [i, { name: own, otherwise }] of parameters.entries()) {
      const given = i < args.length ? args[i] : rest.get(own);
      if (i >= args.length) rest.delete(own);
      const missing = (): Value =>
        otherwise === null ? new Undefined(`parameter '${own}' was not provided`) : otherwise(scope);
      scope.set(own, orElse(given, missing));
    }
    scope.set(
      'caller',
      orElse(rest.get('caller'), () => new Undefined('no caller defined')),
    );
    rest.delete('caller');
    scope.set('varargs', Tuple.of(...args.slice(parameters.length)));
    scope.set('kwargs', rest);
    return printed(body, scope);
  };
}

function parseMacro(stream: TokenStream): Statement {
  const name = stream.expect('name');
  stream.expect('operator', '(');
  const parameters = parseParameters(stream);
  stream.expect('close');
  const body = parseBody(stream, 'endmacro');
  expectEnd(stream, 'endmacro');
  return (scope) => scope.set(name, callable(parameters, body, scope));
}

function parseCallBlock(stream: TokenStream): Statement {
  const parameters = stream.skipOperator('(') ? parseParameters(stream) : [];
  const name = stream.expect('name');
  stream.expect('operator', '(');
  const args = parseArguments(stream);
  stream.expect('close');
  const body = parseBody(stream, 'endcall');
  expectEnd(stream, 'endcall');
  return (scope, out) => {
    const called = scope.get(name);
    if (typeof called !== 'function') throw new TemplateError(`'${typeName(called)}' object is not callable`);
    const [given, named] = args(scope);
    const caller = callable(parameters, body, scope);
    out.push(str(called(given, new Map([...named, ['caller', caller] as const]))));
  };
}

function parseFilterBlock(stream: TokenStream): Statement {
  const value = parseFilters(stream, parseFilter(stream, bodyOf));
  stream.expect('close');
  const body = parseBody(stream, 'endfilter');
  expectEnd(stream, 'endfilter');
  return (scope, out) => void out.push(str(value(withBody(body, scope))));
}

function parseWith(stream: TokenStream): Statement {
  const assigned: (readonly [Assign, Expression])[] = [];
  while (!stream.is('close')) {
    if (assigned.length > 0) stream.expect('operator', ',');
    const assign = parseTarget(stream);
    stream.expect('operator', '=');
    assigned.push([assign, parseExpression(stream)]);
  }
  stream.expect('close');
  const body = parseBody(stream, 'endwith');
  expectEnd(stream, 'endwith');
  return (scope, out) => {
    const own = new Scope(scope);
    for (const [assign, value] of assigned) assign(own, value(scope));
    return body(own, out);
  };
}

/** transformers marks the tokens of answers with these; they print what is in them. */
function parseGeneration(stream: TokenStream): Statement {
  stream.expect('close');
  const body = parseBody(stream, 'endgeneration');
  expectEnd(stream, 'endgeneration');
  return (scope, out) => void out.push(printed(body, new Scope(scope)));
}

function parseJump(stream: TokenStream, jump: Jump): Statement {
  stream.expect('close');
  return () => jump;
}
