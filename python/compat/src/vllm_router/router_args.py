"""The arguments of vllm-router. Generated from `router/src/config/alias/`."""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

from turnout_compat.args import PeerArgs


@dataclass
class RouterArgs(PeerArgs):
    """Arguments of vllm-router, as its own `RouterArgs` has them."""

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
    enable_program_scheduling: bool = field(
        default=False,
        metadata={"flag": "enable-program-scheduling", "help": "programs are not scheduled; the policies rollout and sticky_least_loaded keep sessions in place."},
    )
    program_scheduling_config_json: Optional[str] = field(
        default=None,
        metadata={"flag": "program-scheduling-config-json", "help": "programs are not scheduled; the policies rollout and sticky_least_loaded keep sessions in place."},
    )
    policy: str = field(
        default="cache_aware",
        metadata={"flag": "policy", "help": "Load balancing policy: rollout, least_inflight, round_robin, random, power_of_two, consistent_hash, sticky_least_loaded, manual, cache_aware, prefix_hash, bucket, kv_aware, or the path of your own module."},
    )
    router_temperature: str = field(
        default="0",
        metadata={"flag": "router-temperature", "help": "kv_aware has fixed weights."},
    )
    kv_penalty_host: Optional[str] = field(
        default=None,
        metadata={"flag": "kv-penalty-host", "help": "kv_aware has fixed weights."},
    )
    kv_penalty_external: Optional[str] = field(
        default=None,
        metadata={"flag": "kv-penalty-external", "help": "kv_aware has fixed weights."},
    )
    kv_penalty_disk: Optional[str] = field(
        default=None,
        metadata={"flag": "kv-penalty-disk", "help": "kv_aware has fixed weights."},
    )
    kv_aware_session_affinity_ttl_secs: Optional[str] = field(
        default=None,
        metadata={"flag": "kv-aware-session-affinity-ttl-secs", "help": "kv_aware uses caches only; sticky_least_loaded keeps sessions on workers."},
    )
    kv_event_source: List[str] = field(
        default_factory=list,
        metadata={"flag": "kv-event-source", "help": "One list here: worker=endpoint, then replay=endpoint. Workers that are not in the list use --kv-event-port."},
    )
    kv_event_replay_source: List[str] = field(
        default_factory=list,
        metadata={"flag": "kv-event-replay-source", "help": "One list here: worker=endpoint, then replay=endpoint. Workers that are not in the list use --kv-event-port."},
    )
    kv_event_block_size: Optional[str] = field(
        default=None,
        metadata={"flag": "kv-event-block-size", "help": "engines report it in their events."},
    )
    kv_event_model: Optional[str] = field(
        default=None,
        metadata={"flag": "kv-event-model", "help": "engines are asked which model they serve."},
    )
    pd_kv_events: List[str] = field(
        default_factory=list,
        metadata={"flag": "pd-kv-events", "help": "One list here: worker=endpoint, then replay=endpoint. Workers that are not in the list use --kv-event-port."},
    )
    vllm_pd_disaggregation: bool = field(
        default=False,
        metadata={"flag": "vllm-pd-disaggregation", "help": "Serve requests with pairs of vLLM engines: a prefill engine computes the KV cache of the prompt and transfers it to a decode engine (--kv-transfer-config)."},
    )
    mode: Optional[str] = field(
        default=None,
        metadata={"flag": "mode", "help": "pd is equivalent to --vllm-pd-disaggregation; regular is the default."},
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
    prefill_workers: List[str] = field(
        default_factory=list,
        metadata={"flag": "prefill-workers", "help": "The same as --prefill, with commas."},
    )
    decode_workers: List[str] = field(
        default_factory=list,
        metadata={"flag": "decode-workers", "help": "The same as --decode, with commas."},
    )
    vllm_discovery_address: Optional[str] = field(
        default=None,
        metadata={"flag": "vllm-discovery-address", "help": "registration over ZeroMQ is not supported, so there would be no workers."},
    )
    kv_connector: str = field(
        default="nixl",
        metadata={"flag": "kv-connector", "help": "The connector moriio is not supported."},
    )
    worker_startup_timeout_secs: float = field(
        default=600,
        metadata={"flag": "worker-startup-timeout-secs", "help": "The router starts and POST /add_worker answers immediately; a worker that does not answer is reported as failed after this time."},
    )
    worker_startup_check_interval: float = field(
        default=30,
        metadata={"flag": "worker-startup-check-interval", "help": "The longest pause: a new worker is asked every second at first."},
    )
    cache_threshold: float = field(
        default=0.5,
        metadata={"flag": "cache-threshold", "help": "cache_aware: share of a prompt that a worker must have in its cache to be preferred."},
    )
    balance_abs_threshold: int = field(
        default=32,
        metadata={"flag": "balance-abs-threshold", "help": "cache_aware, bucket: route to the least loaded worker when the most loaded one has more than this many requests more, and also more than --balance-rel-threshold times as many."},
    )
    balance_rel_threshold: float = field(
        default=1.1,
        metadata={"flag": "balance-rel-threshold", "help": "cache_aware, bucket: see --balance-abs-threshold. Both thresholds must be exceeded."},
    )
    eviction_interval_secs: Optional[str] = field(
        default=None,
        metadata={"flag": "eviction-interval-secs", "help": "what is remembered of prompts is kept within --max-tree-size at every request."},
    )
    max_tree_size: Optional[int] = field(
        default=None,
        metadata={"flag": "max-tree-size", "help": "Characters of prompts; here rounded to blocks of 64, of all workers together. The documented default of 10000 is in nodes of any size, so the default of turnout applies: 1048576 blocks."},
    )
    max_payload_size: int = field(
        default=536870912,
        metadata={"flag": "max-payload-size", "help": "Maximum size of a request body; larger ones get 413."},
    )
    wasm_middleware: Optional[str] = field(
        default=None,
        metadata={"flag": "wasm-middleware", "help": "WASM components are not run, and requests that this one rejects would be served."},
    )
    wasm_middleware_sha256: Optional[str] = field(
        default=None,
        metadata={"flag": "wasm-middleware-sha256", "help": "WASM components are not run, and requests that this one rejects would be served."},
    )
    wasm_middleware_routes: List[str] = field(
        default_factory=list,
        metadata={"flag": "wasm-middleware-route", "help": "WASM components are not run, and requests that this one rejects would be served."},
    )
    intra_node_data_parallel_size: int = field(
        default=1,
        metadata={"flag": "intra-node-data-parallel-size", "help": "Number of data-parallel ranks of every engine whose URL names no rank: each rank is a worker, numbered from 0. Engines are not asked."},
    )
    enable_igw: bool = field(
        default=False,
        metadata={"flag": "enable-igw", "help": "where workers have several models, requests go by model in any case."},
    )
    api_key: Optional[str] = field(
        default=None,
        metadata={"flag": "api-key", "env": "TURNOUT_WORKER_API_KEY", "help": "For the engines only, as in vllm-router: the router stays open. Protect it with --admin-api-key, or with api-key in --config."},
    )
    log_dir: Optional[str] = field(
        default=None,
        metadata={"flag": "log-dir", "help": "Also write the log to files in this folder."},
    )
    log_level: str = field(
        default="info",
        metadata={"flag": "log-level", "help": "debug, info, warning, error or critical."},
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
    prometheus_port: int = field(
        default=29000,
        metadata={"flag": "prometheus-port", "help": "Port of GET /metrics, /liveness and /readiness, which the main port serves, too; 0 picks a free one."},
    )
    prometheus_host: str = field(
        default="127.0.0.1",
        metadata={"flag": "prometheus-host", "help": "Address of --prometheus-port."},
    )
    request_id_headers: List[str] = field(
        default_factory=list,
        metadata={"flag": "request-id-headers", "help": "Headers that carry the request id, highest priority first; x-request-id is always one of them."},
    )
    request_timeout_secs: float = field(
        default=1800,
        metadata={"flag": "request-timeout-secs", "help": "Maximum time from request to the end of its response. 0: no limit."},
    )
    retry_max_retries: int = field(
        default=5,
        metadata={"flag": "retry-max-retries", "help": "Maximum retries on other workers when one fails before the first byte of its response."},
    )
    retry_initial_backoff_ms: int = field(
        default=50,
        metadata={"flag": "retry-initial-backoff-ms", "help": "Backoff before the same worker is retried. Another worker is tried immediately."},
    )
    retry_max_backoff_ms: int = field(
        default=30000,
        metadata={"flag": "retry-max-backoff-ms", "help": "Maximum backoff."},
    )
    retry_backoff_multiplier: float = field(
        default=1.5,
        metadata={"flag": "retry-backoff-multiplier", "help": "Factor by which the backoff grows with each retry."},
    )
    retry_jitter_factor: float = field(
        default=0.2,
        metadata={"flag": "retry-jitter-factor", "help": "Backoff jitter, as a fraction of the delay (±)."},
    )
    disable_retries: bool = field(
        default=False,
        metadata={"flag": "disable-retries", "help": "Never retry on another worker."},
    )
    cb_failure_threshold: int = field(
        default=10,
        metadata={"flag": "cb-failure-threshold", "help": "A 4xx response is not a failure. A half-open breaker allows one request at a time."},
    )
    cb_success_threshold: int = field(
        default=3,
        metadata={"flag": "cb-success-threshold", "help": "Consecutive successes that close it again."},
    )
    cb_timeout_duration_secs: float = field(
        default=60,
        metadata={"flag": "cb-timeout-duration-secs", "help": "Seconds the breaker stays open before trial requests are allowed, one at a time."},
    )
    cb_window_duration_secs: float = field(
        default=120,
        metadata={"flag": "cb-window-duration-secs", "help": "turnout applies this window; sglang-router and vllm-router ignore it."},
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
    max_concurrent_requests: int = field(
        default=0,
        metadata={"flag": "max-concurrent-requests", "help": "Limits the requests in flight; that router limits requests per second. Unset: no limit."},
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
    cors_allowed_origins: List[str] = field(
        default_factory=list,
        metadata={"flag": "cors-allowed-origins", "help": "Origins that may call the router from a browser: https://host, or *."},
    )

    @property
    def pd_disaggregation(self) -> bool:
        return self.vllm_pd_disaggregation
