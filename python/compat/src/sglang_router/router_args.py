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
        metadata={"flag": "worker-urls", "help": "Engines to route to, as http://host:port, separated by spaces or commas. http://host:port@2 is data-parallel rank 2 of an engine, @4-7 are ranks 4 to 7. Engines can also be added at run time."},
    )
    policy: str = field(
        default="cache_aware",
        metadata={"flag": "policy", "help": "Load balancing policy: rollout, least_inflight, round_robin, random, power_of_two, consistent_hash, sticky_least_loaded, manual, cache_aware, prefix_hash, bucket, kv_aware, or the path of your own module."},
    )
    cache_threshold: float = field(
        default=0.3,
        metadata={"flag": "cache-threshold", "always": True, "help": "cache_aware: share of a prompt that a worker must have in its cache to be preferred."},
    )
    balance_abs_threshold: int = field(
        default=64,
        metadata={"flag": "balance-abs-threshold", "always": True, "help": "cache_aware, bucket: route to the least loaded worker when the most loaded one has more than this many requests more, and also more than --balance-rel-threshold times as many."},
    )
    balance_rel_threshold: float = field(
        default=1.5,
        metadata={"flag": "balance-rel-threshold", "always": True, "help": "cache_aware, bucket: see --balance-abs-threshold. Both thresholds must be exceeded."},
    )
    bucket_adjust_interval_secs: float = field(
        default=5,
        metadata={"flag": "bucket-adjust-interval-secs", "help": "bucket: how often the boundaries of the prompt-length buckets are recomputed."},
    )
    eviction_interval_secs: Optional[str] = field(
        default=None,
        metadata={"flag": "eviction-interval-secs", "help": "what is remembered of prompts is kept within --max-tree-size at every request."},
    )
    max_tree_size: int = field(
        default=67108864,
        metadata={"flag": "max-tree-size", "always": True, "help": "Characters of prompts of all workers together, rounded to blocks of 64. In sglang-router the limit is per worker."},
    )
    max_idle_secs: float = field(
        default=14400,
        metadata={"flag": "max-idle-secs", "help": "manual: a key without a request for this long is forgotten."},
    )
    assignment_mode: str = field(
        default="random",
        metadata={"flag": "assignment-mode", "help": "manual: how a new key gets its worker: random, min_load (fewest requests in flight) or min_group (fewest keys)."},
    )
    max_payload_size: int = field(
        default=536870912,
        metadata={"flag": "max-payload-size", "always": True, "help": "Maximum size of a request body; larger ones get 413."},
    )
    dp_aware: bool = field(
        default=False,
        metadata={"flag": "dp-aware", "help": "Ask each engine for its number of data-parallel ranks and make each rank a worker, for engines whose URL names no rank."},
    )
    enable_igw: bool = field(
        default=False,
        metadata={"flag": "enable-igw", "help": "where workers have several models, requests go by model in any case."},
    )
    pd_disaggregation: bool = field(
        default=False,
        metadata={"flag": "pd-disaggregation", "help": "Serve every request with a pair of SGLang engines: a prefill engine and a decode engine (--disaggregation-mode)."},
    )
    prefill_policy: Optional[str] = field(
        default=None,
        metadata={"flag": "prefill-policy", "help": "Policy for the prefill engine of a pair. Default: --policy."},
    )
    decode_policy: Optional[str] = field(
        default=None,
        metadata={"flag": "decode-policy", "help": "Policy for the decode engine of a pair. Default: --policy."},
    )
    prefill_urls: List[Tuple[str, Optional[int]]] = field(
        default_factory=list,
        metadata={"flag": "prefill", "help": "Prefill engines. Each URL may be followed by its bootstrap port or the word none: --prefill http://a:30000 8998 http://b:30000."},
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
        metadata={"flag": "worker-startup-timeout-secs", "always": True, "help": "The router starts immediately; a worker that does not answer is reported as failed after this time."},
    )
    worker_startup_check_interval: float = field(
        default=30,
        metadata={"flag": "worker-startup-check-interval", "always": True, "help": "The longest pause: a new worker is asked every second at first."},
    )
    service_discovery: bool = field(
        default=False,
        metadata={"flag": "service-discovery", "help": "Discover engines among Kubernetes pods that match --selector: pods join when they are ready and drain when they are deleted."},
    )
    selector: Dict[str, str] = field(
        default_factory=dict,
        metadata={"flag": "selector", "help": "Labels of the pods that are workers; a pod must have all of them. Also key!=value, \"key in (a,b)\" and \"key notin (a,b)\"."},
    )
    service_discovery_port: int = field(
        default=80,
        metadata={"flag": "service-discovery-port", "help": "Port of the engines in these pods."},
    )
    service_discovery_namespace: Optional[str] = field(
        default=None,
        metadata={"flag": "service-discovery-namespace", "help": "Without it pods of the router's own namespace are found, there of all; * finds all here."},
    )
    prefill_selector: Dict[str, str] = field(
        default_factory=dict,
        metadata={"flag": "prefill-selector", "help": "Labels of the pods that are prefill engines, in place of --selector."},
    )
    decode_selector: Dict[str, str] = field(
        default_factory=dict,
        metadata={"flag": "decode-selector", "help": "Labels of the pods that are decode engines. A pod that matches both selectors gets the role of the more specific one."},
    )
    bootstrap_port_annotation: str = field(
        default="sglang.ai/bootstrap-port",
        metadata={"flag": "bootstrap-port-annotation", "help": "Pod annotation that holds the bootstrap port of a prefill engine."},
    )
    log_dir: Optional[str] = field(
        default=None,
        metadata={"flag": "log-dir", "help": "Also write the log to files in this folder."},
    )
    log_level: str = field(
        default="info",
        metadata={"flag": "log-level", "help": "debug, info, warning, error or critical."},
    )
    prometheus_port: int = field(
        default=29000,
        metadata={"flag": "prometheus-port", "help": "Port of GET /metrics, /liveness and /readiness, which the main port serves, too; 0 picks a free one."},
    )
    prometheus_host: str = field(
        default="127.0.0.1",
        metadata={"flag": "prometheus-host", "help": "Address of --prometheus-port."},
    )
    prometheus_duration_buckets: List[str] = field(
        default_factory=list,
        metadata={"flag": "prometheus-duration-buckets", "help": "the buckets of turnout_request_duration_seconds are fixed."},
    )
    request_id_headers: List[str] = field(
        default_factory=list,
        metadata={"flag": "request-id-headers", "help": "Headers that carry the request id, highest priority first; x-request-id is always one of them."},
    )
    request_timeout_secs: float = field(
        default=1800,
        metadata={"flag": "request-timeout-secs", "always": True, "help": "Maximum time from request to the end of its response. 0: no limit."},
    )
    shutdown_grace_period_secs: float = field(
        default=180,
        metadata={"flag": "shutdown-grace-period-secs", "help": "After SIGTERM: how long requests in flight may take to finish before they are truncated."},
    )
    cors_allowed_origins: List[str] = field(
        default_factory=list,
        metadata={"flag": "cors-allowed-origins", "help": "Origins that may call the router from a browser: https://host, or *."},
    )
    max_concurrent_requests: int = field(
        default=-1,
        metadata={"flag": "max-concurrent-requests", "always": True, "help": "Limits the requests in flight; that router limits requests per second. Unset: no limit."},
    )
    queue_size: int = field(
        default=100,
        metadata={"flag": "queue-size", "help": "When the queue is full: 429; there 408."},
    )
    queue_timeout_secs: float = field(
        default=60,
        metadata={"flag": "queue-timeout-secs", "help": "When the wait is over: 503; there 408."},
    )
    rate_limit_tokens_per_second: float = field(
        default=0,
        metadata={"flag": "rate-limit-tokens-per-second", "help": "A limit of its own; there the rate at which --max-concurrent-requests is refilled. So many requests are admitted at once here too."},
    )
    retry_max_retries: int = field(
        default=5,
        metadata={"flag": "retry-max-retries", "always": True, "help": "Maximum retries on other workers when one fails before the first byte of its response."},
    )
    retry_initial_backoff_ms: int = field(
        default=50,
        metadata={"flag": "retry-initial-backoff-ms", "always": True, "help": "Backoff before the same worker is retried. Another worker is tried immediately."},
    )
    retry_max_backoff_ms: int = field(
        default=30000,
        metadata={"flag": "retry-max-backoff-ms", "always": True, "help": "Maximum backoff."},
    )
    retry_backoff_multiplier: float = field(
        default=1.5,
        metadata={"flag": "retry-backoff-multiplier", "always": True, "help": "Factor by which the backoff grows with each retry."},
    )
    retry_jitter_factor: float = field(
        default=0.2,
        metadata={"flag": "retry-jitter-factor", "always": True, "help": "Backoff jitter, as a fraction of the delay (±)."},
    )
    disable_retries: bool = field(
        default=False,
        metadata={"flag": "disable-retries", "help": "Never retry on another worker."},
    )
    cb_failure_threshold: int = field(
        default=10,
        metadata={"flag": "cb-failure-threshold", "always": True, "help": "A 4xx response is not a failure. A half-open breaker allows one request at a time."},
    )
    cb_success_threshold: int = field(
        default=3,
        metadata={"flag": "cb-success-threshold", "always": True, "help": "Consecutive successes that close it again."},
    )
    cb_timeout_duration_secs: float = field(
        default=60,
        metadata={"flag": "cb-timeout-duration-secs", "always": True, "help": "Seconds the breaker stays open before trial requests are allowed, one at a time."},
    )
    cb_window_duration_secs: float = field(
        default=120,
        metadata={"flag": "cb-window-duration-secs", "always": True, "help": "turnout applies this window; sglang-router and vllm-router ignore it."},
    )
    disable_circuit_breaker: bool = field(
        default=False,
        metadata={"flag": "disable-circuit-breaker", "help": "Never eject a worker because of failed requests."},
    )
    health_failure_threshold: int = field(
        default=3,
        metadata={"flag": "health-failure-threshold", "help": "Consecutive failed checks that eject a worker."},
    )
    health_success_threshold: int = field(
        default=2,
        metadata={"flag": "health-success-threshold", "help": "Consecutive good checks that readmit it."},
    )
    health_check_timeout_secs: float = field(
        default=5,
        metadata={"flag": "health-check-timeout-secs", "help": "Timeout of a health check. SGLang needs more than 1 s, because its /health generates a token."},
    )
    health_check_interval_secs: float = field(
        default=60,
        metadata={"flag": "health-check-interval-secs", "help": "A worker in doubt is asked every second."},
    )
    health_check_endpoint: str = field(
        default="/health",
        metadata={"flag": "health-check-endpoint", "help": "Path of the health check."},
    )
    disable_health_check: bool = field(
        default=False,
        metadata={"flag": "disable-health-check", "help": "Treat every worker as healthy."},
    )
    model_path: Optional[str] = field(
        default=None,
        metadata={"flag": "model-path", "help": "the router does not tokenise prompts; /v1/tokenize goes to an engine."},
    )
    tokenizer_path: Optional[str] = field(
        default=None,
        metadata={"flag": "tokenizer-path", "help": "a tokenizer.json or its folder, for the plugins radix-tree and chat-sessions; nothing else reads it."},
    )
    chat_template: Optional[str] = field(
        default=None,
        metadata={"flag": "chat-template", "help": "the router does not tokenise prompts; /v1/tokenize goes to an engine."},
    )
    tokenizer_cache_enable_l0: bool = field(
        default=False,
        metadata={"flag": "tokenizer-cache-enable-l0", "help": "the router does not tokenise prompts; /v1/tokenize goes to an engine."},
    )
    tokenizer_cache_l0_max_entries: Optional[str] = field(
        default=None,
        metadata={"flag": "tokenizer-cache-l0-max-entries", "help": "the router does not tokenise prompts; /v1/tokenize goes to an engine."},
    )
    tokenizer_cache_enable_l1: bool = field(
        default=False,
        metadata={"flag": "tokenizer-cache-enable-l1", "help": "the router does not tokenise prompts; /v1/tokenize goes to an engine."},
    )
    tokenizer_cache_l1_max_memory: Optional[str] = field(
        default=None,
        metadata={"flag": "tokenizer-cache-l1-max-memory", "help": "the router does not tokenise prompts; /v1/tokenize goes to an engine."},
    )
    reasoning_parser: Optional[str] = field(
        default=None,
        metadata={"flag": "reasoning-parser", "help": "engines parse their output: give the flag to the engines."},
    )
    tool_call_parser: Optional[str] = field(
        default=None,
        metadata={"flag": "tool-call-parser", "help": "engines parse their output: give the flag to the engines."},
    )
    mcp_config_path: Optional[str] = field(
        default=None,
        metadata={"flag": "mcp-config-path", "help": "engines call tools: give the flag to the engines."},
    )
    backend: str = field(
        default="sglang",
        metadata={"flag": "backend", "help": "the router detects the kind of each engine; any OpenAI server works."},
    )
    history_backend: str = field(
        default="memory",
        metadata={"flag": "history-backend", "help": "engines store responses and conversations."},
    )
    oracle_wallet_path: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-wallet-path", "help": "engines store responses and conversations."},
    )
    oracle_tns_alias: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-tns-alias", "help": "engines store responses and conversations."},
    )
    oracle_connect_descriptor: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-connect-descriptor", "help": "engines store responses and conversations."},
    )
    oracle_username: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-username", "help": "engines store responses and conversations."},
    )
    oracle_password: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-password", "help": "engines store responses and conversations."},
    )
    oracle_pool_min: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-pool-min", "help": "engines store responses and conversations."},
    )
    oracle_pool_max: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-pool-max", "help": "engines store responses and conversations."},
    )
    oracle_pool_timeout_secs: Optional[str] = field(
        default=None,
        metadata={"flag": "oracle-pool-timeout-secs", "help": "engines store responses and conversations."},
    )
    postgres_db_url: Optional[str] = field(
        default=None,
        metadata={"flag": "postgres-db-url", "help": "engines store responses and conversations."},
    )
    postgres_pool_max: Optional[str] = field(
        default=None,
        metadata={"flag": "postgres-pool-max", "help": "engines store responses and conversations."},
    )
    redis_url: Optional[str] = field(
        default=None,
        metadata={"flag": "redis-url", "help": "engines store responses and conversations."},
    )
    redis_pool_max: Optional[str] = field(
        default=None,
        metadata={"flag": "redis-pool-max", "help": "engines store responses and conversations."},
    )
    redis_retention_days: Optional[str] = field(
        default=None,
        metadata={"flag": "redis-retention-days", "help": "engines store responses and conversations."},
    )
    client_cert_path: Optional[str] = field(
        default=None,
        metadata={"flag": "client-cert-path", "help": "Client certificate (PEM) for https workers; read again on SIGHUP."},
    )
    client_key_path: Optional[str] = field(
        default=None,
        metadata={"flag": "client-key-path", "help": "Private key (PEM) of --client-cert-path."},
    )
    ca_cert_paths: List[str] = field(
        default_factory=list,
        metadata={"flag": "ca-cert-paths", "help": "One file, which may contain several authorities."},
    )
    server_cert_path: Optional[str] = field(
        default=None,
        metadata={"flag": "tls-cert-path", "help": "TLS certificate (PEM) of this server; read again on SIGHUP."},
    )
    server_key_path: Optional[str] = field(
        default=None,
        metadata={"flag": "tls-key-path", "help": "Private key (PEM) of --tls-cert-path."},
    )
    enable_trace: bool = field(
        default=False,
        metadata={"flag": "enable-trace", "help": "Spans are sent by OTLP over HTTP, there by gRPC: host:4317 becomes http://host:4318."},
    )
    otlp_traces_endpoint: Optional[str] = field(
        default=None,
        metadata={"flag": "otlp-traces-endpoint", "help": "With --enable-trace only. Spans are sent by OTLP over HTTP, there by gRPC: host:4317 becomes http://host:4318."},
    )
    api_key: Optional[str] = field(
        default=None,
        metadata={"flag": "api-key", "env": "TURNOUT_API_KEY", "env_is_list": True, "help": "Protects the router and is sent to the engines once; sglang-router sends it twice."},
    )
    control_plane_api_keys: List[Tuple[str, str, str, str]] = field(
        default_factory=list,
        metadata={"flag": "control-plane-api-keys", "env": "TURNOUT_ADMIN_API_KEY", "env_is_list": True, "help": "Keys of the role \"admin\" only; ids and names are not used."},
    )
    control_plane_audit_enabled: bool = field(
        default=False,
        metadata={"flag": "control-plane-audit-enabled", "help": "use --access-log and --log-dir for a line per request."},
    )
    jwt_issuer: Optional[str] = field(
        default=None,
        metadata={"flag": "jwt-issuer", "help": "access is controlled by keys only (--admin-api-key); without this check every client would have access."},
    )
    jwt_audience: Optional[str] = field(
        default=None,
        metadata={"flag": "jwt-audience", "help": "access is controlled by keys only (--admin-api-key); without this check every client would have access."},
    )
    jwt_jwks_uri: Optional[str] = field(
        default=None,
        metadata={"flag": "jwt-jwks-uri", "help": "access is controlled by keys only (--admin-api-key); without this check every client would have access."},
    )
    jwt_role_mapping: Dict[str, str] = field(
        default_factory=dict,
        metadata={"flag": "jwt-role-mapping", "help": "access is controlled by keys only (--admin-api-key); without this check every client would have access."},
    )
