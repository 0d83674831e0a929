"""The arguments of sglang-router. Generated from `router/src/config/alias/`."""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

from turnout_compat.args import PeerArgs


@dataclass
class RouterArgs(PeerArgs):
    """Arguments of sglang-router, as its own `RouterArgs` has them."""

    host: str = field(
        default="127.0.0.1",
        metadata={"flag": "host", "help": "Address to listen on."},
    )
    port: int = field(
        default=30000,
        metadata={"flag": "port", "help": "Port to listen on; 0 picks a free one."},
    )
    worker_urls: List[str] = field(
        default_factory=list,
        metadata={"flag": "worker-urls", "help": "Engines to route to, http://host:port each (http://host:port@2: its data-parallel rank 2, @4-7: each of these ranks), separated by spaces or commas. More can be added while running."},
    )
    policy: str = field(
        default="cache_aware",
        metadata={"flag": "policy", "help": "How a worker is chosen: rollout, least_inflight, round_robin, random, power_of_two, consistent_hash, sticky_least_loaded, manual, cache_aware, prefix_hash, bucket, kv_aware, or the path of a module of your own."},
    )
    cache_threshold: float = field(
        default=0.3,
        metadata={"flag": "cache-threshold", "always": True, "help": "cache_aware: the share of a prompt that a worker must have seen before it is preferred for it."},
    )
    balance_abs_threshold: int = field(
        default=64,
        metadata={"flag": "balance-abs-threshold", "always": True, "help": "cache_aware, bucket: the least loaded worker is taken when the most loaded one has more than this many requests more, and more than --balance-rel-threshold times as many."},
    )
    balance_rel_threshold: float = field(
        default=1.5,
        metadata={"flag": "balance-rel-threshold", "always": True, "help": "cache_aware, bucket: see --balance-abs-threshold; both must be exceeded."},
    )
    bucket_adjust_interval_secs: float = field(
        default=5,
        metadata={"flag": "bucket-adjust-interval-secs", "help": "bucket: how often the bands of prompt lengths are cut anew."},
    )
    eviction_interval_secs: Optional[str] = field(
        default=None,
        metadata={"flag": "eviction-interval-secs", "help": "what is remembered of prompts is kept within --max-tree-size at every request."},
    )
    max_tree_size: int = field(
        default=67108864,
        metadata={"flag": "max-tree-size", "always": True, "help": "Characters of prompts, of all workers together; here rounded to blocks of 64. There each worker has as much."},
    )
    max_idle_secs: float = field(
        default=14400,
        metadata={"flag": "max-idle-secs", "help": "manual: a key without a request for so long is forgotten."},
    )
    assignment_mode: str = field(
        default="random",
        metadata={"flag": "assignment-mode", "help": "manual: how a new key gets its worker: random, min_load (fewest requests under way) or min_group (fewest keys)."},
    )
    max_payload_size: int = field(
        default=536870912,
        metadata={"flag": "max-payload-size", "always": True, "help": "Largest request body; more gets 413."},
    )
    dp_aware: bool = field(
        default=False,
        metadata={"flag": "dp-aware", "help": "Ask engines how many data-parallel ranks they have, and make each rank of an engine whose URL names none a worker of its own."},
    )
    enable_igw: bool = field(
        default=False,
        metadata={"flag": "enable-igw", "help": "where workers have several models, requests go by model in any case."},
    )
    pd_disaggregation: bool = field(
        default=False,
        metadata={"flag": "pd-disaggregation", "help": "Serve every request by a pair: a prefill engine and a decode engine (SGLang with --disaggregation-mode)."},
    )
    prefill_policy: Optional[str] = field(
        default=None,
        metadata={"flag": "prefill-policy", "help": "How the prefill engine of a pair is chosen, in place of --policy."},
    )
    decode_policy: Optional[str] = field(
        default=None,
        metadata={"flag": "decode-policy", "help": "How the decode engine of a pair is chosen, in place of --policy."},
    )
    prefill_urls: List[Tuple[str, Optional[int]]] = field(
        default_factory=list,
        metadata={"flag": "prefill", "help": "Prefill engines. The bootstrap port of one may follow its URL, or the word none: --prefill http://a:30000 8998 http://b:30000."},
    )
    decode_urls: List[str] = field(
        default_factory=list,
        metadata={"flag": "decode", "help": "Decode engines."},
    )
    mini_lb: bool = field(
        default=False,
        metadata={"flag": "mini-lb", "help": "there is one router, and it does more."},
    )
    worker_startup_timeout_secs: float = field(
        default=1800,
        metadata={"flag": "worker-startup-timeout-secs", "always": True, "help": "The router starts at once; this long nothing is said of workers that do not answer yet."},
    )
    worker_startup_check_interval: float = field(
        default=30,
        metadata={"flag": "worker-startup-check-interval", "always": True, "help": "The longest pause: a new worker is asked every second at first."},
    )
    service_discovery: bool = field(
        default=False,
        metadata={"flag": "service-discovery", "help": "Find engines among the pods of Kubernetes: those that --selector names join when they are ready, and finish what they have when they are deleted."},
    )
    selector: Dict[str, str] = field(
        default_factory=dict,
        metadata={"flag": "selector", "help": "Labels that a pod must have, all of them, to be a worker."},
    )
    service_discovery_port: int = field(
        default=80,
        metadata={"flag": "service-discovery-port", "help": "Where the engines in those pods listen."},
    )
    service_discovery_namespace: Optional[str] = field(
        default=None,
        metadata={"flag": "service-discovery-namespace", "help": "Without it pods of the router's own namespace are found, there of all; * finds all here."},
    )
    prefill_selector: Dict[str, str] = field(
        default_factory=dict,
        metadata={"flag": "prefill-selector", "help": "For pairs, in place of --selector: labels that a pod must have, all of them, to be a prefill engine."},
    )
    decode_selector: Dict[str, str] = field(
        default_factory=dict,
        metadata={"flag": "decode-selector", "help": "The same for decode engines. A pod that fits both is of the role whose selector has all of the other and more."},
    )
    bootstrap_port_annotation: str = field(
        default="sglang.ai/bootstrap-port",
        metadata={"flag": "bootstrap-port-annotation", "help": "An annotation of pods: the bootstrap port of a prefill engine. Also shown as bootstrap_port in the metadata of workers."},
    )
    log_dir: Optional[str] = field(
        default=None,
        metadata={"flag": "log-dir", "help": "Write the log to files there too."},
    )
    log_level: str = field(
        default="info",
        metadata={"flag": "log-level", "help": "debug, info, warning, error or critical."},
    )
    prometheus_port: int = field(
        default=29000,
        metadata={"flag": "prometheus-port", "help": "Port for GET /metrics, which the main port answers too; 0 picks a free one."},
    )
    prometheus_host: str = field(
        default="127.0.0.1",
        metadata={"flag": "prometheus-host", "help": "Address for it."},
    )
    prometheus_duration_buckets: List[str] = field(
        default_factory=list,
        metadata={"flag": "prometheus-duration-buckets", "help": "the buckets of turnout_request_duration_seconds are fixed."},
    )
    request_id_headers: List[str] = field(
        default_factory=list,
        metadata={"flag": "request-id-headers", "help": "Headers that carry the id of a request, in the order in which they are believed; x-request-id is always one."},
    )
    request_timeout_secs: float = field(
        default=1800,
        metadata={"flag": "request-timeout-secs", "always": True, "help": "Longest time from request to the end of its answer. 0: none, as rollouts run for hours."},
    )
    shutdown_grace_period_secs: float = field(
        default=180,
        metadata={"flag": "shutdown-grace-period-secs", "help": "On SIGTERM: how long requests under way may take to finish before they are cut."},
    )
    cors_allowed_origins: List[str] = field(
        default_factory=list,
        metadata={"flag": "cors-allowed-origins", "help": "Web pages that may call the router from a browser: https://host each, or *."},
    )
    max_concurrent_requests: int = field(
        default=-1,
        metadata={"flag": "max-concurrent-requests", "always": True, "help": "A bound on requests in flight, to the end of their answers; there a rate of requests per second. Not given: no bound."},
    )
    queue_size: int = field(
        default=100,
        metadata={"flag": "queue-size", "help": "When the queue is full: 429; there 408."},
    )
    queue_timeout_secs: float = field(
        default=60,
        metadata={"flag": "queue-timeout-secs", "help": "When the wait is over: 503; there 408."},
    )
    rate_limit_tokens_per_second: str = field(
        default=0,
        metadata={"flag": "rate-limit-tokens-per-second", "help": "A limit of its own; there the rate at which --max-concurrent-requests is refilled. So many requests are admitted at once here too."},
    )
    retry_max_retries: int = field(
        default=5,
        metadata={"flag": "retry-max-retries", "always": True, "help": "Other workers to try when one fails before the first byte of its answer."},
    )
    retry_initial_backoff_ms: int = field(
        default=50,
        metadata={"flag": "retry-initial-backoff-ms", "always": True, "help": "Wait before a worker that failed is tried again. Another worker is tried at once."},
    )
    retry_max_backoff_ms: int = field(
        default=30000,
        metadata={"flag": "retry-max-backoff-ms", "always": True, "help": "The longest such wait."},
    )
    retry_backoff_multiplier: float = field(
        default=1.5,
        metadata={"flag": "retry-backoff-multiplier", "always": True, "help": "How much longer each wait is than the one before."},
    )
    retry_jitter_factor: float = field(
        default=0.2,
        metadata={"flag": "retry-jitter-factor", "always": True, "help": "By how much of itself a wait is made longer or shorter at random."},
    )
    disable_retries: bool = field(
        default=False,
        metadata={"flag": "disable-retries", "help": "Never try another worker."},
    )
    cb_failure_threshold: int = field(
        default=10,
        metadata={"flag": "cb-failure-threshold", "always": True, "help": "Answers of 4xx are no failures; half-open, one request at a time tries."},
    )
    cb_success_threshold: int = field(
        default=3,
        metadata={"flag": "cb-success-threshold", "always": True, "help": "Successes in a row that bring it back."},
    )
    cb_timeout_duration_secs: float = field(
        default=60,
        metadata={"flag": "cb-timeout-duration-secs", "always": True, "help": "After so long one request at a time tries whether it works again."},
    )
    cb_window_duration_secs: float = field(
        default=120,
        metadata={"flag": "cb-window-duration-secs", "always": True, "help": "It is kept to; there it is not used."},
    )
    disable_circuit_breaker: bool = field(
        default=False,
        metadata={"flag": "disable-circuit-breaker", "help": "Never take a worker out for failed requests."},
    )
    health_failure_threshold: int = field(
        default=3,
        metadata={"flag": "health-failure-threshold", "help": "Failed checks in a row that put a worker into quarantine."},
    )
    health_success_threshold: int = field(
        default=2,
        metadata={"flag": "health-success-threshold", "help": "Good checks in a row that let it out again."},
    )
    health_check_timeout_secs: float = field(
        default=5,
        metadata={"flag": "health-check-timeout-secs", "help": "How long an answer may take; SGLang needs more than 1 s, as its /health generates a token."},
    )
    health_check_interval_secs: float = field(
        default=60,
        metadata={"flag": "health-check-interval-secs", "help": "A worker in doubt is asked every second."},
    )
    health_check_endpoint: str = field(
        default="/health",
        metadata={"flag": "health-check-endpoint", "help": "Path to ask."},
    )
    disable_health_check: bool = field(
        default=False,
        metadata={"flag": "disable-health-check", "help": "Take every worker for healthy."},
    )
    model_path: Optional[str] = field(
        default=None,
        metadata={"flag": "model-path", "help": "prompts are not tokenised here; /v1/tokenize goes to an engine."},
    )
    tokenizer_path: Optional[str] = field(
        default=None,
        metadata={"flag": "tokenizer-path", "help": "a tokenizer.json or its folder, for the plugins radix-tree and chat-sessions; nothing else reads it."},
    )
    chat_template: Optional[str] = field(
        default=None,
        metadata={"flag": "chat-template", "help": "prompts are not tokenised here; /v1/tokenize goes to an engine."},
    )
    tokenizer_cache_enable_l0: bool = field(
        default=False,
        metadata={"flag": "tokenizer-cache-enable-l0", "help": "prompts are not tokenised here; /v1/tokenize goes to an engine."},
    )
    tokenizer_cache_l0_max_entries: Optional[str] = field(
        default=None,
        metadata={"flag": "tokenizer-cache-l0-max-entries", "help": "prompts are not tokenised here; /v1/tokenize goes to an engine."},
    )
    tokenizer_cache_enable_l1: bool = field(
        default=False,
        metadata={"flag": "tokenizer-cache-enable-l1", "help": "prompts are not tokenised here; /v1/tokenize goes to an engine."},
    )
    tokenizer_cache_l1_max_memory: Optional[str] = field(
        default=None,
        metadata={"flag": "tokenizer-cache-l1-max-memory", "help": "prompts are not tokenised here; /v1/tokenize goes to an engine."},
    )
    reasoning_parser: Optional[str] = field(
        default=None,
        metadata={"flag": "reasoning-parser", "help": "engines parse what they say: give it to them."},
    )
    tool_call_parser: Optional[str] = field(
        default=None,
        metadata={"flag": "tool-call-parser", "help": "engines parse what they say: give it to them."},
    )
    mcp_config_path: Optional[str] = field(
        default=None,
        metadata={"flag": "mcp-config-path", "help": "tools are called by the engines: give it to them."},
    )
    backend: str = field(
        default="sglang",
        metadata={"flag": "backend", "help": "what an engine is, it is asked; any OpenAI server is routed to."},
    )
    history_backend: str = field(
        default="memory",
        metadata={"flag": "history-backend", "help": "responses and conversations are kept by the engines."},
    )
    oracle_wallet_path: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-wallet-path", "help": "responses and conversations are kept by the engines."},
    )
    oracle_tns_alias: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-tns-alias", "help": "responses and conversations are kept by the engines."},
    )
    oracle_connect_descriptor: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-connect-descriptor", "help": "responses and conversations are kept by the engines."},
    )
    oracle_username: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-username", "help": "responses and conversations are kept by the engines."},
    )
    oracle_password: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-password", "help": "responses and conversations are kept by the engines."},
    )
    oracle_pool_min: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-pool-min", "help": "responses and conversations are kept by the engines."},
    )
    oracle_pool_max: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-pool-max", "help": "responses and conversations are kept by the engines."},
    )
    oracle_pool_timeout_secs: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-pool-timeout-secs", "help": "responses and conversations are kept by the engines."},
    )
    postgres_db_url: Optional[str] = field(
        default=None,
        metadata={"flag": "postgres-db-url", "help": "responses and conversations are kept by the engines."},
    )
    postgres_pool_max: Optional[str] = field(
        default=None,
        metadata={"flag": "postgres-pool-max", "help": "responses and conversations are kept by the engines."},
    )
    redis_url: Optional[str] = field(
        default=None,
        metadata={"flag": "redis-url", "help": "responses and conversations are kept by the engines."},
    )
    redis_pool_max: Optional[str] = field(
        default=None,
        metadata={"flag": "redis-pool-max", "help": "responses and conversations are kept by the engines."},
    )
    redis_retention_days: Optional[str] = field(
        default=None,
        metadata={"flag": "redis-retention-days", "help": "responses and conversations are kept by the engines."},
    )
    client_cert_path: Optional[str] = field(
        default=None,
        metadata={"flag": "client-cert-path", "help": "Certificate (PEM) that https workers are shown."},
    )
    client_key_path: Optional[str] = field(
        default=None,
        metadata={"flag": "client-key-path", "help": "Its private key (PEM)."},
    )
    ca_cert_paths: List[str] = field(
        default_factory=list,
        metadata={"flag": "ca-cert-paths", "help": "One file, which may hold several authorities."},
    )
    server_cert_path: Optional[str] = field(
        default=None,
        metadata={"flag": "tls-cert-path", "help": "Certificate (PEM) of this server; read again on SIGHUP."},
    )
    server_key_path: Optional[str] = field(
        default=None,
        metadata={"flag": "tls-key-path", "help": "Its private key (PEM)."},
    )
    enable_trace: bool = field(
        default=False,
        metadata={"flag": "enable-trace", "help": "no spans are sent; traceparent passes through to the engines."},
    )
    otlp_traces_endpoint: Optional[str] = field(
        default=None,
        metadata={"flag": "otlp-traces-endpoint", "help": "no spans are sent."},
    )
    api_key: Optional[str] = field(
        default=None,
        metadata={"flag": "api-key", "env": "TURNOUT_API_KEY", "help": "Guards the router and is sent to the engines, once; there twice."},
    )
    control_plane_api_keys: List[Tuple[str, str, str, str]] = field(
        default_factory=list,
        metadata={"flag": "control-plane-api-keys", "help": "Keys of the role \"admin\" only; ids and names are not used."},
    )
    control_plane_audit_enabled: bool = field(
        default=False,
        metadata={"flag": "control-plane-audit-enabled", "help": "use --access-log and --log-dir for a line per request."},
    )
    jwt_issuer: Optional[str] = field(
        default=None,
        metadata={"flag": "jwt-issuer", "help": "who may do what is told by keys only (--admin-api-key); without this check anybody could."},
    )
    jwt_audience: Optional[str] = field(
        default=None,
        metadata={"flag": "jwt-audience", "help": "who may do what is told by keys only (--admin-api-key); without this check anybody could."},
    )
    jwt_jwks_uri: Optional[str] = field(
        default=None,
        metadata={"flag": "jwt-jwks-uri", "help": "who may do what is told by keys only (--admin-api-key); without this check anybody could."},
    )
    jwt_role_mapping: Dict[str, str] = field(
        default_factory=dict,
        metadata={"flag": "jwt-role-mapping", "help": "who may do what is told by keys only (--admin-api-key); without this check anybody could."},
    )
