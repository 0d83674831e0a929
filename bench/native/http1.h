// Reading HTTP/1.1 messages as they arrive: enough of RFC 9112 for the two ends of a benchmark, which talk to
// well-behaved routers only. Requests and answers alike; bodies by content-length or chunked.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum http_state { HTTP_HEAD, HTTP_LENGTH, HTTP_CHUNK_SIZE, HTTP_CHUNK_DATA, HTTP_CHUNK_END, HTTP_TRAILER, HTTP_DONE, HTTP_BAD };

#define HTTP_HEAD_MAX 8192

struct http {
  enum http_state state;
  int is_request;
  int keep_alive;
  int chunked;
  int head_len;
  int line_len; // of the chunk-size or trailer line read so far
  uint64_t left;
  char head[HTTP_HEAD_MAX + 1];
};

typedef void (*http_body_fn)(void *arg, const char *bytes, size_t n);

static inline void http_reset(struct http *h, int is_request) {
  h->state = HTTP_HEAD;
  h->is_request = is_request;
  h->head_len = 0;
}

// One pass over the header lines: the first letter decides almost all of them.
static inline void http_read_head(struct http *h) {
  int has_length = 0;
  h->head[h->head_len] = 0;
  h->keep_alive = 1;
  h->chunked = 0;
  h->left = 0;
  for (char *line = strchr(h->head, '\n'); line && line[1] != '\r'; line = strchr(line + 1, '\n')) {
    char *name = line + 1;
    int first = *name | 0x20;
    if (first == 'c' && !strncasecmp(name, "content-length:", 15)) {
      h->left = strtoull(name + 15, NULL, 10);
      has_length = 1;
    } else if (first == 'c' && !strncasecmp(name, "connection: close", 17)) {
      h->keep_alive = 0;
    } else if (first == 't' && !strncasecmp(name, "transfer-encoding: chunked", 26)) {
      h->chunked = 1;
    }
  }
  if (h->chunked) {
    h->state = HTTP_CHUNK_SIZE;
    h->left = 0;
    h->line_len = 0;
  } else if (has_length || h->is_request) {
    h->state = h->left ? HTTP_LENGTH : HTTP_DONE;
  } else {
    h->state = HTTP_BAD; // an answer framed by the end of the connection: no router under test should send one
  }
}

static inline void http_feed_head(struct http *h, const char **p, size_t *n) {
  // The end of the head may straddle two reads, so the search starts three bytes back.
  size_t room = HTTP_HEAD_MAX - (size_t)h->head_len;
  size_t take = *n < room ? *n : room;
  int from = h->head_len > 3 ? h->head_len - 3 : 0;
  memcpy(h->head + h->head_len, *p, take);
  char *end = memmem(h->head + from, (size_t)h->head_len + take - (size_t)from, "\r\n\r\n", 4);
  if (!end) {
    h->head_len += (int)take;
    *p += take;
    *n -= take;
    if (h->head_len == HTTP_HEAD_MAX) h->state = HTTP_BAD;
    return;
  }
  size_t used = (size_t)(end + 4 - h->head) - (size_t)h->head_len;
  h->head_len += (int)used;
  *p += used;
  *n -= used;
  http_read_head(h);
}

static inline void http_feed_line(struct http *h, char c) {
  if (c != '\n') {
    if (c == '\r') return;
    h->line_len++;
    if (h->state != HTTP_CHUNK_SIZE) return;
    int digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
    if (digit < 0) h->state = HTTP_BAD;
    h->left = h->left * 16 + (uint64_t)digit;
    return;
  }
  if (h->state == HTTP_CHUNK_SIZE)
    h->state = h->line_len == 0 ? HTTP_BAD : h->left ? HTTP_CHUNK_DATA : HTTP_TRAILER;
  else if (h->state == HTTP_CHUNK_END)
    h->state = h->line_len ? HTTP_BAD : HTTP_CHUNK_SIZE;
  else if (h->line_len == 0)
    h->state = HTTP_DONE;
  h->line_len = 0;
}

// Takes bytes until the message is done or they run out; returns how many were taken.
static inline size_t http_feed(struct http *h, const char *bytes, size_t n, http_body_fn on_body, void *arg) {
  const char *p = bytes;
  while (n && h->state < HTTP_DONE) {
    if (h->state == HTTP_HEAD) {
      http_feed_head(h, &p, &n);
    } else if (h->state == HTTP_LENGTH || h->state == HTTP_CHUNK_DATA) {
      size_t take = n < h->left ? n : (size_t)h->left;
      on_body(arg, p, take);
      p += take;
      n -= take;
      h->left -= take;
      if (!h->left) h->state = h->state == HTTP_LENGTH ? HTTP_DONE : HTTP_CHUNK_END;
    } else {
      http_feed_line(h, *p);
      p++;
      n--;
    }
  }
  return (size_t)(p - bytes);
}
