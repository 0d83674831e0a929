// The load generator: a closed loop over keep-alive connections that checks every byte of every answer. Linux only.
//   load --port P [--connections C] [--seconds S] [--requests N] [--body-bytes B] [--path /v1/completions]
//        [--rate R] [--answer-bytes N | --answer-mib N | --events N --event-bytes N] [--first-id N] [--skip-ms N]
//        [--sessions N [--turns T] [--header "x-session-id: s%d"] [--last-turn-header "x-end: 1"]]
// With --rate an open loop: so many requests a second, whatever the answers do, and a latency counts from the time when a request was due.
// With --events the request asks for a stream of so many events. The ages of stamped events (`created`) are percentiles in the result,
// but for those of the first --skip-ms.
// A path with /chat/ in it gets messages, one with /generate a text, others a prompt.
//
// --sessions: requests come from so many sessions in turn; %d is the session's number. With --turns each of them ends after
// so many requests and another one takes its place. The prompt of a turn then begins with that of the turn before it: bodies
// grow from half of --body-bytes to one and a half times as much, in equal steps. Otherwise every prompt is unlike all others.
// Request numbers count up from --first-id, so that a later process can go on with new sessions.
//
// The result is one line of JSON on stdout. In it, `engines` is how many answers came from each engine, and `strays` how many
// from another one than the session's answer before.
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
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ENGINES = 10 };
enum { READ_MAX = 256 * 1024, IOV_MAX_USED = 64, MAX_ERRORS = 50, GRACE_S = 20, MAX_CONNECTING = 32 };
enum phase { CONNECTING, ASKING, PARKED, RESTING }; // parked: until a request is due

struct conn {
  int fd, wants_write;
  enum phase phase;
  struct http in;
  char open[1024]; // head, and body up to the pattern
  size_t open_len;
  uint64_t request_bytes, prompt_bytes, sent, started_us;
  uint64_t number_asked, id; // the request's number, and what its prompt is called
  char engine; // that answers
  uint64_t got; // bytes of the answer that were as they should be
  int is_wrong;
  uint64_t stamp; // as far as it was read
};

static struct sockaddr_in target = {.sin_family = AF_INET};
static const char *path = "/v1/completions", *header = "", *last_turn_header = "";
static struct conn *conns;
static int poller, connections = 32, opened, asking;
static uint64_t body_bytes = 2048, max_requests = UINT64_MAX, first_id, sessions, turns, stop_us = UINT64_MAX;
static uint32_t events, answer_mib; // no events: a JSON answer is expected
static char tail[64];
static size_t tail_len;
static uint64_t answer_bytes_wanted, rate, due_count, begin_us;
static struct conn **parked;
static int parked_count, timer = -1;
static struct shape *answer = &answer_text;
static const char *prompt_field; // what a body has before its prompt
static char *engine_of_session; // that answered last
static uint64_t strays, engines[ENGINES];
static uint64_t started, done, errors, reconnects, reads, bytes_in;
static char first_error[200];
static uint32_t *latencies_us;
static size_t latency_count, latency_cap;
enum { AGE_US = 10, AGES = 1 << 18 };
static uint32_t ages[AGES]; // of events when they came, in steps of 10 µs
static uint64_t age_count, count_from_us, skip_ms;
static int is_stamped;
static char shared[READ_MAX];

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void error(struct conn *c, const char *what) {
  errors++;
  if (first_error[0]) return;
  int n = snprintf(first_error, sizeof first_error, "%s; answer: %.90s", what, c->in.head_len ? c->in.head : "(none)");
  for (int i = 0; i < n && i < (int)sizeof first_error - 1; i++)
    if (first_error[i] < ' ' || first_error[i] == '"' || first_error[i] == '\\') first_error[i] = ' ';
}

static int may_ask(void) {
  return started < max_requests && errors < MAX_ERRORS && now_us() < stop_us;
}

static void watch(struct conn *c, int wants_write) {
  if (c->wants_write == wants_write) return;
  c->wants_write = wants_write;
  struct epoll_event e = {.events = wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e);
}

static void rest(struct conn *c) {
  if (c->phase != RESTING) asking--;
  c->phase = RESTING;
}

static void conn_open(struct conn *c) {
  int on = 1;
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (c->fd < 0) die("socket");
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (c->phase == RESTING) asking++;
  c->phase = CONNECTING;
  c->wants_write = 1;
  if (connect(c->fd, (struct sockaddr *)&target, sizeof target) && errno != EINPROGRESS) die("connect");
  struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &e);
}

// Opens the connections a few at a time: a burst of SYNs beyond a router's backlog would wait a second for a resend.
static void open_next(void) {
  if (opened < connections && may_ask()) conn_open(&conns[opened++]);
}

static void reopen(struct conn *c) {
  close(c->fd);
  if (may_ask()) conn_open(c);
  else rest(c);
}

// Writes what the socket takes. The prompt's pattern is not kept anywhere: it is sent from its one period again and again.
static int send_request(struct conn *c) {
  while (c->sent < c->request_bytes) {
    struct iovec v[IOV_MAX_USED];
    int count = 0;
    uint64_t at = c->sent, pattern_end = c->open_len + c->prompt_bytes;
    if (at < c->open_len) {
      v[count++] = (struct iovec){c->open + at, c->open_len - at};
      at = c->open_len;
    }
    while (at < pattern_end && count < IOV_MAX_USED - 1) {
      size_t avail = pattern_end - at;
      const char *p = pattern_at(at - c->open_len, &avail);
      v[count++] = (struct iovec){(char *)p, avail};
      at += avail;
    }
    if (at >= pattern_end) v[count++] = (struct iovec){tail + (at - pattern_end), tail_len - (at - pattern_end)};
    ssize_t n = writev(c->fd, v, count);
    if (n < 0 && errno == EAGAIN) return watch(c, 1), 0;
    if (n < 0) return -1;
    c->sent += (uint64_t)n;
  }
  watch(c, 0);
  return 0;
}

static uint64_t turn_of(uint64_t number) {
  return turns ? number / sessions % turns : 0;
}

static uint64_t session_of(uint64_t number) {
  return turns ? number / (sessions * turns) * sessions + number % sessions : number % sessions;
}

static size_t add_line(char *at, size_t room, const char *line, int number) {
  if (!*line) return 0;
  size_t n = (size_t)snprintf(at, room, line, number); // the format is the one of the command line
  return n + (size_t)snprintf(at + n, room > n ? room - n : 0, "\r\n");
}

// Lays out all of a request but the pattern and the tail.
static void lay_out(struct conn *c, uint64_t number) {
  char lines[300] = "", lead[200];
  uint64_t turn = turn_of(number), session = sessions ? session_of(number) : number;
  uint64_t bytes = turns > 1 ? body_bytes / 2 + body_bytes * turn / (turns - 1) : body_bytes;
  size_t n = add_line(lines, sizeof lines, header, (int)session);
  if (turns && turn == turns - 1) n += add_line(lines + n, sizeof lines - n, last_turn_header, (int)session);
  c->number_asked = number;
  c->id = turns ? session : number;
  size_t lead_len = (size_t)snprintf(lead, sizeof lead, "{\"model\":\"mock\",%s\"id=%010llu;n=%05u;",
      prompt_field,
      (unsigned long long)c->id, events ? events : answer_mib);
  c->open_len = (size_t)snprintf(c->open, sizeof c->open,
      "POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nuser-agent: bench\r\naccept: */*\r\ncontent-type: application/json\r\n"
      "%scontent-length: %llu\r\n\r\n%s",
      path, ntohs(target.sin_port), lines, (unsigned long long)bytes, lead);
  if (n >= sizeof lines || c->open_len >= sizeof c->open || lead_len + tail_len > bytes) die("a request does not fit");
  c->prompt_bytes = bytes - lead_len - tail_len;
  c->request_bytes = c->open_len + c->prompt_bytes + tail_len;
}

static int ask(struct conn *c) {
  uint64_t number = first_id + started++;
  c->sent = c->got = 0;
  c->is_wrong = 0;
  c->engine = '0';
  http_reset(&c->in, 0);
  if (sessions) {
    lay_out(c, number);
  } else { // all of a request but its number is the same each time
    c->number_asked = c->id = number;
    put_digits(c->open + c->open_len - PROMPT_KEY_LEN + 3, 10, number);
  }
  c->phase = ASKING;
  c->started_us = now_us();
  return send_request(c);
}

// The bytes that should come next, as far as they lie in one piece.
static const char *expected(struct conn *c, size_t *avail) {
  uint64_t stream_end = (uint64_t)events * answer_event.size;
  struct shape *s = answer;
  uint64_t text_at = events ? c->got - c->got % s->size : 0;
  if (events && c->got >= stream_end) {
    *avail = (size_t)(answer_bytes_wanted - c->got);
    return DONE_EVENT + (c->got - stream_end);
  }
  return shape_at(s, text_at, c->got - text_at, avail);
}

// The digits of a stamp, which can't be foreseen. @returns how many of the bytes are such
static size_t read_stamp(struct conn *c, const char *bytes, size_t n) {
  if (!events || !is_stamped || c->got >= (uint64_t)events * answer_event.size) return 0;
  size_t at = c->got % answer_event.size, end = answer_event.stamp_at + STAMP_LEN;
  if (at < answer_event.stamp_at || at >= end) return 0;
  if (n > end - at) n = end - at;
  if (at == answer_event.stamp_at) c->stamp = 0;
  for (size_t i = 0; i < n; i++) c->stamp = c->stamp * 10 + (uint64_t)(bytes[i] - '0');
  if (at + n == end && now_us() >= count_from_us) {
    uint64_t age = stamp_age(c->stamp, now_us()) / AGE_US;
    ages[age < AGES ? age : AGES - 1]++;
    age_count++;
  }
  return n;
}

static void on_body(void *arg, const char *bytes, size_t n) {
  struct conn *c = arg;
  size_t engine_at = shape_engine_at(answer);
  if (engine_at >= c->got && engine_at - c->got < n) c->engine = bytes[engine_at - c->got];
  shape_key(answer, c->id, c->prompt_bytes, c->engine);
  while (n && !c->is_wrong) {
    size_t avail, taken = read_stamp(c, bytes, n);
    if (taken) {
      bytes += taken;
      n -= taken;
      c->got += taken;
      continue;
    }
    const char *want = expected(c, &avail);
    if (is_stamped && c->got % answer_event.size < answer_event.stamp_at) {
      size_t left = answer_event.stamp_at - c->got % answer_event.size;
      if (avail > left) avail = left;
    }
    size_t piece = n < avail ? n : avail;
    if (!piece || memcmp(want, bytes, piece)) {
      c->is_wrong = 1;
      return;
    }
    bytes += piece;
    n -= piece;
    c->got += piece;
  }
}

static void park(struct conn *c) {
  c->phase = PARKED;
  parked[parked_count++] = c;
}

// Sends the requests that are due, as far as there are free connections. At the end no connection waits any more.
static void dispatch(void) {
  for (uint64_t now = now_us(); parked_count; ) {
    uint64_t due = begin_us + due_count * 1000000 / rate;
    struct conn *c = parked[parked_count - 1];
    if (c->phase == PARKED && may_ask() && due > now) return;
    parked_count--;
    if (c->phase != PARKED) continue; // it broke meanwhile
    if (!may_ask()) {
      rest(c);
      continue;
    }
    due_count++;
    if (ask(c)) {
      error(c, "write failed");
      reopen(c);
    } else {
      c->started_us = due;
    }
  }
}

static void record(struct conn *c) {
  if (latency_count == latency_cap) {
    latency_cap = latency_cap ? latency_cap * 2 : 1 << 16;
    latencies_us = realloc(latencies_us, latency_cap * sizeof *latencies_us);
    if (!latencies_us) die("realloc");
  }
  latencies_us[latency_count++] = (uint32_t)(now_us() - c->started_us);
}

static void record_engine(struct conn *c) {
  if (c->engine < '0' || c->engine >= '0' + ENGINES) return;
  engines[c->engine - '0']++;
  if (!sessions) return;
  char *last = &engine_of_session[c->number_asked % sessions];
  if (turns && turn_of(c->number_asked) == 0) *last = 0; // a new session in this place
  if (*last && *last != c->engine) strays++;
  *last = c->engine;
}

static void on_answer(struct conn *c) {
  if (strncmp(c->in.head, "HTTP/1.1 200", 12)) error(c, "status is not 200");
  else if (c->is_wrong) error(c, "an answer's content is not the one for this request");
  else if (c->got != answer_bytes_wanted) error(c, "an answer is cut");
  else if (c->sent < c->request_bytes) error(c, "an answer before the request was read");
  else {
    done++;
    record(c);
    record_engine(c);
  }
  int is_whole = c->sent == c->request_bytes;
  if (!c->in.keep_alive || !is_whole) {
    reconnects++;
    reopen(c);
  } else if (!may_ask()) {
    rest(c);
  } else if (rate) {
    park(c);
  } else if (ask(c)) {
    error(c, "write failed");
    reopen(c);
  }
}

static void on_readable(struct conn *c) {
  ssize_t n = read(c->fd, shared, sizeof shared);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    if (c->phase == PARKED) {
      reopen(c);
    } else if (c->phase != RESTING) {
      error(c, n ? "connection broke" : "connection ended before the answer did");
      reopen(c);
    } else {
      close(c->fd);
    }
    return;
  }
  reads++;
  bytes_in += (uint64_t)n;
  size_t used = http_feed(&c->in, shared, (size_t)n, on_body, c);
  if (c->phase != ASKING || c->in.state == HTTP_BAD || used < (size_t)n) {
    error(c, "an answer's framing is wrong");
    reopen(c);
  } else if (c->in.state == HTTP_DONE) {
    on_answer(c);
  }
}

static void on_writable(struct conn *c) {
  if (c->phase == CONNECTING) {
    int failed = 0;
    socklen_t len = sizeof failed;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &failed, &len);
    c->in.head_len = 0;
    open_next();
    if (!failed && !may_ask()) {
      watch(c, 0);
      rest(c);
      return;
    }
    if (!failed && rate) {
      watch(c, 0);
      park(c);
      return;
    }
    if (!failed && !ask(c)) return;
    error(c, failed ? "connect failed" : "write failed");
    reopen(c);
  } else if (c->phase == ASKING && send_request(c)) {
    error(c, "write failed");
    reopen(c);
  }
}

static void conn_init(struct conn *c) {
  c->phase = RESTING;
  lay_out(c, first_id);
}

static int by_value(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static double percentile_ms(double share) {
  return latency_count ? latencies_us[(size_t)(share * (double)(latency_count - 1))] / 1000.0 : 0;
}

static double age_ms(double share) {
  uint64_t seen = 0, wanted = (uint64_t)(share * (double)age_count);
  for (size_t i = 0; i < AGES; i++)
    if ((seen += ages[i]) > wanted) return (double)(i * AGE_US) / 1000;
  return 0;
}

static void report(uint64_t begin_us, uint64_t end_us) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  double cpu_us = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  qsort(latencies_us, latency_count, sizeof *latencies_us, by_value);
  printf("{\"requests\":%llu,\"errors\":%llu,\"firstError\":\"%s\",\"reconnects\":%llu,\"seconds\":%.4f,\"p50Ms\":%.3f,"
         "\"p99Ms\":%.3f,\"chunks\":%llu,\"reads\":%llu,\"bytes\":%llu,\"strays\":%llu,\"cpuUs\":%.0f,\"ageP50Ms\":%.2f,"
         "\"ageP99Ms\":%.2f,\"ages\":%llu,\"engines\":[",
      (unsigned long long)done, (unsigned long long)errors, first_error, (unsigned long long)reconnects,
      (double)(end_us - begin_us) / 1e6, percentile_ms(0.5), percentile_ms(0.99), (unsigned long long)(done * events),
      (unsigned long long)reads, (unsigned long long)bytes_in, (unsigned long long)strays, cpu_us,
      age_ms(0.5), age_ms(0.99), (unsigned long long)age_count);
  for (int i = 0; i < ENGINES; i++) printf("%s%llu", i ? "," : "", (unsigned long long)engines[i]);
  printf("]}\n");
}

int main(int argc, char **argv) {
  size_t answer_bytes = 2048, event_bytes = 220;
  double seconds = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (!strcmp(name, "--port")) target.sin_port = htons((uint16_t)atoi(value));
    else if (!strcmp(name, "--connections")) connections = atoi(value);
    else if (!strcmp(name, "--seconds")) seconds = atof(value);
    else if (!strcmp(name, "--requests")) max_requests = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--body-bytes")) body_bytes = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--rate")) rate = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--path")) path = value;
    else if (!strcmp(name, "--answer-bytes")) answer_bytes = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--answer-mib")) answer_bytes = (size_t)(answer_mib = (uint32_t)atoi(value)) << 20;
    else if (!strcmp(name, "--events")) events = (uint32_t)atoi(value);
    else if (!strcmp(name, "--event-bytes")) event_bytes = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--skip-ms")) skip_ms = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--first-id")) first_id = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--sessions")) sessions = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--turns")) turns = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--header")) header = value;
    else if (!strcmp(name, "--last-turn-header")) last_turn_header = value;
    else return fprintf(stderr, "load: unknown option %s\n", name), 2;
  }
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  signal(SIGPIPE, SIG_IGN);
  target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  content_init(answer_bytes, event_bytes);
  int is_chat = strstr(path, "/chat/") != NULL;
  prompt_field = is_chat ? "\"messages\":[{\"role\":\"user\",\"content\":" : strstr(path, "/generate") ? "\"text\":" : "\"prompt\":";
  is_stamped = events && answer_event.stamp_at;
  answer = events ? &answer_event : is_chat ? &answer_chat : &answer_text;
  answer_bytes_wanted = events ? events * answer_event.size + DONE_LEN : answer->size;
  tail_len = (size_t)snprintf(tail, sizeof tail, "\"%s,\"max_tokens\":460%s}", is_chat ? "}]" : "", events ? ",\"stream\":true" : "");
  if (sessions && !(engine_of_session = calloc(sessions, 1))) die("calloc");
  poller = epoll_create1(EPOLL_CLOEXEC);
  conns = calloc((size_t)connections, sizeof *conns);
  parked = calloc((size_t)connections, sizeof *parked);
  if (!conns || !parked) die("calloc");
  uint64_t begin = now_us(), end = begin;
  begin_us = begin;
  if (rate) {
    long ns = (long)(1000000000 / rate);
    struct itimerspec each = {{ns / 1000000000, ns % 1000000000}, {ns / 1000000000, ns % 1000000000}};
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer < 0 || timerfd_settime(timer, 0, &each, NULL)) die("timerfd");
    epoll_ctl(poller, EPOLL_CTL_ADD, timer, &e);
  }
  count_from_us = begin + skip_ms * 1000;
  if (seconds > 0) stop_us = begin + (uint64_t)(seconds * 1e6);
  for (int i = 0; i < connections; i++) conn_init(&conns[i]);
  for (int i = 0; i < MAX_CONNECTING; i++) open_next();
  while (asking > 0) {
    struct epoll_event ready[256];
    int count = epoll_wait(poller, ready, 256, 1000);
    for (int i = 0; i < count; i++) {
      struct conn *c = ready[i].data.ptr;
      uint64_t ticks;
      if (!c) {
        if (read(timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN) die("timer");
      } else if (ready[i].events & EPOLLOUT) on_writable(c);
      else on_readable(c);
    }
    if (rate) dispatch();
    end = now_us();
    if (stop_us != UINT64_MAX && end > stop_us + GRACE_S * 1000000ull) {
      snprintf(first_error, sizeof first_error, "%d requests were never answered", asking);
      errors += (uint64_t)asking;
      break;
    }
  }
  report(begin, end);
  return errors > 0;
}
