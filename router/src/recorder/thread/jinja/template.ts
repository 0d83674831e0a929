import { Scope } from './scope.ts';
import { type Statement, parseBody } from './statements.ts';
import { TokenStream } from './stream.ts';
import { strftime } from './strftime.ts';
import { tokensOf } from './tokens.ts';
import { type Callable, type Named, Namespace, TemplateError, type Value, intOf, isDict, str } from './values.ts';

/**
 * A chat template: Jinja (Jinja2 3.1) as transformers renders it (5.19, `render_jinja_template`), with Python's values and texts, so that the
 * text is the one that an engine makes. Not supported, and refused when the template is read: recursive loops, other templates
 * (`include`, `import`, `extends`, `block`), and filters and tests that chat templates have no use for.
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
  dict: ([from], named) => new Map([...(from !== undefined && isDict(from) ? from : []), ...named]),
  namespace: ([from], named) =>
    new Namespace([
      ...(from !== undefined && isDict(from) ? Array.from(from, ([key, value]) => [str(key), value] as const) : []),
      ...named,
    ]),
  raise_exception: ([message = '']) => {
    throw new TemplateError(str(message));
  },
  strftime_now: ([format = '']) => strftime(new Date(), str(format)),
};

function rangeOf(bounds: readonly number[]): Value[] {
  const [start, stop] = bounds.length === 1 ? [0, bounds[0]!] : [bounds[0] ?? 0, bounds[1] ?? 0];
  const step = bounds[2] ?? 1;
  if (step === 0) throw new TemplateError('range() arg 3 must not be zero');
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (length > MAX_RANGE) throw new TemplateError(`Range too big. The sandbox blocks ranges larger than ${MAX_RANGE}.`);
  return Array.from({ length }, (_, i) => BigInt(start + i * step));
}

const GLOBALS = new Scope(null);
for (const [name, value] of Object.entries(FUNCTIONS)) GLOBALS.set(name, value);
