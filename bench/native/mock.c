// A mock inference engine: answers at once, or paced, with as little CPU as can be, so that what a benchmark measures is
// the router in front of it. Linux only (epoll). One mode per process, since routers drop unknown headers and fields.
//   mock --port P --mode json|sse|paced [--answer-bytes N] [--event-bytes N] [--interval-ms N] [--engine C]
//        [--token-bytes N] [--tick-ms N] [--metrics 1]
// json: one answer of N bytes, or of as many MiB as the prompt says. sse: all events at once, each its own HTTP chunk.
// paced: one event per interval, with the time when it was sent (`created`); the engine looks at every tick which are due: with a tick
// as long as the interval it sends them all at once. What the prompt says is its `n` (content.h): the number of events, or of MiB.
// --engine is the character by which answers name their engine; --token-bytes says how many bytes of a prompt make one id of
// the answer to vLLM's render call. --metrics answers GET /metrics as an idle vLLM does. The port is printed on stdout; 0 picks a free one.
#define _GNU_SOURCE
#include "content.h"
#include "http1.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum mode { MODE_JSON, MODE_SSE, MODE_PACED };
enum { LEAD_MAX = 2048, READ_MAX = 256 * 1024, IOV_MAX_USED = 64 };

struct conn {
  int fd;
  int wants_write;
  struct http in;
  // What the prompt said. The lead is kept until the key was found in it, whatever reads it comes in.
  char lead[LEAD_MAX];
  size_t lead_len;
  int has_key, is_prompt_over, is_render, is_chat;
  uint64_t id, prompt_bytes;
  uint32_t wanted; // events, or MiB
  char *prompt; // kept for render only
  // What is still to be sent: buffered bytes, then the rest of a JSON answer, generated as it goes.
  char *pending;
  size_t pending_len, pending_off, pending_cap;
  uint64_t body_off, body_len;
  uint32_t events_sent;
  uint64_t due_ms;
  int paced_slot; // in `paced`, -1 when no stream is open
};

static enum mode mode = MODE_JSON;
static uint64_t interval_ms = 10, tick_ms = 10, answer_bytes;
static size_t token_bytes = 4;
static char engine = '0';
static int poller, has_metrics;
static struct conn **paced;
static int paced_count, paced_cap;
static char shared[READ_MAX];
static char event_frame[20]; // the chunk-size line of every event
static size_t event_frame_len;

static uint64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void paced_remove(struct conn *c) {
  if (c->paced_slot < 0) return;
  struct conn *last = paced[--paced_count];
  paced[c->paced_slot] = last;
  last->paced_slot = c->paced_slot;
  c->paced_slot = -1;
}

static void conn_close(struct conn *c) {
  paced_remove(c);
  close(c->fd);
  free(c->pending);
  free(c->prompt);
  free(c);
}

static void pend(struct conn *c, const char *bytes, size_t n) {
  if (c->pending_len + n > c->pending_cap) {
    c->pending_cap = (c->pending_len + n) * 2;
    c->pending = realloc(c->pending, c->pending_cap);
    if (!c->pending) die("realloc");
  }
  memcpy(c->pending + c->pending_len, bytes, n);
  c->pending_len += n;
}

static void watch(struct conn *c, int wants_write) {
  if (c->wants_write == wants_write) return;
  c->wants_write = wants_write;
  struct epoll_event e = {.events = wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e);
}

// Sends what there is to send. -1: the connection broke.
static int flush(struct conn *c) {
  struct shape *body = c->is_chat ? &answer_chat : &answer_text;
  while (c->pending_len > c->pending_off || c->body_off < c->body_len) {
    struct iovec v[IOV_MAX_USED];
    int count = 0;
    uint64_t at = c->body_off;
    size_t buffered = c->pending_len - c->pending_off;
    if (buffered) v[count++] = (struct iovec){c->pending + c->pending_off, buffered};
    shape_key(body, c->id, c->prompt_bytes, engine);
    body->size = c->body_len;
    while (at < c->body_len && count < IOV_MAX_USED) {
      size_t avail;
      const char *p = shape_at(body, 0, at, &avail);
      v[count++] = (struct iovec){(char *)p, avail};
      at += avail;
    }
    ssize_t sent = writev(c->fd, v, count);
    if (sent < 0) {
      if (errno != EAGAIN) return -1;
      watch(c, 1);
      return 0;
    }
    size_t of_buffer = (size_t)sent < buffered ? (size_t)sent : buffered;
    c->pending_off += of_buffer;
    c->body_off += (uint64_t)sent - of_buffer;
  }
  c->pending_len = c->pending_off = 0;
  watch(c, 0);
  return 0;
}

static void pend_head(struct conn *c, const char *type, long long length) {
  char head[160];
  int n = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\n", type);
  n += length < 0 ? snprintf(head + n, sizeof head - (size_t)n, "transfer-encoding: chunked\r\n\r\n")
                  : snprintf(head + n, sizeof head - (size_t)n, "content-length: %lld\r\n\r\n", length);
  pend(c, head, (size_t)n);
}

static void pend_event(struct conn *c) {
  size_t left = answer_event.size, off = 0;
  pend(c, event_frame, event_frame_len);
  shape_key(&answer_event, c->id, c->prompt_bytes, engine);
  if (mode == MODE_PACED && answer_event.stamp_at)
    put_digits(answer_event.prefix + answer_event.stamp_at, STAMP_LEN, stamp_of(now_us()));
  while (off < left) {
    size_t avail;
    const char *p = shape_at(&answer_event, (uint64_t)c->events_sent * left, off, &avail);
    pend(c, p, avail);
    off += avail;
  }
  pend(c, "\r\n", 2);
  c->events_sent++;
}

static void pend_stream_end(struct conn *c) {
  pend(c, "e\r\n" DONE_EVENT "\r\n0\r\n\r\n", 3 + DONE_LEN + 7);
}

// One answer for every question about health, model or server: the routers each look for other fields in it.
static void answer_about(struct conn *c) {
  static const char about[] =
      "{\"status\":\"ok\",\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"owned_by\":\"vllm\"}],"
      "\"model_path\":\"mock\",\"model_id\":\"mock\",\"served_model_name\":\"mock\",\"is_generation\":true,"
      "\"version\":\"0.1.0\",\"dp_size\":1}";
  pend_head(c, "application/json", sizeof about - 1);
  pend(c, about, sizeof about - 1);
}

// What pickers read of vLLM.
static void answer_metrics(struct conn *c) {
  static const char metrics[] =
      "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"mock\"} 0\n"
      "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"mock\"} 0\n"
      "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name=\"mock\"} 0\n"
      "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10000\"} 1\n";
  pend_head(c, "text/plain; version=0.0.4", sizeof metrics - 1);
  pend(c, metrics, sizeof metrics - 1);
}

// vLLM's render call: the prompt's token ids, one for every few bytes, so equal prefixes give equal ids.
static void answer_render(struct conn *c) {
  int is_chat = c->is_chat;
  size_t tokens = (c->prompt_bytes + token_bytes - 1) / token_bytes, n = 0;
  char *out = malloc(tokens * 7 + 64);
  if (!out) die("malloc");
  n += (size_t)sprintf(out + n, "%s{\"request_id\":\"mock\",\"token_ids\":[%d", is_chat ? "" : "[", (int)(c->id % 30000));
  for (size_t i = 0; i < tokens; i++) {
    uint32_t word = 0;
    size_t left = (size_t)c->prompt_bytes - i * token_bytes;
    memcpy(&word, c->prompt + i * token_bytes, left < 4 ? left : 4);
    char digits[6] = {','};
    put_digits(digits + 1, 5, word % 20000 + 10000);
    memcpy(out + n, digits, 6);
    n += 6;
  }
  n += (size_t)sprintf(out + n, "]}%s", is_chat ? "" : "]");
  pend_head(c, "application/json", (long long)n);
  pend(c, out, n);
  free(out);
}

static void answer(struct conn *c) {
  int is_work = !strncmp(c->in.head, "POST ", 5) && (strstr(c->in.head, "completions") || strstr(c->in.head, "/generate"));
  if (!is_work) {
    if (has_metrics && !strncmp(c->in.head, "GET /metrics", 12)) answer_metrics(c);
    else answer_about(c);
  } else if (c->is_render) {
    answer_render(c);
  } else if (mode == MODE_JSON) {
    c->body_off = 0;
    c->body_len = c->wanted ? (uint64_t)c->wanted << 20 : answer_bytes;
    pend_head(c, "application/json", (long long)c->body_len);
  } else {
    pend_head(c, "text/event-stream", -1);
    c->events_sent = 0;
    if (mode == MODE_SSE || !c->wanted) {
      while (c->events_sent < c->wanted) pend_event(c);
      pend_stream_end(c);
    } else {
      if (paced_count == paced_cap) {
        paced_cap = paced_cap ? paced_cap * 2 : 256;
        paced = realloc(paced, (size_t)paced_cap * sizeof *paced);
        if (!paced) die("realloc");
      }
      c->paced_slot = paced_count;
      paced[paced_count++] = c;
      c->due_ms = now_ms() + interval_ms;
    }
  }
}

// Writes the next event of every stream that is due. A late sweep is not made up for: no bursts.
static void sweep(uint64_t now) {
  for (int i = paced_count - 1; i >= 0; i--) {
    struct conn *c = paced[i];
    if (c->due_ms > now) continue;
    c->due_ms += interval_ms;
    if (c->due_ms <= now) c->due_ms = now + interval_ms;
    pend_event(c);
    if (c->events_sent == c->wanted) {
      pend_stream_end(c);
      paced_remove(c);
    }
    if (flush(c)) conn_close(c);
  }
}

static void read_prompt(struct conn *c, const char *bytes, size_t n) {
  if (c->is_prompt_over) return;
  size_t same = pattern_match(c->prompt_bytes, bytes, n);
  if (c->is_render && same) {
    c->prompt = realloc(c->prompt, c->prompt_bytes + same);
    if (!c->prompt) die("realloc");
    memcpy(c->prompt + c->prompt_bytes, bytes, same);
  }
  c->prompt_bytes += same;
  c->is_prompt_over = same < n;
}

static void on_body(void *arg, const char *bytes, size_t n) {
  struct conn *c = arg;
  if (c->has_key) {
    read_prompt(c, bytes, n);
    return;
  }
  size_t take = n < LEAD_MAX - c->lead_len ? n : LEAD_MAX - c->lead_len;
  memcpy(c->lead + c->lead_len, bytes, take);
  c->lead_len += take;
  char *key = memmem(c->lead, c->lead_len, "\"id=", 4);
  if (!key || key + 1 + PROMPT_KEY_LEN > c->lead + c->lead_len) return;
  c->has_key = 1;
  size_t line_len = (size_t)(strchr(c->in.head, '\r') - c->in.head);
  c->is_render = memmem(c->in.head, line_len, "/render ", 8) != NULL;
  c->is_chat = memmem(c->in.head, line_len, "/chat/", 6) != NULL;
  c->id = read_digits(key + 4, 10);
  c->wanted = (uint32_t)read_digits(key + 17, 5);
  char *prompt = key + 1 + PROMPT_KEY_LEN;
  read_prompt(c, prompt, (size_t)(c->lead + c->lead_len - prompt));
  read_prompt(c, bytes + take, n - take);
}

static void next_request(struct conn *c) {
  http_reset(&c->in, 1);
  c->lead_len = 0;
  c->has_key = c->is_prompt_over = c->is_render = c->is_chat = 0;
  c->id = c->prompt_bytes = 0;
  c->wanted = 0;
}

static int on_readable(struct conn *c) {
  ssize_t n = read(c->fd, shared, sizeof shared);
  if (n < 0 && errno == EAGAIN) return 0;
  if (n <= 0) return -1;
  const char *p = shared;
  while (n) {
    if (c->in.state == HTTP_DONE) next_request(c);
    size_t used = http_feed(&c->in, p, (size_t)n, on_body, c);
    p += used;
    n -= (ssize_t)used;
    if (c->in.state == HTTP_BAD) return -1;
    if (c->in.state == HTTP_DONE) answer(c);
  }
  return flush(c);
}

static void accept_all(int listener) {
  int fd, on = 1;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct conn *c = calloc(1, sizeof *c);
    if (!c) die("calloc");
    c->fd = fd;
    c->paced_slot = -1;
    next_request(c);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
  }
}

static int listen_on(int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  socklen_t len = sizeof a;
  int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 4096)) die("listen");
  getsockname(fd, (struct sockaddr *)&a, &len);
  printf("%d\n", ntohs(a.sin_port));
  fflush(stdout);
  return fd;
}

int main(int argc, char **argv) {
  size_t json_bytes = 2048, event_bytes = 220;
  int port = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (!strcmp(name, "--port")) port = atoi(value);
    else if (!strcmp(name, "--mode")) mode = !strcmp(value, "sse") ? MODE_SSE : !strcmp(value, "paced") ? MODE_PACED : MODE_JSON;
    else if (!strcmp(name, "--answer-bytes")) json_bytes = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--event-bytes")) event_bytes = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--interval-ms")) interval_ms = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--tick-ms")) tick_ms = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--engine")) engine = *value;
    else if (!strcmp(name, "--metrics")) has_metrics = atoi(value);
    else if (!strcmp(name, "--token-bytes")) token_bytes = strtoull(value, NULL, 10);
    else return fprintf(stderr, "mock: unknown option %s\n", name), 2;
  }
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  signal(SIGPIPE, SIG_IGN);
  content_init(json_bytes, event_bytes);
  answer_bytes = json_bytes;
  event_frame_len = (size_t)snprintf(event_frame, sizeof event_frame, "%zx\r\n", answer_event.size);
  poller = epoll_create1(EPOLL_CLOEXEC);
  int listener = listen_on(port);
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
  epoll_ctl(poller, EPOLL_CTL_ADD, listener, &e);
  uint64_t next_sweep = now_ms();
  for (;;) {
    struct epoll_event ready[256];
    int wait = -1;
    if (paced_count) {
      uint64_t now = now_ms();
      wait = next_sweep > now ? (int)(next_sweep - now) : 0;
    }
    int count = epoll_wait(poller, ready, 256, wait);
    for (int i = 0; i < count; i++) {
      struct conn *c = ready[i].data.ptr;
      if (!c) {
        accept_all(listener);
        continue;
      }
      int broke = ready[i].events & EPOLLOUT ? flush(c) : 0;
      if (!broke && ready[i].events & ~(uint32_t)EPOLLOUT) broke = on_readable(c);
      if (broke) conn_close(c);
    }
    uint64_t now = now_ms();
    if (paced_count && now >= next_sweep) {
      sweep(now);
      next_sweep = now - now % tick_ms + tick_ms;
    }
  }
}
