/* The request (lab27.request/1) as the app reads it. */
#ifndef LAB27_REQUEST_H
#define LAB27_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAB27_RECIPE "p95-140.v1"
#define LAB27_RECIPE_REHEARSAL LAB27_RECIPE ".rehearsal"

typedef struct {
    char schema[16], run_name[65], recipe[sizeof LAB27_RECIPE_REHEARSAL], purpose[10], app_version[33], source_digest[65];
    char issued_at[36], expires_at[36], nonce[37];
    bool reference_enabled;
    uint32_t duration_permille; /* 1000 = the whole recipe; less only in a rehearsal */
    int64_t issued_unix_ns, expires_unix_ns;
} lab27_request;

/* NULL, or what is wrong with it in words. */
const char *lab27_request_parse(const char *text, size_t length, lab27_request *out);

/* A lower-case UUID in its usual form. */
bool lab27_is_nonce(const char *text);

#endif
