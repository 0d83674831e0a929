import { version } from '../config/version.ts';

/** Who may call an endpoint where keys are set: everyone, holders of any key, or holders of an admin key. */
type Caller = 'everyone' | 'clients' | 'admins';

export interface Endpoint {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** With parameters as `{name}`. */
  readonly path: string;
  readonly caller: Caller;
  readonly summary: string;
  /** What switches it on; left out: nothing has to. */
  readonly needs?: string;
}

const captures = '--plugin radix-tree, --plugin chat-sessions or --capture-chat';
const radixTree = '--plugin radix-tree';
const feed = '--plugin feed';
const chatSessions = '--plugin chat-sessions';
const swaps = '--swap-snapshots or deployments';

/** The endpoints that the router answers itself. Every other path goes to an engine. A test holds this list against the routes. */
export const endpoints: readonly Endpoint[] = [
  ...listed(
    { caller: 'everyone' },
    {
      'GET /health': 'Whether the router is up.',
      'GET /liveness': 'Whether the router is up, for probes.',
      'GET /readiness':
        '200 while a worker passes its health checks (of pairs one of each role), the router does not drain, and the recorder thread works if requests fail without it. Workers count that get no requests for another reason (drained, breaker open, weights not known): turnout_workers{eligible="true"} does not count them.',
      'GET /dashboard': 'The dashboard. What it shows needs an admin key.',
      'GET /dashboard/assets/{file}': 'Scripts and styles of the dashboard.',
    },
  ),
  ...listed(
    { caller: 'clients' },
    {
      'GET /metrics': 'Prometheus metrics.',
      'GET /engine_metrics': 'Prometheus metrics of all engines, with the label worker_addr.',
      'GET /openapi.json': 'This list as OpenAPI 3.1.',
      'POST /finish_session': 'Ends a session, with its outcome.',
      'POST /sessions/{id}/finish': 'Ends a session, with its outcome (reward, labels).',
      'DELETE /sessions/{id}': 'Ends a session; a chat session is deleted.',
    },
  ),
  ...listed(
    { caller: 'admins' },
    {
      'GET /get_loads': 'Requests at each worker, as the engines report them.',
      'GET /requests': 'Requests in flight: session, worker, phase, age; and what requests wait for, with the oldest.',
      'GET /sessions': 'Sessions: worker, turns, moves and their reasons.',
      'GET /tap': 'Requests as they end, as server-sent events (?session=, worker, group, path, status, slow).',
      'GET /explain/{id}':
        'The last requests of a session, or one request by its id: which worker, why, and what else there was to choose.',
      'GET /explain':
        'The last requests of a session, or one request (?id=). For names that no path can hold: . and .., or ../ at the beginning.',
      'GET /list_workers': 'URLs of the workers.',
      'POST /add_worker': 'Adds a worker by its URL.',
      'POST /remove_worker': 'Removes a worker by its URL.',
      'GET /workers': 'Workers with state, load and facts.',
      'POST /workers': 'Adds a worker with role, labels and key.',
      'GET /workers/{id}': 'One worker.',
      'PUT /workers/{id}': 'Changes labels, key or bootstrap port of a worker.',
      'PATCH /workers/{id}': 'The same as PUT.',
      'DELETE /workers/{id}': 'Removes a worker; it finishes the requests in flight (?force=true: it does not).',
      'POST /workers/{id}/breaker': 'Forces the circuit breaker of a worker: open, closed or auto.',
      'POST /workers/{id}/drain': 'Drains a worker, which stays registered: on or off.',
      'POST /workers/{id}/quarantine':
        'Keeps requests from an engine until it has passed its health checks, and the check of its weights, again.',
      'GET /v1/rl/workers': 'Engines with kind, version and capabilities, for clients of smg.',
      'GET /v1/rl/workers/{id}': 'One engine.',
      'GET /v1/rl/workers/{id}/engine/{path}': 'Sends a request to one engine.',
      'POST /v1/rl/workers/{id}/engine/{path}': 'The same, with a body.',
      'GET /v1/rl/engine/{path}': 'Sends a request to the engines of ?selector=, with a result for each.',
      'POST /v1/rl/engine/{path}': 'The same, with a body.',
      'GET /policies': 'The policy of each model and its state.',
      'PUT /policies': 'Sets the policy, for one model or all.',
      'DELETE /policies': 'Removes the policy of a model.',
      'POST /fleet/wait_idle': 'Answers when no request is in flight at any worker, removed ones included.',
      'GET /dashboard/feed':
        'What the dashboard shows, as server-sent events: everything, then every second what changed.',
    },
  ),
  ...listed(
    { caller: 'clients', needs: captures },
    {
      'GET /trajectories': 'Captured trajectories as a list or an export (?format=).',
      'GET /trajectories/{session}': 'The turns of a session; /metrics after it: its figures.',
      'GET /trajectory':
        'The turns of a session with any name (?session=), also one that no path can hold: . and .., or ../ at the beginning.',
      'DELETE /trajectories/{session}': 'Deletes the turns of a session.',
      'DELETE /trajectory': 'Deletes the turns of a session with any name (?session=).',
    },
  ),
  ...listed(
    { caller: 'clients', needs: feed },
    {
      'GET /feed':
        'The next groups of trajectories for a trainer, as NDJSON or as an Arrow stream (?format=); waits for them.',
      'POST /feed/ack': 'Acknowledges groups: they are not delivered again.',
      'POST /feed/nack': 'Gives groups back: they are delivered again at once.',
      'POST /feed/renew': 'Extends the leases of groups.',
      'GET /feed/stats': 'Counts of the feed, and how many groups the training step still wants.',
      'GET /groups': 'Groups on their way to the trainer: who is missing, and why.',
      'GET /groups/{group}': 'The groups of a name: who is missing, and why.',
      'POST /groups': 'Begins a group with named sessions, whose requests then need no group header.',
      'POST /groups/{group}/close': 'Ends the wait for the members of a group.',
      'POST /trajectories/{session}/reward': 'Gives a session rewards: one, several by name, by turn or by token.',
    },
  ),
  ...listed(
    { caller: 'clients', needs: radixTree },
    {
      'POST /retrieve_from_text': 'Token ids, loss mask and logprobs of a text.',
      'GET /radix_tree/stats': 'Counts of the token trees.',
    },
  ),
  ...listed(
    { caller: 'clients', needs: chatSessions },
    {
      'POST /sessions': 'Creates a chat session.',
      'GET /sessions/{id}': 'The calls of a chat session.',
      'POST /sessions/{id}/samples': 'Training samples of a chat session (safetensors).',
    },
  ),
  ...listed(
    { caller: 'admins', needs: swaps },
    {
      'GET /swap': 'What each worker holds, and the last ten swaps.',
      'POST /swap': 'Replaces the weights of the engines.',
      'POST /swap/begin': 'Pauses the engines for a trainer that sends the weights itself.',
      'POST /swap/end': 'Resumes the engines with the weights that the trainer has sent.',
      'DELETE /swap': 'Undoes the running swap, and drops the queued one.',
      'POST /hot_load/v1/models/hot_load': 'Hot load: signals a snapshot.',
      'GET /hot_load/v1/models/hot_load': 'Hot load: the state of each engine, least ready first.',
      'POST /hot_load/v1/models/hot_load/hint': 'Hot load: accepted, without effect.',
      'GET /v1/accounts': 'Hot load: the account of the deployments.',
      'GET /v1/accounts/{account}': 'Hot load: an account.',
      'GET /v1/accounts/{account}/deployments': 'Hot load: the deployments.',
      'POST /v1/accounts/{account}/deployments': 'Hot load: refused; deployments are configured.',
      'GET /v1/accounts/{account}/deployments/{deployment}': 'Hot load: a deployment.',
      'PATCH /v1/accounts/{account}/deployments/{deployment}': 'Hot load: changes its transition and trainer.',
      'DELETE /v1/accounts/{account}/deployments/{deployment}': 'Hot load: refused; deployments are configured.',
      'GET /v1/accounts/{account}/deployments/{deployment}/ledger':
        'Hot load: the snapshots that were signalled, the latest first, with the result at each engine.',
      'DELETE /v1/accounts/{account}/deployments/{deployment}/ledger': 'Hot load: forgets the snapshots.',
    },
  ),
  ...listed(
    { caller: 'clients', needs: '--tinker' },
    {
      'GET /api/v1/healthz': 'Tinker: whether the server is up.',
      'POST /api/v1/client/config': 'Tinker: settings for the SDK.',
      'POST /api/v1/client/dynamic_config': 'Tinker: settings that the SDK reads again.',
      'GET /api/v1/get_server_capabilities': 'Tinker: the models that engines serve.',
      'POST /api/v1/create_session': 'Tinker: opens a session.',
      'POST /api/v1/session_heartbeat': 'Tinker: keeps a session open.',
      'POST /api/v1/sessions/{id}/finish': 'Tinker: ends a session and its sampling sessions.',
      'POST /api/v1/create_sampling_session':
        'Tinker: opens a sampling session of a base model or of the weights of a tinker:// path.',
      'GET /api/v1/samplers/{id}': 'Tinker: the model of a sampling session.',
      'POST /api/v1/asample': 'Tinker: samples a prompt: answers with the id of the result.',
      'POST /api/v1/retrieve_future': 'Tinker: the result of a sample, as JSON or protobuf, or 408 after 30 s.',
      'POST /api/v1/retrieve_futures': 'Tinker: which samples of a sampling session have results.',
      'POST /api/v1/cancel_future': 'Tinker: cancels a sample.',
      'POST /api/v1/telemetry': 'Tinker: takes what the SDK reports, and drops it.',
    },
  ),
  ...listed(
    { caller: 'clients', needs: '--tinker-trainer' },
    {
      'POST /api/v1/create_model': 'Tinker: forwarded to the trainer, unless its session belongs to another key.',
      'POST /api/v1/join_sampling_session':
        'Tinker: forwarded to the trainer, unless the sampling session belongs to another key.',
    },
  ),
];

const optional = endpoints.flatMap(({ method, path, needs }) =>
  needs === undefined ? [] : [{ method, isPath: new RegExp(`^${path.replaceAll(/\{\w+\}/g, '.+')}$`), needs }],
);

/** What would make the router answer this request itself; null: nothing would. */
export const neededFor = (asked: string, path: string): string | null =>
  optional.find(({ method, isPath }) => method === asked && isPath.test(path))?.needs ?? null;

/** @param summaries by method and path */
function listed(
  who: Pick<Endpoint, 'caller' | 'needs'>,
  summaries: Readonly<Record<`${Endpoint['method']} /${string}`, string>>,
): Endpoint[] {
  return Object.entries(summaries).map(([called, summary]) => {
    const [method, path] = called.split(' ') as [Endpoint['method'], string];
    return { method, path, summary, ...who };
  });
}

/** The list as an OpenAPI 3.1 document. */
export function openApi(): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const { method, path, caller, summary, needs } of endpoints) {
    const parameters = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
      name,
      in: 'path',
      required: true,
      schema: { type: 'string' },
    }));
    const security = caller === 'everyone' ? [] : [{ [caller === 'admins' ? 'adminKey' : 'apiKey']: [] }];
    const operation = {
      summary: needs === undefined ? summary : `${summary} Needs ${needs}.`,
      ...(parameters.length === 0 ? {} : { parameters }),
      security,
      responses: { default: { description: 'See the guides.' } },
    };
    paths[path] = { ...paths[path], [method.toLowerCase()]: operation };
  }
  const bearer = { type: 'http', scheme: 'bearer' };
  return {
    openapi: '3.1.0',
    info: {
      title: 'turnout',
      version,
      description: 'Endpoints of the router itself. Every other path goes to an engine.',
    },
    components: { securitySchemes: { apiKey: bearer, adminKey: bearer } },
    paths,
  };
}
