import { type Context, Hono, type Next } from 'hono';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import { isGeneration } from '../engines/generation.ts';
import type { Plugin } from '../plugin.ts';
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
  /** undefined: as long as any phase. */
  readonly timeoutMs: number | undefined;
  readonly maxBodyBytes: number;
}

/** Plugins are asked about whole trajectories. */
const MAX_BODY_BYTES = 16_777_216;

/**
 * `/name`, `/name/:id/more`: nothing that would take the paths of engines, or a folder of the router's own. A parameter that may hold
 * slashes is `:id{.+}`.
 */
const PATH = /^\/[\w.~-]+(\/(:[\w.~-]+\{\.\+\}|:?[\w.~-]+))*$/;

/** The endpoints of plugins, with their access, behind the guards of plugins. */
export class PluginEndpoints {
  /** How large the body of a request to the path may be; null: no plugin answers it. */
  readonly maxBytes: (path: string) => number | null;
  readonly #isForClients: (path: string) => boolean;
  readonly #isForAdmins: (path: string) => boolean;
  readonly #endpoints: readonly Endpoint[];
  readonly #options: GuardOptions;
  readonly #onFault: OnPluginFault;
  #faults = 0;

  /** Throws, in words for the user, when a plugin wants a path that can't be one's own. */
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

  /** Whether clients may call it. If several routes match and differ: not. */
  areForClients(path: string): boolean {
    return this.#isForClients(path) && !this.#isForAdmins(path);
  }

  /** Throws, in words for the user, when one of them is there already. */
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
      // Who lets the next one answer has nothing to say.
      if (answer instanceof Response || hasPassedOn) return answer as Response;
      throw new TypeError(`${c.req.method} ${c.req.path} has to answer with a Response`);
    } catch (error) {
      this.#onFault(plugin, 'routes', error, ++this.#faults);
      const { message, code, status, retryAfterSecs } = pluginFailed(plugin, error);
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

/** The part of a path after its last parameter; '': it ends with one. */
const tailOf = (path: string): string => /:[\w.~-]+(?:\{\.\+\})?([^:]*)$/.exec(path)?.[1] ?? '';

/** Whether there are requests that both routes would answer, as far as their beginnings and ends tell. */
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
