"""The options of the router. Generated from `router/src/config/options.ts`."""

from __future__ import annotations

from typing import Literal, Sequence, TypedDict


class RouterOptions(TypedDict, total=False):
    """Options of `turnout serve`, with underscores."""

    host: str
    """Address to listen on. Default: 127.0.0.1."""

    port: int
    """Port to listen on; 0 picks a free one. Default: 30000."""

    shutdown_grace_period_secs: float
    """After SIGTERM: how long requests in flight may take to finish before they are truncated. Default: 180."""

    allow_half_close: bool
    """Serve clients that close their sending side after the request. Off: the router treats such a client as gone and stops its work."""

    forwarded_headers: bool
    """Send information about the client to engines: x-forwarded-for, -proto, -host and via."""

    reuse_port: bool
    """Listen on the same port as another running router, for an upgrade without downtime (Linux: SO_REUSEPORT)."""

    client_head_timeout_secs: float
    """Timeout for the head of a request, from its first byte. Default: 10."""

    client_body_timeout_secs: float
    """Longest pause within the body of a request. Default: 60."""

    client_idle_timeout_secs: float
    """How long an idle client connection stays open between two requests. Default: 3600."""

    client_write_timeout_secs: float
    """A client that reads no byte of its response for this long counts as gone: its work is stopped. Default: 600."""

    max_connections: int
    """Maximum client connections at once; further ones are closed. 0: three quarters of the open-file limit, because connections to engines need the rest. Default: 0."""

    max_connections_per_client: int
    """Maximum client connections at once from one address; further ones are closed. 0: no limit. Default: 0."""

    worker_urls: Sequence[str]
    """Engines to route to, as http://host:port, separated by spaces or commas. http://host:port@2 is data-parallel rank 2 of an engine, @4-7 are ranks 4 to 7. Engines can also be added at run time."""

    dp_aware: bool
    """Ask each engine for its number of data-parallel ranks and make each rank a worker, for engines whose URL names no rank."""

    intra_node_data_parallel_size: int
    """Number of data-parallel ranks of every engine whose URL names no rank: each rank is a worker, numbered from 0. Engines are not asked. Default: 1."""

    worker_api: Literal["slime", "sglang", "vllm"]
    """Response format of the worker and health endpoints: slime (SlimeRouter, and SGLang gateway on /workers), sglang (text of older SGLang routers on /add_worker) or vllm (vllm-router). Default: slime."""

    pd_disaggregation: bool
    """Serve every request with a pair of SGLang engines: a prefill engine and a decode engine (--disaggregation-mode)."""

    vllm_pd_disaggregation: bool
    """Serve requests with pairs of vLLM engines: a prefill engine computes the KV cache of the prompt and transfers it to a decode engine (--kv-transfer-config)."""

    kv_connector: Literal["nixl", "mooncake"]
    """With --vllm-pd-disaggregation: how KV caches are transferred. nixl: the prefill engine gets the request first. mooncake: both engines get it at once; a port after a prefill URL is that of its bootstrap server (default 8998). Default: nixl."""

    pd_min_prompt_tokens: int
    """With --vllm-pd-disaggregation: shorter prompts are served by a decode engine alone (tokens; 4 bytes of text count as one). 0: every prompt uses a pair. Default: 0."""

    prefill: Sequence[str]
    """Prefill engines. Each URL may be followed by its bootstrap port or the word none: --prefill http://a:30000 8998 http://b:30000."""

    decode: Sequence[str]
    """Decode engines."""

    connect_timeout_ms: int
    """Timeout for connecting to an engine. Default: 5000."""

    worker_idle_timeout_ms: int
    """Idle connections to engines are closed after this time. Keep it below the keep-alive timeout of the engines (uvicorn: 5000). Default: 4000."""

    service_discovery: bool
    """Discover engines among Kubernetes pods that match --selector: pods join when they are ready and drain when they are deleted."""

    selector: Sequence[str]
    """Labels of the pods that are workers; a pod must have all of them. Also key!=value, "key in (a,b)" and "key notin (a,b)"."""

    service_discovery_port: int
    """Port of the engines in these pods. Default: 80."""

    service_discovery_namespace: str
    """Namespace of these pods; * for all namespaces (needs a ClusterRole). Default: the namespace of this router."""

    endpoint_target_ports: Sequence[str]
    """Ports of the engines in these pods, in place of --service-discovery-port: each port is a worker."""

    pool_name: str
    """Discover engines by this InferencePool (Gateway API Inference Extension), in place of --service-discovery: its selector and its target ports are followed, and each port of a pod is a worker."""

    pool_namespace: str
    """Namespace of the InferencePool and its pods. Default: the namespace of this router."""

    pool_group: Literal["inference.networking.k8s.io"]
    """API group of the InferencePool, in its version v1. Default: inference.networking.k8s.io."""

    bootstrap_port_annotation: str
    """Pod annotation that holds the bootstrap port of a prefill engine. Default: sglang.ai/bootstrap-port."""

    prefill_selector: Sequence[str]
    """Labels of the pods that are prefill engines, in place of --selector."""

    decode_selector: Sequence[str]
    """Labels of the pods that are decode engines. A pod that matches both selectors gets the role of the more specific one."""

    policy: str
    """Load balancing policy: rollout, least_inflight, round_robin, random, power_of_two, consistent_hash, sticky_least_loaded, manual, cache_aware, prefix_hash, bucket, kv_aware, or the path of your own module. Default: rollout."""

    prefill_policy: str
    """Policy for the prefill engine of a pair. Default: --policy."""

    decode_policy: str
    """Policy for the decode engine of a pair. Default: --policy."""

    model_policy: Sequence[str]
    """Policies for requests that name these models: model=policy."""

    session_headers: Sequence[str]
    """Headers that carry the session key, highest priority first. Default: [x-smg-routing-key,x-multi-turn-session-id,x-session-affinity,x-session-id,thread-id,session-id,session_id,conversation_id,x-claude-code-session-id,x-litellm-session-id]."""

    session_fields: Sequence[str]
    """Fields of a JSON body that carry the session key, highest priority first. metadata.user_id and user count if their value names a session; with --policy rollout also while no two requests with the value overlap. Default: [session_params.session_id,session_params.id,prompt_cache_key,session_id,routing_key,metadata.session_id,metadata.user_id,user]."""

    key_order: Literal["turnout", "vllm-router"]
    """Where the routing key is searched: turnout (session keys first, in headers and body) or vllm-router (the order of that router). Default: turnout."""

    hash_load_factor: float
    """consistent_hash, prefix_hash: a worker gets at most this multiple of its share of the requests in flight; further requests go to the next worker on the hash ring. 0: no limit. Default: no limit for consistent_hash, 1.25 for prefix_hash."""

    prefix_hash_tokens: int
    """prefix_hash: number of prompt tokens that are hashed (ids, or 4 bytes of text each). Default: 256."""

    engine_load_interval_secs: float
    """power_of_two: how often each engine is asked for its number of requests, which includes those of other routers. 0: only the requests of this router count. Default: 0."""

    session_ttl_secs: float
    """A session without a request for this long has ended: for sticky_least_loaded, in GET /sessions, and for --max-weight-staleness. Default: 7200."""

    assignment_mode: Literal["random", "min_load", "min_group"]
    """manual: how a new key gets its worker: random, min_load (fewest requests in flight) or min_group (fewest keys). Default: random."""

    max_idle_secs: float
    """manual: a key without a request for this long is forgotten. Default: 14400."""

    cache_threshold: float
    """cache_aware: share of a prompt that a worker must have in its cache to be preferred. Default: 0.5."""

    balance_abs_threshold: int
    """cache_aware, bucket: route to the least loaded worker when the most loaded one has more than this many requests more, and also more than --balance-rel-threshold times as many. Default: 32."""

    balance_rel_threshold: float
    """cache_aware, bucket: see --balance-abs-threshold. Both thresholds must be exceeded. Default: 1.1."""

    eviction_interval_secs: float
    """Accepted for compatibility; has no effect. --max-tree-size is enforced at every request."""

    max_tree_size: int
    """cache_aware, rollout: number of prompt blocks that are remembered for all workers together; the least recently used are evicted. A block is 64 bytes in the first 4 KB of a prompt, 512 bytes after that. Default: 1048576."""

    bucket_adjust_interval_secs: float
    """bucket: how often the boundaries of the prompt-length buckets are recomputed. Default: 5."""

    kv_event_endpoints: Sequence[str]
    """kv_aware: KV event endpoints of workers, as http://worker:port=tcp://host:port; replay=tcp://host:port after an entry is the endpoint that sends missed events again."""

    kv_event_port: int
    """kv_aware: KV event port of all other workers, on the host of the worker; the DP rank is added to it. Default: 5557."""

    kv_replay_port: int
    """kv_aware: replay port of these workers; the DP rank is added to it. Without it, events missed during a lost connection are not recovered."""

    residency_max_wait_secs: float
    """rollout: how long a turn may be held for KV cache space when the open sessions need more than the fleet has. After that it is sent anyway, and the next turn may be held again. 0: turns are never held. Default: 60."""

    data_dir: str
    """Folder for what must survive a restart: session placements, learned answer lengths, captured trajectories. Without it they are lost."""

    stream_coalesce_ms: int | Literal["auto"]
    """Read each event stream at most this often after its first events: less CPU per token, more latency. 0: immediately. auto: immediately while the event loop is less than half busy; above, up to 20 ms apart, and streams that send less often immediately. Default: auto."""

    fireworks_names: Literal["off", "inference", "all"]
    """Where paths and names of Fireworks are understood: inference (/inference/v1/completions and /inference/v1/chat/completions are sent to /v1/…, and accounts/… in their model becomes the name of the engine), all (accounts/… in the model of every /v1 request too) or off. Default: all with weight swaps, else inference."""

    broadcast_paths: Sequence[str]
    """Additional control paths that go to every worker and need the admin key; a * at the end matches anything."""

    single_worker_paths: Sequence[str]
    """Paths that go to one worker although the table of control paths sends them to every worker."""

    retry_max_retries: int
    """Maximum retries on other workers when one fails before the first byte of its response. Default: 3."""

    retry_hung: bool
    """When a worker hangs: send each generation request without a byte of its response to one other worker, within --retry-budget. Off (--no-retry-hung): the request waits for the worker. Default: True."""

    resume: Literal["off", "on", "all"]
    """Continue generations on another worker, from the tokens they have, if their engine fails or if the router's own weight swap aborted them (on). all: also if an engine aborted them and no client requested that through the router. Default: off."""

    disable_retries: bool
    """Never retry on another worker."""

    retry_buffer_bytes: int
    """Memory for request bodies that are kept for a retry, for all requests together. Beyond it, bodies are streamed and sent once. Default: 1073741824."""

    retry_initial_backoff_ms: int
    """Backoff before the same worker is retried. Another worker is tried immediately. Default: 100."""

    retry_max_backoff_ms: int
    """Maximum backoff. Default: 10000."""

    retry_backoff_multiplier: float
    """Factor by which the backoff grows with each retry. Default: 2."""

    retry_jitter_factor: float
    """Backoff jitter, as a fraction of the delay (±). Default: 0.1."""

    retry_statuses: Sequence[str]
    """Response statuses that are retried, for generation requests and for methods without side effects. Default: [408,429,500,502,503,504]."""

    retry_after_max_secs: float
    """A worker's retry-after header is respected up to this time; a longer one is not retried. Default: 10."""

    retry_budget: float
    """Maximum retries after an error status, as a share of all requests (10 per second are always allowed). Default: 0.2."""

    cb_failure_threshold: int
    """Consecutive failed requests within the window that open the circuit breaker of a worker. Default: 5."""

    cb_success_threshold: int
    """Consecutive successes that close it again. Default: 2."""

    cb_timeout_duration_secs: float
    """Seconds the breaker stays open before trial requests are allowed, one at a time. Default: 30."""

    cb_window_duration_secs: float
    """Window in which failures count together. Default: 60."""

    disable_circuit_breaker: bool
    """Never eject a worker because of failed requests."""

    max_ejected_percent: float
    """Maximum percentage of the fleet that circuit breakers eject at once: at least one worker, and below 100 never the last one. Beyond it, failing workers keep serving (panic mode). Default: 50."""

    health_check_endpoint: str
    """Path of the health check. Default: /health."""

    health_check_interval_secs: float
    """Interval between health checks of a worker. Default: 10."""

    health_check_timeout_secs: float
    """Timeout of a health check. SGLang needs more than 1 s, because its /health generates a token. Default: 5."""

    health_failure_threshold: int
    """Consecutive failed checks that eject a worker. Default: 3."""

    health_success_threshold: int
    """Consecutive good checks that readmit it. Default: 2."""

    disable_health_check: bool
    """Treat every worker as healthy."""

    hung_after_secs: float
    """A worker whose own figures show running requests and no token read or made for this long hangs: it gets no new requests. So does one that answers nothing at all at --health-failure-threshold checks. Default: 60."""

    max_pause_secs: float
    """How long a worker may fail its health checks after a pause, sleep or weight update that passed through the router, where the worker itself does not report that it is paused. Default: 600."""

    worker_startup_timeout_secs: float
    """How long a new worker may take to pass its first check before that is reported as a failure. The router itself starts immediately. Default: 300."""

    worker_startup_check_interval: float
    """Maximum interval between checks of a new worker until its first response. The interval starts at 1 s and grows with the time that the worker takes. Default: 10."""

    max_concurrent_requests: int
    """Maximum requests in flight, until the end of their responses; further ones wait in the queue or get 429. 0: no limit. Default: 0."""

    max_payload_size: int
    """Maximum size of a request body; larger ones get 413. Default: 268435456."""

    request_timeout_secs: float
    """Maximum time from request to the end of its response. 0: no limit. Default: 0."""

    queue_size: int
    """Requests that may wait when a limit is reached; further ones get 429. The queue is fair between tenants or sessions. Default: 100."""

    queue_timeout_secs: float
    """Maximum wait in the queue; then the request gets 503. Default: 60."""

    objectives: Sequence[str]
    """Priorities of the objectives that requests name in the header x-gateway-inference-objective. Queued requests of a higher priority go first, and requests of a priority below 0 get 429 where others are queued. Other requests have priority 0."""

    rate_limit_tokens_per_second: float
    """Requests admitted per second; further ones wait. 0: no limit. Default: 0."""

    rate_limit_burst: int
    """Requests that --rate-limit-tokens-per-second admits at once after a quiet time. 0: as many as in one second. Default: 0."""

    worker_max_inflight: int
    """Maximum requests in flight per worker; further ones wait. 0: no limit. Default: 0."""

    first_byte_timeout_secs: float
    """Maximum time from a sent request to the first byte of its response. 0: no limit, because engines may queue requests for minutes. Default: 0."""

    worker_write_timeout_secs: float
    """An engine that takes no byte of a request body for this long counts as a broken connection. 0: no limit. Default: 300."""

    stream_idle_timeout_secs: float
    """Maximum pause within a response. 0: no limit. Default: 0."""

    plugin: Sequence[str]
    """Plugins to load: the name of a built-in one (radix-tree, chat-sessions, feed, rollout-fields), the path of a module (./mine.ts) or an npm package. Options follow a colon: ./mine.ts:{"limit":8}."""

    plugin_timeout_ms: int
    """Timeout of each plugin phase of a request; after it the request fails with 500 and the name of the plugin. Default: 5000."""

    swap_snapshots: str
    """Weight swaps: where engines find the weights of a snapshot, as a path that they see: /snapshots/{identity}. Makes one deployment of all workers. Requests for engines whose weights are being replaced wait in the router."""

    swap_transition: Literal["async", "sync"]
    """With --swap-snapshots: async pauses requests in flight and continues them with the new weights; sync lets them finish with the old weights and answers new ones with 425 meanwhile. Default: async."""

    swap_base_identity: str
    """With --swap-snapshots: the name of the weights with which engines start, if the engines report none. Default: base."""

    swap_concurrency: int
    """Engines whose weights are replaced at the same time, so that the others keep generating. 0: all at once. Default: 0."""

    swap_wait_secs: float
    """How long new requests wait for an engine whose weights are being replaced (async); then they get 425. The x-fireworks-hot-load-drain-timeout header of a request replaces it. Set it above the load time of the weights, and the clients’ timeouts above it. Default: 90."""

    swap_load_timeout_secs: float
    """How long an engine may take to load weights. After it the load counts as failed. Default: 1800."""

    swap_delta_hook: Sequence[str]
    """Hot-load API: program and first arguments that make the complete snapshot of a delta (incremental_snapshot_metadata) before engines load it. The identity, the identity of the earlier snapshot and the directory of the new one follow as arguments. Without it deltas are refused."""

    max_weight_staleness: int
    """How many snapshots a session may lag behind: if its worker has more newer ones than this since the snapshot that the session began with, its next request gets 409. Unset: any number."""

    abort_stale: bool
    """With --max-weight-staleness: also end the running requests of such sessions, at the weight swap that makes them too old."""

    api_key: Sequence[str]
    """API keys: every request must carry one (authorization: Bearer KEY). Prefer --api-key-file, because other users can read command lines."""

    api_key_file: str
    """File with API keys, one per line; read again on SIGHUP."""

    admin_api_key: Sequence[str]
    """API keys for the control API and for control paths of engines (workers, policies, weights, pauses). Without them --api-key protects these, too."""

    admin_api_key_file: str
    """File with admin API keys, one per line; read again on SIGHUP."""

    worker_api_key: str
    """API key for the engines; it replaces authorization and x-api-key of each request."""

    send_api_key_to_workers: bool
    """Send the first --api-key to engines, as other routers do."""

    admin_port: int
    """Serve the control API and control paths on this port only; 0 picks a free one."""

    admin_host: str
    """Address of --admin-port. Default: 127.0.0.1."""

    worker_allow: Sequence[str]
    """Allowed worker addresses: networks (10.0.0.0/8) and host names (*.gpu.internal). Default: any except link-local and cloud metadata addresses."""

    allowed_hosts: Sequence[str]
    """Host names by which clients may control and read the router without a key, beside localhost and addresses. *: any. Default: any, unless --host is a loopback address."""

    cors_allowed_origins: Sequence[str]
    """Origins that may call the router from a browser: https://host, or *."""

    tls_cert_path: str
    """TLS certificate (PEM) of this server; read again on SIGHUP."""

    tls_key_path: str
    """Private key (PEM) of --tls-cert-path."""

    ca_cert_path: str
    """Certificate authorities (PEM) to trust for https workers; read again on SIGHUP."""

    tls_client_ca_path: str
    """Certificate authorities (PEM) for client certificates: clients must present one."""

    client_cert_path: str
    """Client certificate (PEM) for https workers; read again on SIGHUP."""

    client_key_path: str
    """Private key (PEM) of --client-cert-path."""

    tokenizer_path: str
    """The model's tokenizer.json or its folder. Exact tokens need it."""

    radix_max_cache_size: int
    """A limit for the number of nodes in the trees of tokens, about two a turn. Unset: --radix-max-bytes alone limits them."""

    radix_max_bytes: int
    """Memory that the trees of tokens may take; unset: 10 % of the RAM or of the cgroup limit, at most 8 GiB. Turns of the sessions used longest ago are evicted first."""

    radix_gc_threshold_k: int
    """Tree nodes that were only used with weights this many versions older than the newest are removed once they were not used for an hour. Default: 5."""

    store: str
    """Where captured turns are stored: memory, sqlite (a file in --data-dir) or redis://… (Redis or Valkey, shared by several routers). Default: sqlite with --data-dir, else memory."""

    store_memory_bytes: int
    """Memory that captured turns may take where they are kept in memory; unset: 10 % of the RAM or of the cgroup limit, at most 8 GiB. Whole sessions are evicted: first those that are over, then those used longest ago. With another store: memory of chat sessions, which are read from the store again."""

    store_max_age_secs: float
    """Sessions whose last turn began longer ago are deleted from the store, with their files. 0: never. Default: 0."""

    store_wait: Literal["off", "written", "synced"]
    """When the end of a captured answer (the last event of a choice, the last byte of a whole answer) is sent: written: once its turn is in the store, so that a kill of the router loses no turn whose end a client has; synced: once SQLite has also synced it to the disk, for power failures; off: at once. After 250 ms it is sent anyway, and counted. With the memory store: at once. Default: written."""

    capture_chat: bool
    """Capture plain /v1/chat/completions requests that carry a session key as chat sessions with exact tokens. Loads the plugin chat-sessions; needs --tokenizer-path."""

    capture_bodies: bool
    """Also store the requests and responses of captured calls that are not chats, for turnout replay. Those of chats are always stored."""

    capture_required: bool
    """Refuse requests that should be captured (503) while turns cannot be stored. Off: such turns are dropped and counted."""

    tinker: bool
    """Serve the sampling half of the Tinker API under /api/v1: the tinker SDK, with this router as its base_url, samples from the fleet."""

    tinker_weights: str
    """Where the checkpoints of tinker:// paths are, as this router and the engines see it: /ckpt/{model_id}/{checkpoint}. An archive, /ckpt/{model_id}/{checkpoint}.tar.gz, is unpacked beside itself. LoRA adapters are loaded on a worker before its first sample with them."""

    tinker_trainer: str
    """The Tinker server that trains. Requests that are not about sampling are forwarded to it, and sampling sessions that it creates are sampled here."""

    tinker_vllm_api: Literal["completions", "generate"]
    """How vLLM engines are asked for Tinker samples: completions (/v1/completions) or generate (/inference/v1/generate, for engines that serve token ids only). Default: completions."""

    tinker_max_samples: int
    """Maximum Tinker samples of each API key that are open: in flight, or finished and not fetched yet. Further ones get 429, which the SDK retries. Default: 20000."""

    tinker_retry_secs: float
    """How long a Tinker sample is retried when engines fail, abort it or are not available. Then the sample fails. Default: 600."""

    tinker_poll_secs: float
    """How long a request for a result waits for it. Then it gets 408, and the SDK asks again. Clients end requests after 45 s. Default: 30."""

    tinker_session_timeout_secs: float
    """Tinker sessions without a heartbeat or a request for this long expire, with their sampling sessions. Default: 3600."""

    picker_port: int
    """Serve as endpoint picker of a Kubernetes gateway, or of any Envoy, on this port (gRPC, ext_proc); 0 picks a free one."""

    picker_host: str
    """Address of --picker-port. Default: 127.0.0.1."""

    picker_health_port: int
    """Port of the gRPC health of the picker; 0 picks a free one. Default: 9003."""

    picker_fallbacks: int
    """Number of other engines that the gateway gets beside the chosen one, in the order in which it may try them where it retries. Needs a gateway that reads lists: Envoy's ORIGINAL_DST takes one address. Default: 0."""

    picker_health_checking: bool
    """Serve the gRPC health on --picker-port too."""

    leader_election: str
    """Elect a leader among the pickers that give the same Lease (coordination.k8s.io) of their namespace; auto: NAME-picker for --pool-name NAME. The gRPC health of the others is not serving, so that gateways ask the leader."""

    picker_usage: Literal["auto", "on", "off"]
    """Whether the gateway is asked to send the bodies of responses to generations, which have token counts: auto (if the policy uses the counts, as rollout does), on or off. Needs allow_mode_override in the ext_proc filter; without it the processing mode of the filter decides. Default: auto."""

    picker_tls: Literal["on", "off"]
    """TLS of --picker-port: on (with --tls-cert-path, else with a self-signed certificate, as gateways expect) or off. Default: on."""

    log_level: Literal["debug", "info", "warning", "warn", "error", "critical"]
    """debug, info, warning, error or critical. Default: info."""

    log_format: Literal["text", "json"]
    """text or json. Without it: text where the standard output is a terminal, else json; files of --log-dir are json."""

    prometheus_port: int
    """Port of GET /metrics, /liveness and /readiness, which the main port serves, too; 0 picks a free one. Default: 29000."""

    prometheus_host: str
    """Address of --prometheus-port. Default: 127.0.0.1."""

    metrics_compat: Literal["off", "sglang", "vllm"]
    """Also serve metrics with the names and labels of sglang-router (smg_…) or vllm-router (vllm_router_…), so that their dashboards and alerts go on working. The commands of these routers set it. Default: off."""

    otlp_traces_endpoint: str
    """Send traces of requests to this OpenTelemetry collector (OTLP over HTTP), for example http://localhost:4318; /v1/traces is added to a URL without a path."""

    trace_sample_ratio: float
    """Fraction of the requests without a traceparent header that are traced; with that header its sampled flag decides. Default: 1."""

    dashboard: Literal["on", "off"]
    """Serve the dashboard at /dashboard. What it shows needs an admin key, if keys are set. Default: on."""

    request_id_headers: Sequence[str]
    """Headers that carry the request id, highest priority first; x-request-id is always one of them."""

    log_dir: str
    """Also write the log to files in this folder."""

    log_max_bytes: int
    """Size at which a new log file is started. Default: 104857600."""

    log_max_files: int
    """Number of log files that are kept. Default: 8."""

    worker_header: bool
    """Add x-turnout-worker and x-turnout-reason to responses: the URL of the worker, and why it was chosen (new, home, moved: …, retry)."""

    explain_buffer_bytes: int
    """Memory for the last requests, with the candidates of each choice, that turnout explain shows, at least 65536; 0: no requests are kept. Default: 33554432."""

    access_log: bool
    """Log every request to workers when it is complete."""
