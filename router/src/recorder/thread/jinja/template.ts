import { bind } from './arguments.ts';
import { Scope } from './scope.ts';
import { type Statement, parseBody } from './statements.ts';
import { TokenStream } from './stream.ts';
import { strftime } from './strftime.ts';
import { tokensOf } from './tokens.ts';
import {
  type Callable,
  type Named,
  Namespace,
  TemplateError,
  type Value,
  hashable,
  intOf,
  isDict,
  itemsOf,
  str,
} from './values.ts';

/**
 * A chat template: Jinja (Jinja2 3.1) as transformers renders it (5.19, `render_jinja_template`), with Python's values and texts, so that the
 * text is the one that an engine makes. Refused when a template is read: recursive loops, other templates (`include`, `import`, `extends`,
 * `block`), and filters and tests that chat templates have no use for. Refused when it is rendered: methods that they have no use for, such as
 * `str.format`. Other than in Jinja2, what `+` adds to the text of `safe` and `escape` is not escaped.
 */
export class Template {
  readonly #body: Statement;

  /** Throws `TemplateError` with the line. */
  constructor(source: string) {
    const stream = new TokenStream(tokensOf(source));
    this.#body = parseBody(stream);
    if (!stream.isOver) stream.fail('unexpected end of a block that was not begun');
  }

  /** Throws `TemplateError`: also with what the template itself refuses. */
  render(names: Named): string {
    const scope = new Scope(GLOBALS);
    for (const [name, value] of names) scope.set(name, value);
    const out: string[] = [];
    this.#body(scope, out);
    return out.join('');
  }
}

/** As in the sandbox that transformers renders in (`MAX_RANGE`). */
const MAX_RANGE = 100_000;

const FUNCTIONS: Readonly<Record<string, Callable>> = {
  range: (args) => rangeOf(args.map((each) => intOf(each, 'range()'))),
  dict: (args, named) => new Map([...pairsOf('dict', args), ...named]),
  namespace: (args, named) =>
    new Namespace([...pairsOf('namespace', args).map(([key, value]) => [str(key), value] as const), ...named]),
  raise_exception: (args, named) => {
    throw new TemplateError(str(bind('raise_exception()', { message: undefined }, args, named).message));
  },
  strftime_now: (args, named) =>
    strftime(new Date(), str(bind('strftime_now()', { format: undefined }, args, named).format)),
};

/** The members that `dict` and `namespace` are made of: a dict, or a list of pairs. */
function pairsOf(name: string, args: readonly Value[]): (readonly [Value, Value])[] {
  const [from = []] = args;
  if (args.length > 1) throw new TemplateError(`${name} expected at most 1 argument, got ${args.length}`);
  if (isDict(from)) return Array.from(from);
  return itemsOf(from).map((pair) => {
    const [key, value, ...more] = itemsOf(pair);
    if (key === undefined || value === undefined || more.length > 0)
      throw new TemplateError(`${name} needs pairs of a name and a value`);
    return [hashable(key), value] as const;
  });
}

function rangeOf(bounds: readonly number[]): Value[] {
  if (bounds.length === 0 || bounds.length > 3)
    throw new TemplateError(`range expected 1 to 3 arguments, got ${bounds.length}`);
  const [start, stop, step = 1] = bounds.length === 1 ? [0, bounds[0]!] : (bounds as [number, number, number?]);
  if (step === 0) throw new TemplateError('range() arg 3 must not be zero');
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (length > MAX_RANGE) throw new TemplateError(`Range too big. The sandbox blocks ranges larger than ${MAX_RANGE}.`);
  return Array.from({ length }, (_, i) => BigInt(start + i * step));
}

const GLOBALS = new Scope(null);
for (const [name, value] of Object.entries(FUNCTIONS)) GLOBALS.set(name, value);
