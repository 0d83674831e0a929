import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { MergedMetrics } from './engine-metrics.ts';

const page = (value: number): string => `# HELP vllm:kv_cache_usage_perc KV cache usage. 1 means 100 percent.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} ${value}
# HELP vllm:ttft_seconds Time to first token.
# TYPE vllm:ttft_seconds histogram
vllm:ttft_seconds_bucket{le="0.1"} 1
vllm:ttft_seconds_bucket{le="+Inf"} 2
vllm:ttft_seconds_sum 0.5
vllm:ttft_seconds_count{} 2
# a comment
bare ${value} 1700000000
`;

test('the samples of each metric are together, with the URL of their engine', () => {
  const merged = new MergedMetrics();
  equal(merged.isEmpty, true);
  merged.add('http://a:1', page(0.25));
  merged.add('http://b:2', page(0.5));
  equal(
    merged.text(),
    `# HELP vllm:kv_cache_usage_perc KV cache usage. 1 means 100 percent.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{worker_addr="http://a:1",engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{worker_addr="http://b:2",engine="0",model_name="m"} 0.5

# HELP vllm:ttft_seconds Time to first token.
# TYPE vllm:ttft_seconds histogram
vllm:ttft_seconds_bucket{worker_addr="http://a:1",le="0.1"} 1
vllm:ttft_seconds_bucket{worker_addr="http://a:1",le="+Inf"} 2
vllm:ttft_seconds_sum{worker_addr="http://a:1"} 0.5
vllm:ttft_seconds_count{worker_addr="http://a:1"} 2
vllm:ttft_seconds_bucket{worker_addr="http://b:2",le="0.1"} 1
vllm:ttft_seconds_bucket{worker_addr="http://b:2",le="+Inf"} 2
vllm:ttft_seconds_sum{worker_addr="http://b:2"} 0.5
vllm:ttft_seconds_count{worker_addr="http://b:2"} 2

bare{worker_addr="http://a:1"} 0.25 1700000000
bare{worker_addr="http://b:2"} 0.5 1700000000
`,
  );
});

test('what is no sample is left out, and a metric is not taken for a part of one with a shorter name', () => {
  const merged = new MergedMetrics();
  merged.add(
    'http://a:1',
    `<html lang="en"><p>not 1 metric</p>
# TYPE a_total counter
a_total{l="x } y",} 1.5e3\r
a_total_more 2
b NaN # {trace_id="1"} 1
c +Inf
d{unfinished="1
`,
  );
  equal(
    merged.text(),
    `# TYPE a_total counter
a_total{worker_addr="http://a:1",l="x } y",} 1.5e3

a_total_more{worker_addr="http://a:1"} 2

b{worker_addr="http://a:1"} NaN

c{worker_addr="http://a:1"} +Inf
`,
  );
});

test('an exemplar is left out, also with labels; braces and signs within a label stay', () => {
  const merged = new MergedMetrics();
  merged.add('http://a:1', 'x_bucket{le="1",a="}# \\"{"} 5 # {trace_id="abc"} 0.5 1.7\ny 2 # {} 1\n');
  equal(merged.text(), 'x_bucket{worker_addr="http://a:1",le="1",a="}# \\"{"} 5\n\ny{worker_addr="http://a:1"} 2\n');
});
