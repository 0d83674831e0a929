// What travels in the benchmark. Both ends can say byte for byte what any request or answer must hold, so every one is
// checked in full at the price of a memcmp, whatever size it has.
//
// A prompt is `id=0000000123;n=00200;` and then the pattern. The mock finds the id wherever a router that re-serialises
// bodies has moved the prompt to, counts the pattern bytes that arrived intact, and puts both numbers into its answer:
// answers handed to the wrong client, and prompts cut or altered, come to light. So does where each request went: the
// third part of an answer's id is the engine's own name, one character, the only byte that the load generator can't foresee.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PATTERN_PERIOD 65521 // a prime, so that no power-of-two buffer can be dropped or repeated unnoticed
#define PATTERN_WINDOW 65536 // bytes that lie in one piece from any position on
#define PROMPT_KEY_LEN 22
#define ANSWER_KEY_LEN 21 // `0000000123-0000002000`; `-1` follows
#define DONE_EVENT "data: [DONE]\n\n"
#define DONE_LEN (sizeof DONE_EVENT - 1)
#define STAMP_LEN 10 // digits of an event's `created`, which says when it was sent
#define STAMP_FIRST 1000000000ull
#define STAMP_PERIOD 8000000000ull // µs until a stamp returns: two hours

static char pattern[PATTERN_PERIOD + PATTERN_WINDOW];

// Letters and blanks only: nothing that JSON escapes, so that a router can't change it without breaking it.
static inline void pattern_init(void) {
  uint32_t seed = 12345;
  for (size_t i = 0; i < PATTERN_PERIOD; i++) {
    seed = seed * 1664525u + 1013904223u;
    uint32_t r = (seed >> 16) % 31;
    pattern[i] = r < 26 ? (char)('a' + r) : ' ';
  }
  for (size_t i = PATTERN_PERIOD; i < sizeof pattern; i++) pattern[i] = pattern[i - PATTERN_PERIOD];
}

static inline const char *pattern_at(uint64_t pos, size_t *avail) {
  if (*avail > PATTERN_WINDOW) *avail = PATTERN_WINDOW;
  return pattern + pos % PATTERN_PERIOD;
}

// How many of the bytes continue the pattern from `pos` on.
static inline size_t pattern_match(uint64_t pos, const char *bytes, size_t n) {
  size_t done = 0;
  while (done < n) {
    const char *want = pattern + (pos + done) % PATTERN_PERIOD;
    size_t block = n - done < 256 ? n - done : 256;
    if (memcmp(want, bytes + done, block)) {
      while (*want == bytes[done]) {
        want++;
        done++;
      }
      return done;
    }
    done += block;
  }
  return done;
}

static inline void put_digits(char *at, int width, uint64_t value) {
  for (int i = width - 1; i >= 0; i--, value /= 10) at[i] = (char)('0' + value % 10);
}

static inline uint64_t read_digits(const char *at, int width) {
  uint64_t value = 0;
  for (int i = 0; i < width; i++) value = value * 10 + (uint64_t)(at[i] - '0');
  return value;
}

// One piece of text with a key in it and the pattern between two fixed parts: the whole JSON answer, or one event.
struct shape {
  char prefix[256];
  size_t prefix_len;
  size_t key_at;
  size_t stamp_at; // 0: it has no `created`
  const char *suffix;
  size_t suffix_len;
  size_t size;
};

static inline void shape_init(struct shape *s, const char *open, const char *object, const char *text, const char *suffix,
    size_t size) {
  s->key_at = (size_t)snprintf(s->prefix, sizeof s->prefix, "%s{\"id\":\"cmpl-", open);
  s->prefix_len = (size_t)snprintf(s->prefix, sizeof s->prefix,
      "%s{\"id\":\"cmpl-0000000000-0000000000-0\",\"object\":\"%s\",\"created\":1700000000,\"model\":\"mock\","
      "\"choices\":[{\"index\":0,%s", open, object, text);
  s->stamp_at = (size_t)(strstr(s->prefix, "1700000000") - s->prefix);
  s->suffix = suffix;
  s->suffix_len = strlen(suffix);
  size_t least = s->prefix_len + s->suffix_len + 1;
  s->size = size < least ? least : size;
}

// The bytes of a shape from `off` on, as far as they lie in one piece. `text_at` is where its text starts in the pattern.
static inline const char *shape_at(struct shape *s, uint64_t text_at, uint64_t off, size_t *avail) {
  uint64_t text_end = s->size - s->suffix_len;
  if (off < s->prefix_len) {
    *avail = s->prefix_len - (size_t)off;
    return s->prefix + off;
  }
  if (off < text_end) {
    *avail = (size_t)(text_end - off < PATTERN_WINDOW ? text_end - off : PATTERN_WINDOW);
    return pattern_at(text_at + off - s->prefix_len, avail);
  }
  *avail = (size_t)(s->size - off);
  return s->suffix + (off - text_end);
}

static inline size_t shape_engine_at(const struct shape *s) {
  return s->key_at + ANSWER_KEY_LEN + 1;
}

static inline void shape_key(struct shape *s, uint64_t id, uint64_t prompt_bytes, char engine) {
  put_digits(s->prefix + s->key_at, 10, id);
  put_digits(s->prefix + s->key_at + 11, 10, prompt_bytes);
  s->prefix[shape_engine_at(s)] = engine;
}

// The time of now as a stamp: ten digits, of which the first is no zero.
static inline uint64_t stamp_of(uint64_t us) {
  return STAMP_FIRST + us % STAMP_PERIOD;
}

static inline uint64_t stamp_age(uint64_t stamp, uint64_t us) {
  return (stamp_of(us) + STAMP_PERIOD - stamp) % STAMP_PERIOD;
}

static struct shape answer_text, answer_chat, answer_event;

// An event without what engines say of model and choice, for streams of events smaller than those.
static inline void event_init_small(size_t size) {
  struct shape *s = &answer_event;
  s->prefix_len = (size_t)snprintf(s->prefix, sizeof s->prefix, "data: {\"id\":\"cmpl-0000000000-0000000000-0\",\"text\":\"");
  s->stamp_at = 0;
  s->suffix = "\"}\n\n";
  s->suffix_len = strlen(s->suffix);
  size_t least = s->prefix_len + s->suffix_len + 1;
  s->size = size < least ? least : size;
}

// What the counts say is about true for 2 KB in and 2 KB out: routers learn from them.
#define ANSWER_USAGE "\"usage\":{\"prompt_tokens\":512,\"completion_tokens\":460,\"total_tokens\":972}}"

static inline void content_init(size_t answer_bytes, size_t event_bytes) {
  pattern_init();
  shape_init(&answer_text, "", "text_completion", "\"text\":\"",
      "\",\"logprobs\":null,\"finish_reason\":\"length\"}]," ANSWER_USAGE, answer_bytes);
  shape_init(&answer_chat, "", "chat.completion", "\"message\":{\"role\":\"assistant\",\"content\":\"",
      "\"},\"logprobs\":null,\"finish_reason\":\"length\"}]," ANSWER_USAGE, answer_bytes);
  shape_init(&answer_event, "data: ", "text_completion", "\"text\":\"",
      "\",\"logprobs\":null,\"finish_reason\":null}]}\n\n", event_bytes);
  if (event_bytes < answer_event.size) event_init_small(event_bytes);
}
