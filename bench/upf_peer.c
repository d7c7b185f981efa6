// SPDX-License-Identifier: Apache-2.0
// A peer that answers PFCP as fast as one core can: what bench/upf.py measures the SMF against.
//   upf_peer ADDRESS EXPECTED    (answers until SIGTERM, then prints what it counted)
// It decodes each Session Establishment Request as far as its answer needs (F-SEID, both Create PDRs, F-TEID, UE
// address), notes the session by its SEID, and refuses what it does not know. A request that comes again, because its
// answer was late, gets the same answer and is counted apart (TS 29.244, 6.4). No rules are kept, nothing is forwarded.
#include <arpa/inet.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 8805, ACCEPTED = 1, NO_CONTEXT = 65, MISSING = 66, BUFFER = 8 << 20, RECENT = 1 << 17 };

struct session {
  uint64_t smf_seid;
  uint32_t teid, ue, modified;
  int stands;
};

// What was asked for lately, by its sequence number: which session it was about.
static struct recent {
  uint32_t sequence, type;
  uint64_t number;
} recent[RECENT];

static struct session *sessions;
static uint64_t room, known, established, again, modified, deleted, refused, heartbeats;
static uint32_t own_address;
static volatile sig_atomic_t over;

static void stop(int signal_number) { over = signal_number; }

static uint32_t read16(const uint8_t *at) { return at[0] << 8 | at[1]; }
static uint32_t read32(const uint8_t *at) { return read16(at) << 16 | read16(at + 2); }
static uint64_t read64(const uint8_t *at) { return (uint64_t)read32(at) << 32 | read32(at + 4); }
static uint8_t *put16(uint8_t *at, uint32_t value) { at[0] = value >> 8, at[1] = value; return at + 2; }
static uint8_t *put32(uint8_t *at, uint32_t value) { return put16(put16(at, value >> 16), value); }
static uint8_t *put64(uint8_t *at, uint64_t value) { return put32(put32(at, value >> 32), value); }

// The value of the `nth` element of a type, or null; *length is the value's.
static const uint8_t *element(const uint8_t *at, const uint8_t *end, uint32_t type, int nth, uint32_t *length) {
  while (at + 4 <= end) {
    uint32_t size = read16(at + 2);
    if (at + 4 + size > end) return NULL;
    if (read16(at) == type && nth-- == 0) return *length = size, at + 4;
    at += 4 + size;
  }
  return NULL;
}

static uint8_t *cause(uint8_t *at, int value) {
  at = put16(put16(at, 19), 1);
  *at = value;
  return at + 1;
}

static uint8_t *node_id(uint8_t *at) {
  at = put16(put16(at, 60), 5);
  *at = 0;
  return put32(at + 1, own_address);
}

// The session that this very request was about when it came before, or 0.
static uint64_t before(uint32_t sequence, uint32_t type) {
  struct recent *one = &recent[sequence % RECENT];
  return one->sequence == sequence && one->type == type ? one->number : 0;
}

static void remember(uint32_t sequence, uint32_t type, uint64_t number) {
  recent[sequence % RECENT] = (struct recent){sequence, type, number};
}

static uint8_t *establish(uint8_t *out, const uint8_t *body, const uint8_t *end, uint32_t sequence, uint64_t *seid) {
  uint32_t size, up_size, down_size, inner;
  const uint8_t *f_seid = element(body, end, 57, 0, &size);
  const uint8_t *up = element(body, end, 1, 0, &up_size), *down = element(body, end, 1, 1, &down_size);
  const uint8_t *up_pdi = up ? element(up, up + up_size, 2, 0, &up_size) : NULL;
  const uint8_t *down_pdi = down ? element(down, down + down_size, 2, 0, &down_size) : NULL;
  const uint8_t *f_teid = up_pdi ? element(up_pdi, up_pdi + up_size, 21, 0, &inner) : NULL;
  const uint8_t *ue = down_pdi ? element(down_pdi, down_pdi + down_size, 93, 0, &inner) : NULL;
  out = node_id(out);
  uint64_t number = before(sequence, 50);
  if (!f_seid || !f_teid || !ue || (known == room && !number)) return refused++, cause(out, MISSING);
  *seid = read64(f_seid + 1);
  if (number) {
    again++;
  } else {
    number = ++known;
    established++;
    remember(sequence, 50, number);
  }
  struct session *one = &sessions[number - 1];
  *one = (struct session){.smf_seid = *seid, .stands = 1};
  one->teid = f_teid[0] & 4 ? number : read32(f_teid + 1);
  one->ue = read32(ue + 1);
  out = cause(out, ACCEPTED);
  out = put16(put16(out, 57), 13);
  *out = 2;
  out = put32(put64(out + 1, number), own_address);
  if (f_teid[0] & 4) {
    out = put16(put16(out, 8), 19);
    out = put16(put16(put16(out, 56), 2), 1);
    out = put16(put16(out, 21), 9);
    *out = 1;
    out = put32(put32(out + 1, one->teid), own_address);
  }
  return out;
}

static uint8_t *answer(uint8_t *out, const uint8_t *in, long length) {
  int type = in[1], with_seid = in[0] & 1;
  const uint8_t *body = in + (with_seid ? 16 : 8), *end = in + length;
  uint64_t seid = with_seid ? read64(in + 4) : 0, theirs = 0;
  uint32_t sequence = read32(in + (with_seid ? 12 : 4)) >> 8;
  uint8_t *start = out, *at = out + (with_seid ? 16 : 8);
  struct session *one = seid && seid <= known && sessions[seid - 1].stands ? &sessions[seid - 1] : NULL;
  switch (type) {
  case 1:
    heartbeats++;
    at = put32(put16(put16(at, 96), 4), 3900000000u);
    break;
  case 5:
    at = cause(node_id(at), ACCEPTED);
    at = put32(put16(put16(at, 96), 4), 3900000000u);
    at = put16(put16(at, 43), 4);
    at = put32(at, 0x10000000);
    break;
  case 9: at = cause(node_id(at), ACCEPTED); break;
  case 50: at = establish(at, body, end, sequence, &theirs); break;
  case 52:
  case 54:
    if (!one && type == 54 && seid && before(sequence, 54) == seid) {
      again++;
      theirs = sessions[seid - 1].smf_seid;
      at = cause(at, ACCEPTED);
      break;
    }
    if (!one) {
      refused++;
      at = cause(at, NO_CONTEXT);
      break;
    }
    theirs = one->smf_seid;
    if (type == 52) one->modified++, modified++;
    else one->stands = 0, deleted++, remember(sequence, 54, seid);
    at = cause(at, ACCEPTED);
    break;
  default: return NULL;
  }
  start[0] = 0x20 | with_seid;
  start[1] = type + 1;
  put16(start + 2, at - start - 4);
  if (with_seid) put64(start + 4, theirs);
  memcpy(start + (with_seid ? 12 : 4), in + (with_seid ? 12 : 4), 4);
  return at;
}

int main(int count, char **given) {
  struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(PORT)}, sender;
  if (count != 3 || inet_pton(AF_INET, given[1], &own.sin_addr) != 1) return 2;
  room = strtoull(given[2], NULL, 10);
  sessions = calloc(room, sizeof *sessions);
  own_address = ntohl(own.sin_addr.s_addr);
  struct sigaction action = {.sa_handler = stop};
  sigaction(SIGTERM, &action, NULL);
  int endpoint = socket(AF_INET, SOCK_DGRAM, 0), buffer = BUFFER;
  setsockopt(endpoint, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  if (!sessions || bind(endpoint, (struct sockaddr *)&own, sizeof own)) return perror("upf_peer"), 1;
  puts("ready");
  fflush(stdout);
  static uint8_t in[65536], out[512];
  while (!over) {
    socklen_t size = sizeof sender;
    long length = recvfrom(endpoint, in, sizeof in, 0, (struct sockaddr *)&sender, &size);
    if (length < 16 && !(length >= 8 && !(in[0] & 1))) continue;
    uint8_t *end = answer(out, in, length);
    if (end) sendto(endpoint, out, end - out, 0, (struct sockaddr *)&sender, size);
  }
  uint64_t standing = 0;
  for (uint64_t i = 0; i < known; i++) standing += sessions[i].stands;
  printf("{\"established\": %lu, \"modified\": %lu, \"deleted\": %lu, \"standing\": %lu, \"refused\": %lu, "
         "\"again\": %lu, \"heartbeats\": %lu}\n",
         established, modified, deleted, standing, refused, again, heartbeats);
  return 0;
}
