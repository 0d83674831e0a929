import { setTimeout as delay } from 'node:timers/promises';
import type { Context, Hono } from 'hono';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import type { Exchange } from '../exchange.ts';
import { percentDecoded } from '../kit/percent-decoded.ts';
import { type Env, type TinkerContext, read, refuse, request, samplingSession, session, tenantOf } from './app.ts';
import { isOwnFuture } from './futures.ts';
import type { Refusal } from './sample-requests.ts';
import type { SamplingSession } from './sessions.ts';
import type { Trainer, TrainerReply } from './trainer.ts';

/** After a 5xx the SDK polls again at once, without end. */
const PAUSE_AFTER_FAILURE_MS = 1_000;

/** What only the hosted service has. */
const NOT_SERVED = /\/api\/v1\/(auth|billing|audit)(\/|$)/;

/** Flags of the client about what the router serves: its own are in force, not the trainer's. */
const OWN_FLAG = /^(sample_|pjwt_|credential_)/;

interface TrainerParts extends Pick<TinkerContext, 'sessions' | 'samples' | 'models' | 'flush'> {
  readonly trainer: Trainer;
}

/** The endpoints in which the router and the trainer both have a part. */
export class TrainerRoutes {
  readonly #parts: TrainerParts;

  constructor(parts: TrainerParts) {
    this.#parts = parts;
  }

  /** What is not about sampling. */
  readonly orElse = async (x: Exchange): Promise<Response> => {
    const { trainer, sessions } = this.#parts;
    // The trainer decodes it.
    const [, kind, encoded = ''] = NAMING.exec(x.path) ?? [];
    const id = percentDecoded(encoded);
    const isOthers = sessions.isOthers(id, x.tenant);
    if (!isOthers && !NOT_SERVED.test(x.path)) return trainer.forward(x);
    const unknown = kind === 'sessions' ? noSession(id) : noSampling(id).detail;
    const detail = isOthers ? unknown : `${x.path}: this server does not serve this part of the Tinker API.`;
    return Response.json({ detail }, { status: 404 });
  };

  /** To be called before the endpoints of the router alone are added: those of both come first. */
  addTo(routes: Hono): void {
    const { trainer, sessions, models, flush } = this.#parts;
    const app = routes.basePath('/api/v1') as unknown as Hono<Env>;

    // The trainer names the session: its models are created in it.
    app.post('/create_session', async (c) => {
      const reply = await this.#pass(c, '/create_session');
      const { session_id: id } = reply.value;
      if (reply.status !== 200 || typeof id !== 'string') return answer(c, reply);
      if (!sessions.claim(id, tenantOf(c)))
        return refuse(c, 403, `The trainer returned the session ${id}, which belongs to another API key.`);
      await flush();
      return answer(c, reply);
    });
    app.post('/session_heartbeat', async (c) => {
      const given = read(c, session);
      if (given instanceof Response) return given;
      const { session_id: id } = given;
      if (sessions.isOthers(id, tenantOf(c))) return refuse(c, 404, noSession(id));
      const reply = await this.#pass(c, '/session_heartbeat');
      sessions.touch(id, tenantOf(c));
      // A router that was restarted without --data-dir learns sessions again.
      if (reply.status === 200 && !sessions.claim(id, tenantOf(c))) return refuse(c, 404, noSession(id));
      return answer(c, reply);
    });
    app.post('/create_model', async (c) => {
      const given = read(c, session.partial());
      if (given instanceof Response) return given;
      const { session_id: id = '' } = given;
      return sessions.isOthers(id, tenantOf(c)) ? refuse(c, 404, noSession(id)) : trainer.forward(c.env.exchange);
    });
    app.post('/join_sampling_session', async (c) => {
      const given = read(c, samplingSession);
      if (given instanceof Response) return given;
      const { sampling_session_id: id } = given;
      return sessions.isOthers(id, tenantOf(c))
        ? refuse(c, 404, noSampling(id).detail)
        : trainer.forward(c.env.exchange);
    });
    // Trainers that do not know the call lose nothing by it: the answer is the router's.
    app.post('/sessions/:id/finish', async (c, next) => {
      const id = c.req.param('id');
      if (!sessions.isOthers(id, tenantOf(c))) await this.#pass(c, `/sessions/${encodeURIComponent(id)}/finish`);
      return next();
    });

    app.get('/get_server_capabilities', async (c) => {
      const { status, value } = await trainer.ask(c.env.exchange, 'GET', '/get_server_capabilities');
      const named = status === 200 ? value['supported_models'] : [];
      const theirs = (Array.isArray(named) ? named : []) as { model_name: string }[];
      const own = new Map(models().map((model) => [model.model_name, model]));
      const merged = theirs.map((model) => ({ ...model, sampleable: own.has(model.model_name) }));
      for (const { model_name } of theirs) own.delete(model_name);
      const others = Array.from(own.values(), (model) => ({ ...model, trainable: false, sampleable: true }));
      return c.json({ supported_models: [...merged, ...others] });
    });
    app.post('/client/config', async (c) => {
      const { status, value } = await this.#pass(c, '/client/config');
      const flags = status === 200 ? Object.entries(value).filter(([name]) => !OWN_FLAG.test(name)) : [];
      return c.json(Object.fromEntries(flags));
    });

    app.get('/samplers/:id', async (c, next) => {
      const id = c.req.param('id');
      if (sessions.sampling(id, tenantOf(c)) !== null) return next();
      const found = await this.learn(id, c.env.exchange);
      return 'status' in found ? refuse(c, found.status, found.detail) : next();
    });
    app.post('/retrieve_future', async (c, next) => {
      const given = read(c, request);
      if (given instanceof Response) return given;
      if (isOwnFuture(given.request_id)) return next();
      const response = await trainer.forward(c.env.exchange);
      if (response.status >= 500) await delay(PAUSE_AFTER_FAILURE_MS);
      return response;
    });
    app.post('/cancel_future', async (c, next) => {
      const given = read(c, request);
      return given instanceof Response || isOwnFuture(given.request_id) ? next() : trainer.forward(c.env.exchange);
    });
  }

  /** A sampling session that the trainer created, for weights that it saved. */
  async learn(id: string, x: Exchange): Promise<SamplingSession | Refusal> {
    const { trainer, sessions, samples, flush } = this.#parts;
    if (sessions.isOthers(id, x.tenant)) return noSampling(id);
    const { status, value } = await trainer.ask(x, 'GET', `/samplers/${encodeURIComponent(id)}`);
    const { base_model: baseModel, model_path: path } = value;
    if (status !== 200 || typeof baseModel !== 'string') {
      return {
        status: 404,
        detail: `There is no sampling session ${id}, and the trainer knows none (status ${status}).`,
      };
    }
    const modelPath = typeof path === 'string' ? path : '';
    const source = await (modelPath === ''
      ? samples.sourceOf(baseModel, '')
      : samples.sourceOf('', modelPath, baseModel));
    if ('status' in source) return source;
    // It expires when it is not used, and is learned again when it is.
    const own = `of_${id}`;
    if (sessions.isOthers(id, x.tenant) || !sessions.claim(own, x.tenant)) return noSampling(id);
    const found = sessions.openSampling(own, x.tenant, source, id);
    await flush();
    return found;
  }

  #pass(c: Context<Env>, path: string): Promise<TrainerReply> {
    const { exchange: x } = c.env;
    return this.#parts.trainer.ask(x, x.head.method, path, x.body.pieces);
  }
}

const noSession = (id: string): string => `There is no session ${id}.`;

/** Paths that name a session or a sampling session. */
const NAMING = /^\/api\/v1\/(sessions|samplers)\/([^/]+)/;

const noSampling = (id: string): Refusal => ({ status: 404, detail: `There is no sampling session ${id}.` });

const answer = (c: Context<Env>, { status, text }: TrainerReply): Response =>
  c.body(text, status as ContentfulStatusCode, { 'content-type': 'application/json' });
