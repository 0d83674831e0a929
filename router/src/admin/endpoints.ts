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

const captures = 'a plugin that captures';
const radixTree = '--plugin radix-tree';
const chatSessions = '--plugin chat-sessions';
const swaps = '--swap-snapshots or deployments';

/** The endpoints that the router answers itself. Every other path goes to an engine. A test holds this list against the routes. */
export const endpoints: readonly Endpoint[] = [
  { method: 'GET', path: '/health', caller: 'everyone', summary: 'Whether the router is up.' },
  { method: 'GET', path: '/liveness', caller: 'everyone', summary: 'Whether the router is up, for probes.' },
  {
    method: 'GET',
    path: '/readiness',
    caller: 'everyone',
    summary: '200 while a worker is healthy and the router does not drain.',
  },
  { method: 'GET', path: '/metrics', caller: 'clients', summary: 'Prometheus metrics.' },
  {
    method: 'GET',
    path: '/engine_metrics',
    caller: 'clients',
    summary: 'Prometheus metrics of all engines, with the label worker_addr.',
  },
  { method: 'GET', path: '/openapi.json', caller: 'clients', summary: 'This list as OpenAPI 3.1.' },
  {
    method: 'GET',
    path: '/get_loads',
    caller: 'admins',
    summary: 'Requests at each worker, as the engines report them.',
  },
  { method: 'GET', path: '/requests', caller: 'admins', summary: 'Requests in flight: session, worker, phase, age.' },
  { method: 'GET', path: '/sessions', caller: 'admins', summary: 'Sessions: worker, turns, moves and their reasons.' },
  {
    method: 'GET',
    path: '/tap',
    caller: 'admins',
    summary: 'Requests as they end, as server-sent events (?session=, worker, group, path, status, slow).',
  },
  {
    method: 'GET',
    path: '/explain/{id}',
    caller: 'admins',
    summary:
      'The last requests of a session, or one request by its id: which worker, why, and what else there was to choose.',
  },
  {
    method: 'GET',
    path: '/explain',
    caller: 'admins',
    summary: 'The same for any name (?id=), also one with //, or with . or .. between slashes.',
  },
  { method: 'GET', path: '/list_workers', caller: 'admins', summary: 'URLs of the workers.' },
  { method: 'POST', path: '/add_worker', caller: 'admins', summary: 'Adds a worker by its URL.' },
  { method: 'POST', path: '/remove_worker', caller: 'admins', summary: 'Removes a worker by its URL.' },
  { method: 'GET', path: '/workers', caller: 'admins', summary: 'Workers with state, load and facts.' },
  { method: 'POST', path: '/workers', caller: 'admins', summary: 'Adds a worker with role, labels and key.' },
  { method: 'GET', path: '/workers/{id}', caller: 'admins', summary: 'One worker.' },
  {
    method: 'PUT',
    path: '/workers/{id}',
    caller: 'admins',
    summary: 'Changes labels, key or bootstrap port of a worker.',
  },
  { method: 'PATCH', path: '/workers/{id}', caller: 'admins', summary: 'The same as PUT.' },
  {
    method: 'DELETE',
    path: '/workers/{id}',
    caller: 'admins',
    summary: 'Removes a worker; it finishes the requests in flight (?force=true: it does not).',
  },
  {
    method: 'POST',
    path: '/workers/{id}/breaker',
    caller: 'admins',
    summary: 'Forces the circuit breaker of a worker: open, closed or auto.',
  },
  {
    method: 'POST',
    path: '/workers/{id}/drain',
    caller: 'admins',
    summary: 'Drains a worker, which stays registered: on or off.',
  },
  {
    method: 'POST',
    path: '/workers/{id}/quarantine',
    caller: 'admins',
    summary:
      'Keeps requests from an engine until it has passed its health checks, and the check of its weights, again.',
  },
  { method: 'GET', path: '/policies', caller: 'admins', summary: 'The policy of each model and its state.' },
  { method: 'PUT', path: '/policies', caller: 'admins', summary: 'Sets the policy, for one model or all.' },
  { method: 'DELETE', path: '/policies', caller: 'admins', summary: 'Removes the policy of a model.' },
  {
    method: 'POST',
    path: '/fleet/wait_idle',
    caller: 'admins',
    summary: 'Answers when no request is in flight at any worker.',
  },
  {
    method: 'GET',
    path: '/dashboard',
    caller: 'everyone',
    summary: 'The dashboard. What it shows needs an admin key.',
  },
  {
    method: 'GET',
    path: '/dashboard/assets/{file}',
    caller: 'everyone',
    summary: 'Scripts and styles of the dashboard.',
  },
  {
    method: 'GET',
    path: '/dashboard/feed',
    caller: 'admins',
    summary: 'What the dashboard shows, as server-sent events: everything, then every second what changed.',
  },
  { method: 'POST', path: '/finish_session', caller: 'clients', summary: 'Ends a session, with its outcome.' },
  {
    method: 'POST',
    path: '/sessions/{id}/finish',
    caller: 'clients',
    summary: 'Ends a session, with its outcome (reward, labels).',
  },
  {
    method: 'DELETE',
    path: '/sessions/{id}',
    caller: 'clients',
    summary: 'Ends a session; a chat session is deleted.',
  },
  {
    method: 'GET',
    path: '/trajectories',
    caller: 'clients',
    summary: 'Captured trajectories as a list or an export (?format=).',
    needs: captures,
  },
  {
    method: 'GET',
    path: '/trajectories/{session}',
    caller: 'clients',
    summary: 'The turns of a session; /metrics after it: its figures.',
    needs: captures,
  },
  {
    method: 'GET',
    path: '/trajectory',
    caller: 'clients',
    summary: 'The turns of a session with any name (?session=), also one with //, or with . or .. between slashes.',
    needs: captures,
  },
  {
    method: 'DELETE',
    path: '/trajectories/{session}',
    caller: 'clients',
    summary: 'Deletes the turns of a session.',
    needs: captures,
  },
  {
    method: 'DELETE',
    path: '/trajectory',
    caller: 'clients',
    summary: 'Deletes the turns of a session with any name (?session=).',
    needs: captures,
  },
  {
    method: 'POST',
    path: '/retrieve_from_text',
    caller: 'clients',
    summary: 'Token ids, loss mask and logprobs of a text.',
    needs: radixTree,
  },
  {
    method: 'GET',
    path: '/radix_tree/stats',
    caller: 'clients',
    summary: 'Counts of the token trees.',
    needs: radixTree,
  },
  { method: 'POST', path: '/sessions', caller: 'clients', summary: 'Creates a chat session.', needs: chatSessions },
  {
    method: 'GET',
    path: '/sessions/{id}',
    caller: 'clients',
    summary: 'The calls of a chat session.',
    needs: chatSessions,
  },
  {
    method: 'POST',
    path: '/sessions/{id}/samples',
    caller: 'clients',
    summary: 'Training samples of a chat session (safetensors).',
    needs: chatSessions,
  },
  {
    method: 'GET',
    path: '/swap',
    caller: 'admins',
    summary: 'What each worker holds, and the last ten swaps.',
    needs: swaps,
  },
  { method: 'POST', path: '/swap', caller: 'admins', summary: 'Replaces the weights of the engines.', needs: swaps },
  {
    method: 'POST',
    path: '/swap/begin',
    caller: 'admins',
    summary: 'Pauses the engines for a trainer that sends the weights itself.',
    needs: swaps,
  },
  {
    method: 'POST',
    path: '/swap/end',
    caller: 'admins',
    summary: 'Resumes the engines with the weights that the trainer has sent.',
    needs: swaps,
  },
  {
    method: 'DELETE',
    path: '/swap',
    caller: 'admins',
    summary: 'Undoes the running swap, and drops the queued one.',
    needs: swaps,
  },
  ...(
    [
      ['POST', '/hot_load/v1/models/hot_load', 'Hot load: signals a snapshot.'],
      ['GET', '/hot_load/v1/models/hot_load', 'Hot load: the state of each engine, least ready first.'],
      ['POST', '/hot_load/v1/models/hot_load/hint', 'Hot load: accepted, without effect.'],
      ['GET', '/v1/accounts', 'Hot load: the account of the deployments.'],
      ['GET', '/v1/accounts/{account}', 'Hot load: an account.'],
      ['GET', '/v1/accounts/{account}/deployments', 'Hot load: the deployments.'],
      ['POST', '/v1/accounts/{account}/deployments', 'Hot load: refused; deployments are configured.'],
      ['GET', '/v1/accounts/{account}/deployments/{deployment}', 'Hot load: a deployment.'],
      ['PATCH', '/v1/accounts/{account}/deployments/{deployment}', 'Hot load: changes its transition and trainer.'],
      ['DELETE', '/v1/accounts/{account}/deployments/{deployment}/ledger', 'Hot load: forgets the snapshots.'],
    ] as const
  ).map(([method, path, summary]): Endpoint => ({ method, path, caller: 'admins', summary, needs: swaps })),
  ...(
    [
      ['GET', 'healthz', 'Whether the server is up.'],
      ['POST', 'client/config', 'Settings for the SDK.'],
      ['POST', 'client/dynamic_config', 'Settings that the SDK reads again.'],
      ['GET', 'get_server_capabilities', 'The models that engines serve.'],
      ['POST', 'create_session', 'Opens a session.'],
      ['POST', 'session_heartbeat', 'Keeps a session open.'],
      ['POST', 'sessions/{id}/finish', 'Ends a session and its sampling sessions.'],
      [
        'POST',
        'create_sampling_session',
        'Opens a sampling session of a base model or of the weights of a tinker:// path.',
      ],
      ['GET', 'samplers/{id}', 'The model of a sampling session.'],
      ['POST', 'asample', 'Samples a prompt: answers with the id of the result.'],
      ['POST', 'retrieve_future', 'The result of a sample, as JSON or protobuf, or 408 after 30 s.'],
      ['POST', 'retrieve_futures', 'Which samples of a sampling session have results.'],
      ['POST', 'cancel_future', 'Cancels a sample.'],
      ['POST', 'telemetry', 'Takes what the SDK reports, and drops it.'],
    ] as const
  ).map(([method, path, summary]) => ({
    method,
    path: `/api/v1/${path}`,
    caller: 'clients' as const,
    summary: `Tinker: ${summary}`,
    needs: '--tinker',
  })),
];

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
