import { type Context, Hono, type Next } from 'hono';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import { isGeneration } from '../engines/generation.ts';
import { type Plugin, Refused } from '../plugin.ts';
import { messageOf } from '../config/user-module.ts';
import { pluginFailed } from '../phases/plugin-failed.ts';
import { type GuardOptions, type OnPluginFault, inTime } from '../phases/guard.ts';

type Handler = (c: Context, next: Next) => unknown;

interface Endpoint {
  readonly plugin: string;
  readonly isForClients: boolean;
  readonly method: string;
  readonly path: string;
  readonly handler: Handler;
  /** undefined: --plugin-timeout-ms. */
  readonly timeoutMs: number | undefined;
  readonly maxBodyBytes: number;
}

/** Requests to plugins may have whole trajectories. */
const MAX_BODY_BYTES = 16_777_216;

/** `/name` or `/name/:id/more`. A parameter that may have slashes is `:id{.+}`. */
const PATH = /^\/[\w.~-]+(\/(:[\w.~-]+\{\.\+\}|:?[\w.~-]+))*$/;

/** The methods with which a path is an endpoint, for `allow`. */
export const methodsFor = ({ routes, router }: Hono, path: string): string =>
  [...new Set(routes.map(({ method }) => method))]
    .filter((method) =>
      router.match(method, path)[0].some(([[, route]]) => route.method === method && method !== 'ALL'),
    )
    .join(', ');

/** The endpoints of plugins. Their failures are contained. */
export class PluginEndpoints {
  /** null: the path is not a plugin's. */
  readonly maxBytes: (path: string) => number | null;
  readonly #isForClients: (path: string) => boolean;
  readonly #isForAdmins: (path: string) => boolean;
  readonly #endpoints: readonly Endpoint[];
  readonly #options: GuardOptions;
  readonly #onFault: OnPluginFault;
  #faults = 0;

  /** Throws if a plugin asks for a path that it may not have. */
  constructor(plugins: readonly Plugin[], options: GuardOptions, onFault: OnPluginFault) {
    this.#options = options;
    this.#onFault = onFault;
    this.#endpoints = plugins.flatMap(endpointsOf);
    const pathsOf = (isForClients: boolean): string[] =>
      this.#endpoints.filter((endpoint) => endpoint.isForClients === isForClients).map(({ path }) => path);
    this.#isForClients = pathTest(pathsOf(true));
    this.#isForAdmins = pathTest(pathsOf(false));
    const tests = this.#endpoints.map(({ path, maxBodyBytes }) => ({ isPath: pathTest([path]), maxBodyBytes }));
    this.maxBytes = (path) => tests.find(({ isPath }) => isPath(path))?.maxBodyBytes ?? null;
  }

  /** false if several routes match and differ. */
  areForClients(path: string): boolean {
    return this.#isForClients(path) && !this.#isForAdmins(path);
  }

  /** Throws if the router has an endpoint of the same path. */
  addTo(app: Hono): void {
    const own = [...app.routes];
    for (const { plugin, method, path } of this.#endpoints) {
      const isTaken = own.some((route) => route.method === method && meet(route.path, path));
      if (isTaken) throw new Error(`The plugin "${plugin}" wants ${method} ${path}, which is the router's own.`);
    }
    for (const endpoint of this.#endpoints) {
      app.on(endpoint.method, endpoint.path, (c, next) => this.#answer(endpoint, c, next));
    }
  }

  async #answer({ plugin, handler, timeoutMs }: Endpoint, c: Context, next: Next): Promise<Response> {
    let hasPassedOn = false;
    const passOn = (): Promise<void> => {
      hasPassedOn = true;
      return next();
    };
    try {
      const answer = await inTime(Promise.resolve(handler(c, passOn)), timeoutMs ?? this.#options.timeoutMs);
      // A handler that calls `next` needs no result.
      if (answer instanceof Response || hasPassedOn) return answer as Response;
      throw new TypeError(`${c.req.method} ${c.req.path} has to answer with a Response`);
    } catch (error) {
      const isRefusal = error instanceof Refused;
      if (!isRefusal) this.#onFault(plugin, 'routes', error, ++this.#faults);
      const { message, code, status, retryAfterSecs } = isRefusal ? error.refusal : pluginFailed(plugin, error);
      const after = retryAfterSecs > 0 ? { 'retry-after': String(retryAfterSecs) } : {};
      const fields = { 'x-turnout-error': code, ...after };
      return c.json({ error: message, code }, status as ContentfulStatusCode, fields);
    }
  }
}

/** Whether one of the routes takes a path in its normal form. A route with a parameter takes every path with its prefix. */
export function pathTest(routes: readonly string[]): (path: string) => boolean {
  const exact = new Set(routes.filter((path) => !path.includes(':')));
  const prefixes = routes.filter((path) => path.includes(':')).map((path) => path.slice(0, path.indexOf(':')));
  return (path) => exact.has(path) || prefixes.some((prefix) => path.startsWith(prefix));
}

/** '' if the path ends with a parameter. */
const tailOf = (path: string): string => /:[\w.~-]+(?:\{\.\+\})?([^:]*)$/.exec(path)?.[1] ?? '';

/** Whether a request may match both routes, by their beginnings and ends. */
function meet(own: string, path: string): boolean {
  if (!pathTest([own])(path)) return false;
  const [ownTail, tail] = [tailOf(own), tailOf(path)];
  return ownTail === '' || path.endsWith(ownTail) || (path.includes(':') && tail === '');
}

function endpointsOf({ name: plugin, routes, timeoutMs, maxBodyBytes = MAX_BODY_BYTES }: Plugin): Endpoint[] {
  if (routes === undefined) return [];
  const apps = { forClients: new Hono(), forAdmins: new Hono() };
  try {
    routes(apps);
  } catch (error) {
    throw new Error(`The plugin "${plugin}" can't add its endpoints: ${messageOf(error)}`, { cause: error });
  }
  return Object.values(apps).flatMap((app) =>
    app.routes.map(({ method, path, handler }) => {
      if (!PATH.test(path)) {
        throw new Error(`The plugin "${plugin}" wants ${method} ${path}; paths are like /name or /name/:id.`);
      }
      if (isGeneration(method === 'ALL' ? 'POST' : method, path)) {
        throw new Error(
          `The plugin "${plugin}" wants ${method} ${path}, which is a generation path of engines: respond to it in the phase "answer".`,
        );
      }
      return {
        plugin,
        isForClients: app === apps.forClients,
        method,
        path,
        handler: handler as Handler,
        timeoutMs,
        maxBodyBytes,
      };
    }),
  );
}
