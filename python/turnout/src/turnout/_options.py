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
    """On SIGTERM: how long requests under way may take to finish before they are cut. Default: 180."""

    allow_half_close: bool
    """Serve clients that close their sending side after the request. Off: such a client counts as gone and its work is stopped."""

    forwarded_headers: bool
    """Tell engines about the client: x-forwarded-for, -proto, -host and via."""

    reuse_port: bool
    """Listen beside another router on the same port, for an upgrade without a gap (Linux: SO_REUSEPORT)."""

    client_head_timeout_secs: float
    """How long a client may take for the head of a request, from its first byte. Default: 10."""

    client_body_timeout_secs: float
    """How long a client may pause within the body of a request. Default: 60."""

    client_idle_timeout_secs: float
    """How long a connection is kept open between two requests. Default: 3600."""

    client_write_timeout_secs: float
    """A client that takes no byte of its answer for so long has gone: its work is stopped. Default: 600."""

    max_connections: int
    """Client connections at once; more are closed as they come. 0: three quarters of the files that the system allows; engines need the rest. Default: 0."""

    max_connections_per_client: int
    """Client connections at once from one address; more are closed as they come. 0: no bound. Default: 0."""

    worker_urls: Sequence[str]
    """Engines to route to, http://host:port each (http://host:port@2: its data-parallel rank 2, @4-7: each of these ranks), separated by spaces or commas. More can be added while running."""

    dp_aware: bool
    """Ask engines how many data-parallel ranks they have, and make each rank of an engine whose URL names none a worker of its own."""

    intra_node_data_parallel_size: int
    """Data-parallel ranks of every engine whose URL names none: each is a worker, numbered from 0. Nobody is asked. Default: 1."""

    worker_api: Literal["slime", "sglang", "vllm"]
    """Whose answers the worker and probe endpoints give: slime (SlimeRouter’s, and the SGLang gateway’s on /workers), sglang (older SGLang routers’ text on /add_worker) or vllm (vllm-router’s everywhere). Default: slime."""

    pd_disaggregation: bool
    """Serve every request by a pair: a prefill engine and a decode engine (SGLang with --disaggregation-mode)."""

    vllm_pd_disaggregation: bool
    """Serve requests by pairs of vLLM engines: a prefill engine reads the prompt and hands its KV to a decode engine (--kv-transfer-config)."""

    kv_connector: Literal["nixl", "mooncake"]
    """With --vllm-pd-disaggregation: what the engines hand KV over with. nixl: the prefill engine first. mooncake: both at once; the port that follows a prefill URL is that of its bootstrap server, 8998 without one. Default: nixl."""

    pd_min_prompt_tokens: int
    """With --vllm-pd-disaggregation: prompts of fewer tokens (ids; 4 bytes of text count as one) go to a decode engine alone, which reads them itself. 0: none do. Default: 0."""

    prefill: Sequence[str]
    """Prefill engines. The bootstrap port of one may follow its URL, or the word none: --prefill http://a:30000 8998 http://b:30000."""

    decode: Sequence[str]
    """Decode engines."""

    connect_timeout_ms: int
    """How long connecting to an engine may take before the next one is tried. Default: 5000."""

    worker_idle_timeout_ms: int
    """Idle connections to engines are closed after this long; keep it below the engines own (uvicorn: 5000). Default: 4000."""

    service_discovery: bool
    """Find engines among the pods of Kubernetes: those that --selector names join when they are ready, and finish what they have when they are deleted."""

    selector: Sequence[str]
    """Labels that a pod must have, all of them, to be a worker."""

    service_discovery_port: int
    """Where the engines in those pods listen. Default: 80."""

    service_discovery_namespace: str
    """Where those pods are; * for all namespaces (which takes a ClusterRole). Default: the namespace of this router."""

    bootstrap_port_annotation: str
    """An annotation of pods: the bootstrap port of a prefill engine. Also shown as bootstrap_port in the metadata of workers. Default: sglang.ai/bootstrap-port."""

    prefill_selector: Sequence[str]
    """For pairs, in place of --selector: labels that a pod must have, all of them, to be a prefill engine."""

    decode_selector: Sequence[str]
    """The same for decode engines. A pod that fits both is of the role whose selector has all of the other and more."""

    policy: str
    """How a worker is chosen: rollout, least_inflight, round_robin, random, power_of_two, consistent_hash, sticky_least_loaded, manual, cache_aware, prefix_hash, bucket, kv_aware, or the path of a module of your own. Default: rollout."""

    prefill_policy: str
    """How the prefill engine of a pair is chosen, in place of --policy."""

    decode_policy: str
    """How the decode engine of a pair is chosen, in place of --policy."""

    model_policy: Sequence[str]
    """Other policies for the requests that name these models."""

    session_headers: Sequence[str]
    """Headers that name a session, in the order in which they are believed. Default: [x-smg-routing-key,x-multi-turn-session-id,x-session-affinity,x-session-id]."""

    key_order: Literal["turnout", "vllm-router"]
    """Where the key that steers placement is looked for: turnout (sessions first, wherever they stand) or vllm-router (that router’s eleven places). Default: turnout."""

    hash_load_factor: float
    """consistent_hash, prefix_hash: no worker gets more than this many times its share of the requests under way; the next one on the ring does. 0: no bound. Default: none for consistent_hash, 1.25 for prefix_hash."""

    prefix_hash_tokens: int
    """prefix_hash: so much of the prompt steers it, in tokens (ids, or 4 bytes of text). Default: 256."""

    engine_load_interval_secs: float
    """power_of_two: how often engines are asked how many requests they have, so that those of other routers count too. 0: never, the own ones count. Default: 0."""

    session_ttl_secs: float
    """sticky_least_loaded: a session without a request for so long has ended. Default: 7200."""

    assignment_mode: Literal["random", "min_load", "min_group"]
    """manual: how a new key gets its worker: random, min_load (fewest requests under way) or min_group (fewest keys). Default: random."""

    max_idle_secs: float
    """manual: a key without a request for so long is forgotten. Default: 14400."""

    cache_threshold: float
    """cache_aware: the share of a prompt that a worker must have seen before it is preferred for it. Default: 0.5."""

    balance_abs_threshold: int
    """cache_aware, bucket: the least loaded worker is taken when the most loaded one has more than this many requests more, and more than --balance-rel-threshold times as many. Default: 32."""

    balance_rel_threshold: float
    """cache_aware, bucket: see --balance-abs-threshold; both must be exceeded. Default: 1.1."""

    eviction_interval_secs: float
    """Taken for the sake of other routers’ command lines, without effect: what is remembered of prompts is kept within --max-tree-size at every request."""

    max_tree_size: int
    """cache_aware, rollout: blocks of prompts that are remembered, of all workers together; the least recently used go first. A block is 64 bytes in the first 4 KB of a prompt, 512 bytes after. Default: 1048576."""

    bucket_adjust_interval_secs: float
    """bucket: how often the bands of prompt lengths are cut anew. Default: 5."""

    kv_event_endpoints: Sequence[str]
    """kv_aware: where workers tell of their caches, http://worker:port=tcp://host:port each; replay=tcp://host:port after one of them: where it gives missed events again."""

    kv_event_port: int
    """kv_aware: where all other workers tell of their caches, on their own host; a DP rank is added to it. Default: 5557."""

    kv_replay_port: int
    """kv_aware: where they give missed events again; a DP rank is added to it. Without it a lost connection loses what was known of the cache."""

    residency_max_wait_secs: float
    """rollout: how long a session may wait for room in an engine when the open ones want more context than the fleet can hold; then it is placed anyway. 0: nobody waits. Default: 3600."""

    data_dir: str
    """Where policies keep what they must know after a restart (the workers of sessions, learned lengths), and captured trajectories are kept. Without it both start anew."""

    stream_coalesce_ms: int
    """Read each event stream at most this often after its first events: less CPU per token, more delay. 0: at once. Default: 0."""

    broadcast_paths: Sequence[str]
    """Paths that go to every worker, and steer, beside those of the table of controls; a * at the end stands for anything."""

    single_worker_paths: Sequence[str]
    """Paths that go to one worker, as requests do, although the table of controls sends them to every one."""

    retry_max_retries: int
    """Other workers to try when one fails before the first byte of its answer. Default: 3."""

    retry_hung: bool
    """When a worker hangs: send each generation request that has no byte of its answer to one other worker, within --retry-budget. Off (--no-retry-hung): it waits for the worker. Default: True."""

    disable_retries: bool
    """Never try another worker."""

    retry_buffer_bytes: int
    """Request bodies kept for another try, of all requests together; beyond it bodies flow through and are sent once. Default: 1073741824."""

    retry_initial_backoff_ms: int
    """Wait before a worker that failed is tried again. Another worker is tried at once. Default: 100."""

    retry_max_backoff_ms: int
    """The longest such wait. Default: 10000."""

    retry_backoff_multiplier: float
    """How much longer each wait is than the one before. Default: 2."""

    retry_jitter_factor: float
    """By how much of itself a wait is made longer or shorter at random. Default: 0.1."""

    retry_statuses: Sequence[str]
    """Answers of a worker after which another one is tried, for generation and for methods that change nothing. Default: [408,429,500,502,503,504]."""

    retry_after_max_secs: float
    """A retry-after of a worker is respected up to this; one that asks for more is not tried again. Default: 10."""

    retry_budget: float
    """Tries after an error status, as a share of the requests (10 a second are always allowed): an outage is not multiplied. Default: 0.2."""

    cb_failure_threshold: int
    """Failed requests in a row, within the window, after which a worker gets no more. Default: 5."""

    cb_success_threshold: int
    """Successes in a row that bring it back. Default: 2."""

    cb_timeout_duration_secs: float
    """After so long one request at a time tries whether it works again. Default: 30."""

    cb_window_duration_secs: float
    """Failures that are further apart are not counted together. Default: 60."""

    disable_circuit_breaker: bool
    """Never take a worker out for failed requests."""

    max_ejected_percent: float
    """The largest part of the fleet that failed requests take out at once: at least one worker, and below 100 never the last. Beyond it workers go on serving, failed or not (panic mode). Default: 50."""

    health_check_endpoint: str
    """Path to ask. Default: /health."""

    health_check_interval_secs: float
    """How often each worker is asked. Default: 10."""

    health_check_timeout_secs: float
    """How long an answer may take; SGLang needs more than 1 s, as its /health generates a token. Default: 5."""

    health_failure_threshold: int
    """Failed checks in a row that put a worker into quarantine. Default: 3."""

    health_success_threshold: int
    """Good checks in a row that let it out again. Default: 2."""

    disable_health_check: bool
    """Take every worker for healthy."""

    hung_after_secs: float
    """A worker whose own figures show running requests and no token read or made for this long hangs: it gets no new requests. So does one that answers nothing at all at --health-failure-threshold checks. Default: 60."""

    max_pause_secs: float
    """How long a worker may fail its health checks after a pause, sleep or weight update that passed through the router, where the worker itself does not report that it is paused. Default: 600."""

    worker_startup_timeout_secs: float
    """How long a new worker may take to answer its first check before that is reported as a failure. The router itself starts at once. Default: 300."""

    worker_startup_check_interval: float
    """The longest pause between two checks of a new worker until it first answers: a tenth of the time that it has taken, at least 1 s. Default: 10."""

    max_concurrent_requests: int
    """Requests under way at once, to the end of their answers; more get 429. 0: no bound. Default: 0."""

    max_payload_size: int
    """Largest request body; more gets 413. Default: 268435456."""

    request_timeout_secs: float
    """Longest time from request to the end of its answer. 0: none, as rollouts run for hours. Default: 0."""

    queue_size: int
    """Requests that may wait where a limit is set and reached; more get 429. Keys take turns. Default: 100."""

    queue_timeout_secs: float
    """How long one may wait; then it gets 503. Default: 60."""

    rate_limit_tokens_per_second: float
    """Requests let in per second; more wait. 0: no limit. Default: 0."""

    rate_limit_burst: int
    """Requests that --rate-limit-tokens-per-second admits at once after a quiet time. 0: as many as in one second. Default: 0."""

    worker_max_inflight: int
    """Requests under way at once at one worker; more wait. 0: no bound. Default: 0."""

    first_byte_timeout_secs: float
    """Longest time from a request sent to the first byte of its answer. 0: none, as engines queue for minutes. Default: 0."""

    stream_idle_timeout_secs: float
    """Longest pause within an answer. 0: none. Default: 0."""

    plugin: Sequence[str]
    """What takes part in requests and answers: the name of a built-in plugin, the path of a module (./mine.ts) or an npm package, with its options behind it: ./mine.ts:{"limit":8}."""

    plugin_timeout_ms: int
    """So long a plugin may take for its part of a request; then the request fails with 500 and its name. Default: 5000."""

    api_key: Sequence[str]
    """Keys, one of which every request must carry (authorization: Bearer KEY). Rather give a file: command lines can be read by others."""

    api_key_file: str
    """The same, a key a line; read again on SIGHUP."""

    admin_api_key: Sequence[str]
    """Keys for what steers the router or engines (workers, policies, weights, pauses). Without them --api-key guards that too."""

    admin_api_key_file: str
    """The same, a key a line; read again on SIGHUP."""

    worker_api_key: str
    """Key for the engines: replaces whatever authorization a request carries."""

    send_api_key_to_workers: bool
    """Send the first --api-key to engines, as other routers do."""

    admin_port: int
    """Take what steers the router or engines on this port only; 0 picks a free one."""

    admin_host: str
    """Address for it. Default: 127.0.0.1."""

    worker_allow: Sequence[str]
    """Where workers may be: networks (10.0.0.0/8) and host names (*.gpu.internal). Default: anywhere but link-local and cloud metadata addresses."""

    cors_allowed_origins: Sequence[str]
    """Web pages that may call the router from a browser: https://host each, or *."""

    tokenizer_path: str
    """The model's tokenizer.json, or the folder it is in: what exact tokens need."""

    radix_max_cache_size: int
    """A limit for the number of nodes in the trees of tokens, about two a turn. Unset: --radix-max-bytes alone limits them."""

    radix_max_bytes: int
    """Memory that the trees of tokens may take; unset: 10 % of the RAM or of the cgroup limit, at most 8 GiB. Turns of the sessions used longest ago are evicted first."""

    radix_gc_threshold_k: int
    """Nodes that only weights so many versions older than the newest used are removed, once they were not used for an hour. Default: 5."""

    store: str
    """Where captured turns are kept: memory, sqlite (a file in --data-dir), or redis://… (Redis or Valkey, shared by several routers). Unsaid: sqlite with --data-dir, else memory."""

    store_memory_bytes: int
    """Memory that captured turns may take where they are kept in memory; unset: 10 % of the RAM or of the cgroup limit, at most 8 GiB. Whole sessions are evicted: first those that are over, then those used longest ago. With another store: memory of chat sessions, which are read from the store again."""

    store_max_age_secs: float
    """Sessions whose last turn began longer ago are removed from the store, their files too. 0: all are kept. Default: 0."""

    store_wait: Literal["off", "written", "synced"]
    """When the end of a captured answer (the last event of a choice, the last byte of a whole answer) is sent: written: once its turn is in the store, so that a kill of the router loses no turn whose end a client has; synced: once SQLite has also synced it to the disk, for power failures; off: at once. After 250 ms it is sent anyway, and counted. With the memory store: at once. Default: written."""

    capture_chat: bool
    """Plain /v1/chat/completions that carry a session key are chat sessions too: exact tokens, and kept turns. Turns the plugin chat-sessions on; wants --tokenizer-path."""

    capture_bodies: bool
    """Keep requests and answers of captured turns as they passed, too: what turnout replay needs."""

    capture_required: bool
    """Refuse requests that would be captured (503) while their turns can not be kept. Off: such turns are dropped and counted."""

    tls_cert_path: str
    """Certificate (PEM) of this server; read again on SIGHUP."""

    tls_key_path: str
    """Its private key (PEM)."""

    ca_cert_path: str
    """Authorities (PEM) to trust for https workers."""

    tls_client_ca_path: str
    """Authorities (PEM): clients must show a certificate of theirs."""

    client_cert_path: str
    """Certificate (PEM) that https workers are shown."""

    client_key_path: str
    """Its private key (PEM)."""

    log_level: Literal["debug", "info", "warning", "warn", "error", "critical"]
    """debug, info, warning, error or critical. Default: info."""

    log_format: Literal["text", "json"]
    """text or json. Without it: text where the standard output is a terminal, else json; files of --log-dir are json."""

    prometheus_port: int
    """Port for GET /metrics, which the main port answers too; 0 picks a free one. Default: 29000."""

    prometheus_host: str
    """Address for it. Default: 127.0.0.1."""

    request_id_headers: Sequence[str]
    """Headers that carry the id of a request, in the order in which they are believed; x-request-id is always one."""

    log_dir: str
    """Write the log to files there too."""

    log_max_bytes: int
    """A new log file is begun when one has this size. Default: 104857600."""

    log_max_files: int
    """So many log files are kept. Default: 8."""

    worker_header: bool
    """Add x-turnout-worker and x-turnout-reason to answers: the URL of the worker, and why it was chosen (new, home, moved: …, retry)."""

    access_log: bool
    """Write a line for every request to workers, when it is over."""
