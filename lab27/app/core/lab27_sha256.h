/* SHA-256 (FIPS 180-4). */
#ifndef LAB27_SHA256_H
#define LAB27_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t state[8];
    uint64_t length;
    unsigned char block[64];
} lab27_sha256;

void lab27_sha256_begin(lab27_sha256 *);
void lab27_sha256_add(lab27_sha256 *, const void *data, size_t length);

/* Leaves the argument as it is, so that a prefix's digest can be taken on the way. */
void lab27_sha256_hex(const lab27_sha256 *, char hex[65]);

#endif
